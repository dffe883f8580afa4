"""What the grammar wins and what it breaks, plate by plate."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from plate_models.formats import RUSSIA
from plate_models.recognition import ctc
from plate_models.recognition.decoding import Evidence, choose_reading
from plate_models.recognition.grammar import Grammar
from plate_models.spec import RECOGNIZER, RecognizerSpec

Case = tuple[ctc.Array, Evidence, str]


@dataclass(frozen=True)
class Steps:
    """How one plate is read, step by step.

    Attributes:
        text: What stands on it.
        greedy: Along the best path.
        beam: The likeliest text, whatever the path.
        grammar: The likeliest text with the grammar as a prior, as it is answered.
    """

    text: str
    greedy: str
    beam: str
    grammar: str


@dataclass(frozen=True)
class GrammarReport:
    """All plates' steps, and what they add up to."""

    plates: tuple[Steps, ...] = ()

    @property
    def right(self) -> dict[str, int]:
        """How many plates are read right at each step."""
        return {
            "greedy": sum(plate.greedy == plate.text for plate in self.plates),
            "beam": sum(plate.beam == plate.text for plate in self.plates),
            "grammar": sum(plate.grammar == plate.text for plate in self.plates),
        }

    @property
    def wins(self) -> tuple[Steps, ...]:
        """Plates that are read right, though the best path or the beam alone is wrong."""
        return tuple(
            plate
            for plate in self.plates
            if plate.grammar == plate.text and {plate.greedy, plate.beam} != {plate.text}
        )

    @property
    def breaks(self) -> tuple[Steps, ...]:
        """Plates that are read wrong, though the best path or the beam alone is right."""
        return tuple(
            plate
            for plate in self.plates
            if plate.grammar != plate.text and plate.text in (plate.greedy, plate.beam)
        )

    def lines(self) -> list[str]:
        """The report for people: counts first, then wins and breaks one by one."""
        counts = ", ".join(f"{step} {count}" for step, count in self.right.items())
        head = f"read right of {len(self.plates)}: {counts}"
        return [
            f"{head}; the grammar wins {len(self.wins)} and breaks {len(self.breaks)}",
            *(_line("wins", plate) for plate in self.wins),
            *(_line("breaks", plate) for plate in self.breaks),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Counts, wins and breaks as JSON-ready values."""
        return {
            "plates": len(self.plates),
            "right": self.right,
            "wins": [asdict(plate) for plate in self.wins],
            "breaks": [asdict(plate) for plate in self.breaks],
        }


def compare(
    cases: Iterable[Case], grammar: Grammar = RUSSIA, spec: RecognizerSpec = RECOGNIZER
) -> GrammarReport:
    """Read plates without and with the grammar.

    Args:
        cases: Log-probabilities (C, T) from :func:`ctc.log_softmax`, what else is seen of
            the plate, and the right text.
        grammar: The country's formats.
        spec: The recognizer's alphabet.

    Returns:
        What each step reads, in the order of the cases.

    Raises:
        ValueError: C does not fit the alphabet (weights and spec disagree).
    """
    return GrammarReport(
        tuple(
            Steps(
                text,
                ctc.greedy_decode(log_probs, spec.alphabet),
                _first(ctc.beam_decode(log_probs, spec.alphabet)),
                _first(choose_reading(log_probs, evidence, grammar, spec=spec).candidates),
            )
            for log_probs, evidence, text in cases
        )
    )


def _first(candidates: Iterable[tuple[str, float]]) -> str:
    return next((text for text, _ in candidates), "")


def _line(verb: str, plate: Steps) -> str:
    steps = f"greedy {plate.greedy}, beam {plate.beam}, grammar {plate.grammar}"
    return f"  {verb} {plate.text}: {steps}"
