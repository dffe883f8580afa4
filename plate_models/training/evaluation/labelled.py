"""Scores photos whose plates are labelled, and photos that have none."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plate_models.engines.nets import Nets
from plate_models.images import decode
from plate_models.pipeline import PipelineConfig
from plate_models.recognition import ctc
from plate_models.recognition.appearance import evidence_of
from plate_models.recognition.decoding import Evidence, choose_reading
from plate_models.training.baseline import Baseline
from plate_models.training.evaluation.results import (
    FAILURES,
    METRICS,
    Answer,
    PlateResult,
    answers_of,
    count_lines,
    match,
    plain,
    predict_boxes,
)
from plate_models.training.figures import Count, edit_distance, events, proportion, ratio
from plate_models.training.labels import LabelledPhoto, load_labels, load_negatives

Progress = Callable[[list[LabelledPhoto]], Iterable[LabelledPhoto]]

# Column heads of the groups' table: the rows of `count_plates`.
_HEADS = ("IoU 0.5", "IoU 0.7", "labelled box", "end to end", "no wrong text", "characters")
# A property with more values than this separates photos, not groups.
_MOST_GROUPS = 8


@dataclass(frozen=True)
class GrammarSteps:
    """How one plate is read: along the best path, by the beam, and with the grammar."""

    text: str
    greedy: str
    beam: str
    grammar: str

    @classmethod
    def of(
        cls, text: str, log_probs: ctc.Array, evidence: Evidence, config: PipelineConfig
    ) -> "GrammarSteps":
        """Read log-probabilities (C, T) without and with the grammar."""
        spec = config.specs.recognizer
        reading = choose_reading(log_probs, evidence, config.grammar, spec=spec)
        beam, grammar = (
            next((guess for guess, _ in candidates), "")
            for candidates in (ctc.beam_decode(log_probs, spec.alphabet), reading.candidates)
        )
        return cls(text, ctc.greedy_decode(log_probs, spec.alphabet), beam, grammar)

    @property
    def verdict(self) -> str:
        """What the grammar does: "wins" where best path or beam are wrong alone, "breaks", ""."""
        if self.grammar == self.text:
            return "wins" if {self.greedy, self.beam} != {self.text} else ""
        return "breaks" if self.text in (self.greedy, self.beam) else ""

    def __str__(self) -> str:
        steps = f"greedy {self.greedy}, beam {self.beam}, grammar {self.grammar}"
        return f"{self.verdict} {self.text}: {steps}"


@dataclass
class Scoreboard:
    """What became of every labelled plate, and what was read where no plate is labelled."""

    plates: list[PlateResult] = field(default_factory=list)  # one result per labelled plate
    # Answers on labelled photos that overlap no label. Plates may have been left unlabelled, so
    # these are listed, not counted.
    elsewhere: list[Answer] = field(default_factory=list)
    photos_without: int = 0  # number of photos without any plate
    false_texts: list[Answer] = field(default_factory=list)  # readable answers on them
    # How the legible plates are read in their labelled boxes, step by step.
    grammar: list[GrammarSteps] = field(default_factory=list)

    def add(
        self,
        photo: LabelledPhoto,
        image: Tensor,
        nets: Nets,
        published: Baseline | None = None,
    ) -> None:
        """Read a photo, compare it with its labels, and read the labelled boxes, too."""
        name, labels = photo.path.name, photo.plates
        boxes, lines = [label.box for label in labels], [label.lines for label in labels]
        matched, elsewhere = match(boxes, nets.read(image))
        seen = predict_boxes(image, boxes, lines, nets)
        in_labels = answers_of(name, boxes, lines, seen, nets)
        evidence = evidence_of(seen.crops, lines, seen.colourless)
        for row, label in enumerate(labels):
            answers = tuple(Answer.of(name, plate, iou) for plate, iou in matched[row])
            about = label.box, label.text, label.light, label.legible, label.lines
            theirs = {}
            if label.legible:
                theirs = published.read(image.numpy(), label.box) if published else {}
                at = label.text, seen.log_probs[row], evidence[row]
                self.grammar.append(GrammarSteps.of(*at, nets.config))
            self.plates.append(PlateResult(name, *about, in_labels[row], answers, theirs))
        self.elsewhere += [Answer.of(name, plate) for plate in elsewhere]

    @property
    def failures(self) -> list[PlateResult]:
        """The plates that went wrong somewhere, in the order of `FAILURES`, then by photo."""
        order = list(FAILURES)
        failed = [plate for plate in self.plates if plate.failure]
        return sorted(failed, key=lambda plate: (order.index(plate.failure), plate.photo))

    @property
    def wrong_texts(self) -> list[tuple[PlateResult, Answer]]:
        """Every readable answer that is known to be wrong, with its plate."""
        return [(plate, answer) for plate in self.plates for answer in plate.wrong_texts]

    @property
    def unverified(self) -> list[Answer]:
        """Readable answers that no label confirms or refutes: a person has to look."""
        illegible = [a for plate in self.plates if not plate.legible for a in plate.answers]
        return [answer for answer in [*illegible, *self.elsewhere] if answer.text]

    def counts(self) -> list[Count]:
        """The scoreboard's rows."""
        rows = count_plates(self.plates)
        legible = [plate for plate in self.plates if plate.legible]
        for crop in legible[0].published if legible else ():
            right = [plate.published[crop] == plate.text for plate in legible]
            rows.append(proportion(f"published recognizer, {crop}", right))
        if self.photos_without:
            false = len(self.false_texts)
            rows.append(events("readable plates in photos without", false, self.photos_without))
        return rows

    def lines(self) -> list[str]:
        """The report for a terminal: counts, groups, and every wrong text by name."""
        steps = [one for verdict in ("wins", "breaks") for one in self._grammar(verdict)]
        wins = len(self._grammar("wins"))
        right = ", ".join(f"{step} {count}" for step, count in self._grammar_right().items())
        return [
            *count_lines(self.counts()),
            "",
            *group_lines(self.plates),
            "",
            f"From the labelled boxes read right of {len(self.grammar)}: {right}; "
            f"the grammar wins {wins} and breaks {len(steps) - wins}",
            *(f"  {one}" for one in steps),
            "",
            f"Wrong readable texts: {len(self.wrong_texts) + len(self.false_texts)}",
            *(
                f"  {plate.photo:<40} read {a.text:<10} right {plate.text:<10} "
                f"score {a.score:.3f}, IoU {a.iou:.2f}"
                for plate, a in self.wrong_texts
            ),
            *(
                f"  {a.photo:<40} read {a.text:<10} no plate there   score {a.score:.3f}"
                for a in self.false_texts
            ),
            "",
            f"Readable texts that no label confirms or refutes: {len(self.unverified)}",
            *(
                f"  {a.photo:<40} {a.text:<10} score {a.score:.3f}, "
                f"{'labelled as illegible' if a.iou else 'not labelled'}"
                for a in self.unverified
            ),
        ]

    def _grammar(self, verdict: str) -> list[GrammarSteps]:
        return [steps for steps in self.grammar if steps.verdict == verdict]

    def _grammar_right(self) -> dict[str, int]:
        return {
            step: sum(getattr(steps, step) == steps.text for steps in self.grammar)
            for step in ("greedy", "beam", "grammar")
        }

    def failure_lines(self) -> list[str]:
        """Every failure: where, why, and what was read instead."""
        lines = [f"Failures: {len(self.failures)}"]
        for plate in self.failures:
            answers = ", ".join(a.text or f"({a.guess or '-'})" for a in plate.answers) or "-"
            lines.append(
                f"  {plate.failure:<13} {plate.photo:<40} {plate.text or '?':<10} end to end "
                f"{answers}, labelled box {plate.read_in_label or '-'}, IoU {plate.iou:.2f}"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "counts": [count.to_dict() for count in self.counts()],
            "groups": [
                {"by": by, "name": name, "counts": [c.to_dict() for c in count_plates(plates)]}
                for (by, name), plates in group(self.plates).items()
            ],
            "plates": [plate.to_dict() for plate in self.plates],
            "elsewhere": [plain(answer) for answer in self.elsewhere],
            "photos_without": self.photos_without,
            "false_texts": [plain(answer) for answer in self.false_texts],
            "grammar": {
                "plates": len(self.grammar),
                "right": self._grammar_right(),
                "wins": [asdict(steps) for steps in self._grammar("wins")],
                "breaks": [asdict(steps) for steps in self._grammar("breaks")],
            },
        }


def count_plates(plates: Sequence[PlateResult]) -> list[Count]:
    """The scoreboard's rows about labelled plates: the metrics and the character errors."""
    rows = [
        proportion(metric.name, [metric.right(plate) for plate in plates if metric.counts(plate)])
        for metric in METRICS
    ]
    legible = [plate for plate in plates if plate.legible]
    errors = [edit_distance(plate.read_in_label, plate.text) for plate in legible]
    lengths = [len(plate.text) for plate in legible]
    return [*rows, ratio("character error rate, labelled box", errors, lengths)]


def group(plates: Sequence[PlateResult]) -> dict[tuple[str, str], list[PlateResult]]:
    """Group plates by width (terciles), light, source and lines of text.

    Returns:
        Plates by (property, value). A property with one value only is left out: it would
        say the same as the whole.
    """
    if not plates:
        return {}
    low, high = np.quantile([plate.width for plate in plates], (1 / 3, 2 / 3))
    thirds = (f"under {low:.0f} px", f"{low:.0f} to {high:.0f} px", f"over {high:.0f} px")
    properties = {
        "width": [thirds[int(p.width >= low) + int(p.width > high)] for p in plates],
        "light": [plate.light or "not labelled" for plate in plates],
        "source": [plate.source or "other" for plate in plates],
        "lines": [f"{plate.lines} in a plate" for plate in plates],
    }
    groups: dict[tuple[str, str], list[PlateResult]] = {}
    for by, values in properties.items():
        order = thirds if by == "width" else sorted(set(values))
        members = {v: [p for p, own in zip(plates, values, strict=True) if own == v] for v in order}
        members = {value: its for value, its in members.items() if its}
        if 1 < len(members) <= _MOST_GROUPS:
            groups |= {(by, value): its for value, its in members.items()}
    return groups


def group_lines(plates: Sequence[PlateResult]) -> list[str]:
    """One line per group with a column per count; empty without groups."""
    rows = {
        f"{by}: {name}": [count.cell for count in count_plates(members)]
        for (by, name), members in group(plates).items()
    }
    if not rows:
        return []
    table = pd.DataFrame.from_dict(rows, orient="index", columns=_HEADS)
    heading = "By group: count, and the 95 % interval of the rate in per cent"
    return [heading, *table.to_string().splitlines()]


def labelled_folder(data: Path) -> Path:
    """The labelled set of a data folder: its ``ru_photos``, or the folder itself."""
    return data / "ru_photos" if (data / "ru_photos").is_dir() else data


def evaluate(
    data: Path,
    nets: Nets,
    baseline: Path | None = None,
    progress: Progress = iter,
) -> Scoreboard:
    """Score the nets at the operating point that ships.

    Args:
        data: Holds ``ru_photos/`` and optionally ``no_plates/``, or is itself a labelled
            set (``images/`` and ``plates.csv``).
        nets: The nets.
        baseline: Folder of the published recognizer (``stn.pt``, ``lprnet.pt``), scored
            on the same plates in the same run; None to leave it out.
        progress: Wraps each list of photos, for a progress bar.

    Raises:
        FileNotFoundError: There is no labelled set in ``data``, or no published recognizer
            in ``baseline``.
        LabelError: The table of labels is broken.
    """
    published = Baseline(baseline) if baseline else None
    board = Scoreboard()
    for photo in progress(load_labels(labelled_folder(data))):
        board.add(photo, torch.from_numpy(decode(photo.path.read_bytes())), nets, published)
    if (data / "no_plates").is_dir():
        negatives = load_negatives(data / "no_plates", held_out=True)
        board.photos_without = len(negatives)
        for photo in progress(negatives):
            image = torch.from_numpy(decode(photo.path.read_bytes()))
            answers = [Answer.of(photo.path.name, plate) for plate in nets.read(image)]
            board.false_texts += [answer for answer in answers if answer.text]
    return board
