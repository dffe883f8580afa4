"""Two versions, plate by plate: what the second wins and what it loses."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plate_models.training.evaluation.results import METRICS
from plate_models.training.figures import mcnemar_p


class ReportError(Exception):
    """A file is not a kept report of labelled photos; the message names it."""


@dataclass(frozen=True)
class KeptPlate:
    """What is compared of one plate of a report."""

    photo: str
    box: tuple[float, ...]  # the label
    text: str
    legible: bool
    verdicts: Mapping[str, bool]  # by metric; without those that don't ask about this plate
    shown: str  # for a terminal: what was read end to end, (held back), [in the labelled box]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "KeptPlate":
        """Read what `PlateResult.to_dict` wrote; a KeyError or TypeError for anything else."""
        answers, in_label = values["answers"], values["in_label"]["guess"] or "-"
        texts = ", ".join(a["text"] or f"({a['guess'] or '-'})" for a in answers) or "-"
        iou = max((answer["iou"] for answer in answers), default=0.0)
        about = values["photo"], tuple(values["box"]), values["text"], values["legible"]
        return cls(*about, values["verdicts"], f"{texts} [{in_label}] IoU {iou:.2f}")


Pair = tuple[KeptPlate, KeptPlate]


@dataclass(frozen=True)
class KeptReport:
    """What `plates eval --json` kept: the weights' hash, the engine, the date, every plate.

    The engine is "" in reports of versions that had only one.
    """

    weights: str
    engine: str
    date: str
    plates: list[KeptPlate]


@dataclass(frozen=True)
class MetricComparison:
    """One metric of two versions on the plates that it asks about."""

    name: str
    plates: int  # how many those are
    right: tuple[int, int]  # plates right in the first and in the second version
    wins: list[Pair]  # wrong in the first version, right in the second
    losses: list[Pair]  # the other way round
    p: float  # see `mcnemar_p`


@dataclass(frozen=True)
class Comparison:
    """Two versions on the plates that both reports have."""

    plates: int  # how many those are
    metrics: list[MetricComparison]
    relabelled: int  # how many of them changed their label's text or legibility between
    only_in: tuple[int, int]  # plates that only the first, and only the second report has

    def lines(self) -> list[str]:
        """The report for a terminal: a table, then every plate that changed."""
        lines = [f"{'':<40} {'of':>5} {'first':>6} {'second':>6} {'wins':>5} {'losses':>6}       p"]
        for one in self.metrics:
            first, second = one.right
            lines.append(
                f"{one.name:<40} {one.plates:>5} {first:>6} {second:>6} "
                f"{len(one.wins):>5} {len(one.losses):>6} {one.p:>7.3f}"
            )
        changed = [one for one in self.metrics if one.wins or one.losses]
        if changed:
            lines += ["", "What changed: end to end, (held back), [from the labelled box]"]
        for one in changed:
            lines += ["", one.name]
            for verb, pairs in (("won", one.wins), ("lost", one.losses)):
                lines += [
                    f"  {verb:<5} {b.photo:<40} {b.text or '?':<10} {a.shown}  ->  {b.shown}"
                    for a, b in pairs
                ]
        if self.relabelled:
            lines += ["", f"Plates whose label changed between the two: {self.relabelled}"]
        if any(self.only_in):
            a, b = self.only_in
            lines += ["", f"Not compared: plates only in the first: {a}, only in the second: {b}"]
        return lines


def compare(first: Sequence[KeptPlate], second: Sequence[KeptPlate]) -> Comparison:
    """Compare two versions metric by metric.

    A plate is known by its photo and its labelled box, so that the two are compared even
    after a label's text was mended.
    """
    before, after = ({(p.photo, p.box): p for p in side} for side in (first, second))
    pairs = [(before[key], after[key]) for key in before if key in after]
    metrics = [_compare_by(metric.name, pairs) for metric in METRICS]
    relabelled = sum((a.text, a.legible) != (b.text, b.legible) for a, b in pairs)
    only_in = (len(before) - len(pairs), len(after) - len(pairs))
    return Comparison(len(pairs), metrics, relabelled, only_in)


def _compare_by(metric: str, pairs: Sequence[Pair]) -> MetricComparison:
    asked = [pair for pair in pairs if all(metric in plate.verdicts for plate in pair)]
    right = tuple([pair for pair in asked if pair[side].verdicts[metric]] for side in (0, 1))
    wins = [pair for pair in right[1] if not pair[0].verdicts[metric]]
    losses = [pair for pair in right[0] if not pair[1].verdicts[metric]]
    counts, p = (len(right[0]), len(right[1])), mcnemar_p(len(wins), len(losses))
    return MetricComparison(metric, len(asked), counts, wins, losses, p)


def load_report(path: Path) -> KeptReport:
    """Read what ``plates eval --json`` kept of labelled photos.

    Raises:
        ReportError: The file can't be read, or is something else.
    """
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        plates = [KeptPlate.of(plate) for plate in kept["labelled"]["plates"]]
        engine = f"{kept['engine']} on {kept['device']}" if "engine" in kept else ""
        return KeptReport(str(kept["weights"]), engine, str(kept["date"]), plates)
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: can't be read: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(
            f"{path}: not a report of labelled photos by this version's `plates eval --json`: "
            f"{error!r}"
        ) from error
