"""Two versions, plate by plate: what the second wins and what it loses."""

import json
from dataclasses import dataclass
from pathlib import Path

from plate_models.training.evaluation.results import METRICS, Metric, PlateResult
from plate_models.training.figures import mcnemar_p

Pair = tuple[PlateResult, PlateResult]


class ReportError(Exception):
    """A file is not a kept report of labelled photos; the message names it."""


@dataclass(frozen=True)
class KeptReport:
    """What `plates eval --json` kept: the weights' hash, the engine, the date, every plate.

    The engine is "" in reports of versions that had only one.
    """

    weights: str
    engine: str
    date: str
    plates: list[PlateResult]


@dataclass(frozen=True)
class MetricComparison:
    """One metric of two versions on the plates that it asks about."""

    metric: Metric
    pairs: tuple[Pair, ...]

    @property
    def right(self) -> tuple[int, int]:
        """Plates right in the first and in the second version."""
        first, second = (sum(map(self.metric.right, side)) for side in self._sides())
        return first, second

    @property
    def wins(self) -> list[Pair]:
        """Wrong in the first version, right in the second."""
        return [(a, b) for a, b in self.pairs if self.metric.right(b) > self.metric.right(a)]

    @property
    def losses(self) -> list[Pair]:
        """Right in the first version, wrong in the second."""
        return [(a, b) for a, b in self.pairs if self.metric.right(b) < self.metric.right(a)]

    @property
    def p(self) -> float:
        """See `mcnemar_p`."""
        return mcnemar_p(len(self.wins), len(self.losses))

    def _sides(self) -> tuple[list[PlateResult], list[PlateResult]]:
        return [a for a, _ in self.pairs], [b for _, b in self.pairs]


@dataclass(frozen=True)
class Comparison:
    """Two versions on the plates that both reports have."""

    plates: int  # how many those are
    metrics: tuple[MetricComparison, ...]  # one comparison per metric
    relabelled: int  # how many of them changed their label's text or legibility between
    only_in: tuple[int, int]  # plates that only the first, and only the second report has

    def lines(self) -> list[str]:
        """The report for a terminal: a table, then every plate that changed."""
        lines = [f"{'':<40} {'of':>5} {'first':>6} {'second':>6} {'wins':>5} {'losses':>6}       p"]
        for one in self.metrics:
            first, second = one.right
            lines.append(
                f"{one.metric.name:<40} {len(one.pairs):>5} {first:>6} {second:>6} "
                f"{len(one.wins):>5} {len(one.losses):>6} {one.p:>7.3f}"
            )
        changed = [one for one in self.metrics if one.wins or one.losses]
        if changed:
            lines += ["", "What changed: end to end, (held back), [from the labelled box]"]
        for one in changed:
            lines += ["", one.metric.name]
            for verb, pairs in (("won", one.wins), ("lost", one.losses)):
                lines += [_pair_line(verb, pair) for pair in pairs]
        if self.relabelled:
            lines += ["", f"Plates whose label changed between the two: {self.relabelled}"]
        if any(self.only_in):
            a, b = self.only_in
            lines += ["", f"Not compared: plates only in the first: {a}, only in the second: {b}"]
        return lines


def _pair_line(verb: str, pair: Pair) -> str:
    first, second = (_outcome(plate) for plate in pair)
    return f"  {verb:<5} {pair[1].photo:<40} {pair[1].text or '?':<10} {first}  ->  {second}"


def _outcome(plate: PlateResult) -> str:
    answers = ", ".join(answer.text or f"({answer.guess or '-'})" for answer in plate.answers)
    return f"{answers or '-'} [{plate.read_in_label or '-'}] IoU {plate.iou:.2f}"


def compare(first: list[PlateResult], second: list[PlateResult]) -> Comparison:
    """Compare two versions metric by metric.

    A plate is known by its photo and its labelled box, so that the two are compared even
    after a label's text was mended.
    """
    before, after = ({(p.photo, p.box): p for p in side} for side in (first, second))
    pairs = [(before[key], after[key]) for key in before if key in after]
    metrics = (
        MetricComparison(metric, tuple(p for p in pairs if all(map(metric.counts, p))))
        for metric in METRICS
    )
    relabelled = sum((a.text, a.legible) != (b.text, b.legible) for a, b in pairs)
    only_in = (len(before) - len(pairs), len(after) - len(pairs))
    return Comparison(len(pairs), tuple(metrics), relabelled, only_in)


def load_report(path: Path) -> KeptReport:
    """Read what ``plates eval --json`` kept of labelled photos.

    Raises:
        ReportError: The file can't be read, or is something else.
    """
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        plates = [PlateResult.from_dict(plate) for plate in kept["labelled"]["plates"]]
        engine = f"{kept['engine']} on {kept['device']}" if "engine" in kept else ""
        return KeptReport(str(kept["weights"]), engine, str(kept["date"]), plates)
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: can't be read: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(
            f"{path}: not a report of labelled photos by this version's `plates eval --json`: "
            f"{error!r}"
        ) from error
