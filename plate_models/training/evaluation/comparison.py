"""Two versions or two engines, plate by plate: what the second wins and what it loses."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plate_models.training.evaluation.results import METRICS
from plate_models.training.figures import mcnemar_p

# A plate as `PlateResult.to_dict` wrote it.
KeptPlate = Mapping[str, Any]
Pair = tuple[KeptPlate, KeptPlate]


class ReportError(Exception):
    """A file is not a kept report of photos with known plates; the message names it."""


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
class Comparison:
    """The plates that both reports have."""

    pairs: list[Pair]
    only_in: tuple[int, int]  # plates that only the first, and only the second report has

    def outcomes(self, metric: str) -> dict[tuple[bool, bool], list[Pair]]:
        """The plates that a metric asks about, by whether first and second are right."""
        found: dict[tuple[bool, bool], list[Pair]] = {}
        for pair in self.pairs:
            first, second = (plate["verdicts"].get(metric) for plate in pair)
            if first is not None and second is not None:
                found.setdefault((first, second), []).append(pair)
        return found

    def lines(self) -> list[str]:
        """The report for a terminal: a table, then every plate that changed."""
        lines = [f"{'':<40} {'of':>5} {'first':>6} {'second':>6} {'wins':>5} {'losses':>6}       p"]
        changed = []
        for metric in METRICS:
            found = self.outcomes(metric.name)
            won, lost = found.get((False, True), []), found.get((True, False), [])
            both, total = len(found.get((True, True), [])), sum(map(len, found.values()))
            lines.append(
                f"{metric.name:<40} {total:>5} {both + len(lost):>6} {both + len(won):>6} "
                f"{len(won):>5} {len(lost):>6} {mcnemar_p(len(won), len(lost)):>7.3f}"
            )
            changed += ["", metric.name] if won or lost else []
            changed += [_line("won", pair) for pair in won] + [_line("lost", pair) for pair in lost]
        if changed:
            heading = "What changed: end to end, (held back), [from the labelled box]"
            lines += ["", heading, *changed]
        relabelled = sum(any(a[k] != b[k] for k in ("text", "legible")) for a, b in self.pairs)
        if relabelled:
            lines += ["", f"Plates whose label changed between the two: {relabelled}"]
        if any(self.only_in):
            a, b = self.only_in
            lines += ["", f"Not compared: plates only in the first: {a}, only in the second: {b}"]
        return lines


def _line(verb: str, pair: Pair) -> str:
    shown = []
    for plate in pair:
        texts = (a["text"] or f"({a['guess'] or '-'})" for a in plate["answers"])
        iou = max((answer["iou"] for answer in plate["answers"]), default=0.0)
        in_label = plate["in_label"]["guess"] or "-"
        shown.append(f"{', '.join(texts) or '-'} [{in_label}] IoU {iou:.2f}")
    plate = pair[1]
    return f"  {verb:<5} {plate['photo']:<40} {plate['text'] or '?':<10} {'  ->  '.join(shown)}"


def compare(first: Sequence[KeptPlate], second: Sequence[KeptPlate]) -> Comparison:
    """Compare two versions metric by metric.

    A plate is known by its photo and its labelled box, so that the two are compared even
    after a label's text was mended.
    """
    before, after = ({(p["photo"], *p["box"]): p for p in side} for side in (first, second))
    pairs = [(before[key], after[key]) for key in before if key in after]
    return Comparison(pairs, (len(before) - len(pairs), len(after) - len(pairs)))


def load_report(path: Path) -> KeptReport:
    """Read what ``plates eval --json`` kept of labelled and of rendered photos.

    Raises:
        ReportError: The file can't be read, or is something else.
    """
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        parts = [kept[part] for part in ("labelled", "rendered") if part in kept]
        plates = [plate for part in parts or [kept["labelled"]] for plate in part["plates"]]
        for plate in plates:
            _line("", (plate, plate)), plate["box"], plate["legible"], plate["verdicts"]
        engine = f"{kept['engine']} on {kept['device']}" if "engine" in kept else ""
        return KeptReport(str(kept["weights"]), engine, str(kept["date"]), plates)
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: can't be read: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(
            f"{path}: not a report of labelled or rendered photos by this version's "
            f"`plates eval --json`: {error!r}"
        ) from error
