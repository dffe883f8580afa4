"""Compares two versions or two engines plate by plate: wins and losses of the second."""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from plate_models.training.evaluation.scoreboard import READ

# The JSON of `plates eval --json`: weights' hash, engine, device, date, and every plate by row.
Report = Mapping[str, Any]
Pair = tuple[Mapping[str, Any], Mapping[str, Any]]  # the same plate in both reports


class ReportError(Exception):
    """A file is not a report of `plates eval --json`; the message names the file."""

    exit_status = 2  # of the command


def title(report: Report) -> str:
    """What was evaluated, where and when; with the countries if they were selected."""
    about = "weights {weights}, engine {engine} on {device}, {date}".format_map(report)
    return about + (f", countries {report['countries']}" if report.get("countries") else "")


def compare(first: Report, second: Report) -> list[str]:
    """List the changes in the photos that both reports have; [] if they have none in common.

    The lines are a table of the verdicts, then every plate that changed. The table omits verdicts
    without a change, except that on the text end to end. Photo and labelled box identify a plate,
    so plates whose label's text was corrected are compared, too.
    """
    table, changed, notes, shared = {}, list[str](), list[str](), False
    for name in (name for name in first["rows"] if name in second["rows"]):
        rows = first["rows"][name], second["rows"][name]
        before, after = ({(p["photo"], *p["box"]): p for p in row["plates"]} for row in rows)
        pairs = [(before[key], after[key]) for key in before if key in after]
        shared = shared or bool(pairs) or not (before or after)
        for question in dict.fromkeys(key for pair in pairs for key in pair[1]["verdicts"]):
            kinds = defaultdict[tuple[Any, Any], list[Pair]](list)
            for pair in pairs:
                was, now = (plate["verdicts"].get(question) for plate in pair)
                kinds[was, now].append(pair)
            won, lost, both = kinds[False, True], kinds[True, False], len(kinds[True, True])
            total = len(won) + len(lost) + both + len(kinds[False, False])
            if not total or not (won or lost or question == READ):
                continue
            table[f"{name}: {question}"] = {
                "of": total,
                "first": both + len(lost),
                "second": both + len(won),
                "wins": len(won),
                "losses": len(lost),
                # McNemar's exact two-sided test (1947).
                "p": binomtest(len(won), len(won) + len(lost)).pvalue if won or lost else 1.0,
            }
            if won or lost:
                changed += ["", f"{name}: {question}", *(_line("won", pair) for pair in won)]
                changed += [_line("lost", pair) for pair in lost]
        was, now = (
            f"{len(row['elsewhere'])}, readable {sum(bool(a['text']) for a in row['elsewhere'])}"
            for row in rows
        )
        if was != now:
            notes.append(f"{name}: boxes on no label {was} -> {now}")
    if not table and not notes:
        return ["nothing changed"] if shared else []
    frame = pd.DataFrame.from_dict(table, orient="index").to_string(float_format="%.3f")
    heading = "Changes: text end to end, (candidate if unreadable), [candidate in labelled box]"
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


def load_report(path: Path) -> Report:
    """Read a report of ``plates eval --json``.

    Raises:
        ReportError: The file can't be read, or is no such report.
    """
    try:
        kept: Report = json.loads(path.read_text(encoding="utf-8"))
        kept["weights"], kept["engine"], kept["device"], kept["date"]
        for row in kept["rows"].values():
            for plate in row["plates"]:
                _line("", (plate, plate)), plate["box"], plate["verdicts"]
            [answer["text"] for answer in row["elsewhere"]]
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(
            f"{path}: not a report by this version's `plates eval --json`: {error!r}"
        ) from error
    return kept
