"""Two versions or two engines, plate by plate: what the second wins and what it loses."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plate_models.training.evaluation.results import METRICS, READ
from plate_models.training.figures import mcnemar_p

# A row of the table and a plate as `Scoreboard.to_dict` and `PlateResult.to_dict` wrote them.
KeptRow = Mapping[str, Any]
KeptPlate = Mapping[str, Any]
Pair = tuple[KeptPlate, KeptPlate]


class ReportError(Exception):
    """A file is not a kept report of photos with known plates; the message names it."""


@dataclass(frozen=True)
class KeptReport:
    """What `plates eval --json` kept: the weights' hash, the engine, the date, every plate."""

    weights: str
    engine: str
    date: str
    rows: Mapping[str, KeptRow]


def pairs_of(first: KeptRow, second: KeptRow) -> list[Pair]:
    """The plates that both have.

    A plate is known by its photo and its labelled box, so that the two are compared even
    after a label's text was mended.
    """
    before, after = ({(p["photo"], *p["box"]): p for p in row["plates"]} for row in (first, second))
    return [(before[key], after[key]) for key in before if key in after]


def compare(first: KeptReport, second: KeptReport) -> list[str]:
    """What changed in the rows that both reports have, for a terminal; empty if there are none.

    A table of the metrics, then every plate that changed. Metrics other than the text end to end
    are left out where nothing did.
    """
    lines, changed, boxes = [], list[str](), list[str]()
    relabelled, single = 0, 0
    for name in (name for name in first.rows if name in second.rows):
        rows = first.rows[name], second.rows[name]
        pairs = pairs_of(*rows)
        single += sum(len(row["plates"]) - len(pairs) for row in rows)
        relabelled += sum(any(a[k] != b[k] for k in ("text", "legible")) for a, b in pairs)
        for metric in METRICS:
            found: dict[tuple[bool, bool], list[Pair]] = {}
            for pair in pairs:
                was, now = (plate["verdicts"].get(metric.name) for plate in pair)
                if was is not None and now is not None:
                    found.setdefault((was, now), []).append(pair)
            won, lost = found.get((False, True), []), found.get((True, False), [])
            both, total = len(found.get((True, True), [])), sum(map(len, found.values()))
            if not total or not (won or lost or metric.name == READ):
                continue
            what = f"{name}: {metric.name}"
            lines.append(
                f"{what:<60} {total:>5} {both + len(lost):>6} {both + len(won):>6} "
                f"{len(won):>5} {len(lost):>6} {mcnemar_p(len(won), len(lost)):>7.3f}"
            )
            changed += ["", what] if won or lost else []
            changed += [_line("won", pair) for pair in won] + [_line("lost", pair) for pair in lost]
        (a, b), (c, d) = (
            (len(row["elsewhere"]), sum(bool(one["text"]) for one in row["elsewhere"]))
            for row in rows
        )
        if (a, b) != (c, d):
            boxes.append(f"{name}: boxes on no label {a} -> {c}, readable ones {b} -> {d}")
    if not lines and not boxes:
        return []
    lines.insert(
        0, f"{'':<60} {'of':>5} {'first':>6} {'second':>6} {'wins':>5} {'losses':>6}       p"
    )
    if changed:
        heading = "What changed: end to end, (held back), [from the labelled box]"
        lines += ["", heading, *changed]
    lines += ["", *boxes] if boxes else []
    if relabelled:
        lines += ["", f"Plates whose label changed between the two: {relabelled}"]
    if single:
        lines += ["", f"Plates of these rows that only one of the two has: {single}"]
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


def load_report(path: Path) -> KeptReport:
    """Read what ``plates eval --json`` kept.

    Raises:
        ReportError: The file can't be read, or is something else.
    """
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        for row in kept["rows"].values():
            for plate in row["plates"]:
                _line("", (plate, plate)), plate["box"], plate["legible"], plate["verdicts"]
            [answer["text"] for answer in row["elsewhere"]]
        engine = f"{kept['engine']} on {kept['device']}"
        return KeptReport(str(kept["weights"]), engine, str(kept["date"]), kept["rows"])
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: can't be read: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(
            f"{path}: not a report by this version's `plates eval --json`: {error!r}"
        ) from error
