"""Compare two evaluations: the plates that the second one wins and loses, and the p-value.

FIRST and SECOND are files of `plates eval --json` on the same photos, by two versions or two
engines. p is the p-value of McNemar's exact test: the probability that wins and losses differ at
least this much by chance alone.
"""

import argparse
from pathlib import Path

from plates.cli import CommandError, printable


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", type=Path, metavar="FIRST.json")
    parser.add_argument("second", type=Path, metavar="SECOND.json")


def run(arguments: argparse.Namespace) -> None:
    from plate_models.training.evaluation.comparison import compare, load_report, title

    first, second = load_report(arguments.first), load_report(arguments.second)
    lines = compare(first, second)
    if not lines:
        raise CommandError("the two reports have no photos in common")
    for name, report in (("first", first), ("second", second)):
        print(f"{name:<6} {title(report)}")
    print("", *map(printable, lines), sep="\n")
