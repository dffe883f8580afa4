"""Compare two versions plate by plate: what the second wins, what it loses, and how sure.

FIRST and SECOND were written by `plates eval --json` on the same photos, by two versions or two
engines. p is that of McNemar's exact test: how likely wins and losses would differ this much by
chance alone.
"""

import argparse
from pathlib import Path

from plates.cli import CommandError, printable


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", type=Path, metavar="FIRST.json")
    parser.add_argument("second", type=Path, metavar="SECOND.json")


def run(arguments: argparse.Namespace) -> None:
    from plate_models.training.evaluation.comparison import ReportError, compare, load_report

    try:
        first, second = load_report(arguments.first), load_report(arguments.second)
    except ReportError as error:
        raise CommandError(printable(error), status=2) from error
    lines = compare(first, second)
    if not lines:
        raise CommandError("the two reports have no photos in common")
    for name, report in (("first", first), ("second", second)):
        about = "weights {weights}, engine {engine} on {device}, {date}".format_map(report)
        print(f"{name:<6} {about}")
    print("", *map(printable, lines), sep="\n")
