"""Two versions or two engines, plate by plate: what the second wins and what it loses."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from plate_models.training.evaluation.scoreboard import METRICS, READ

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
    table, changed, notes, relabelled, single = {}, list[str](), list[str](), 0, 0
    for name in (name for name in first.rows if name in second.rows):
        rows = first.rows[name], second.rows[name]
        pairs = pairs_of(*rows)
        single += sum(len(row["plates"]) - len(pairs) for row in rows)
        relabelled += sum(any(a[k] != b[k] for k in ("text", "legible")) for a, b in pairs)
        for metric in METRICS:
            verdicts = [tuple(plate["verdicts"].get(metric.name) for plate in p) for p in pairs]
            asked = [verdict for verdict in verdicts if None not in verdict]
            wins, losses = asked.count((False, True)), asked.count((True, False))
            if not asked or not (wins or losses or metric.name == READ):
                continue
            table[f"{name}: {metric.name}"] = {
                "of": len(asked),
                "first": asked.count((True, True)) + losses,
                "second": asked.count((True, True)) + wins,
                "wins": wins,
                "losses": losses,
                # The exact two-sided test of McNemar 1947.
                "p": float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0,
            }
            changed += ["", f"{name}: {metric.name}"] if wins or losses else []
            for verb, change in (("won", (False, True)), ("lost", (True, False))):
                found = zip(pairs, verdicts, strict=True)
                changed += [_line(verb, pair) for pair, verdict in found if verdict == change]
        was, now = (
            f"{len(row['elsewhere'])}, readable {sum(bool(a['text']) for a in row['elsewhere'])}"
            for row in rows
        )
        if was != now:
            notes.append(f"{name}: boxes on no label {was} -> {now}")
    if not table and not notes:
        return []
    if relabelled:
        notes.append(f"Plates whose label changed between the two: {relabelled}")
    if single:
        notes.append(f"Plates of these rows that only one of the two has: {single}")
    frame = pd.DataFrame.from_dict(table, orient="index").to_string(float_format="%.3f")
    heading = "What changed: end to end, (held back), [from the labelled box]"
    return [*frame.splitlines(), *(["", heading, *changed] if changed else ()), "", *notes]


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
