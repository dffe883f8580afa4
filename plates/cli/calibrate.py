"""Calibrate the scores: fit them to what comes true, and measure them on other crops.

The crops are rendered. The report and its pictures go to --out; only --release puts the calibration
in force.
"""

import argparse
from pathlib import Path

from plates.cli import stop_signals_raise
from plates.cli.options import add_number, add_weights


def configure(parser: argparse.ArgumentParser) -> None:
    add_weights(parser)
    text = "write calibration.json and the manifest beside the weights"
    parser.add_argument("--release", action="store_true", help=text)
    add_number(parser, "--crops", 20_000, "to fit to, and as many again to measure with", least=5)
    add_number(parser, "--workers", 2, "processes", least=1)
    text = "accepted share of wrong texts among the readable ones of home's formats"
    add_number(parser, "--most-wrong", 0.005, text, most=1)
    add_number(parser, "--most-wrong-elsewhere", 0.09, "the same of all others", most=1)
    add_number(parser, "--seed", 577, "of all chance")
    text = "for the report (default: %(default)s)"
    parser.add_argument("--out", type=Path, metavar="DIR", default="runs/calibration", help=text)


def run(arguments: argparse.Namespace) -> None:
    from plate_models.release import CALIBRATION, check_manifest, write_manifest
    from plate_models.training.calibration import calibrate

    weights = arguments.weights
    names = ("crops", "workers", "most_wrong", "most_wrong_elsewhere", "seed")
    options = {name: getattr(arguments, name) for name in names}
    arguments.out.mkdir(parents=True, exist_ok=True)  # Not only after the work.
    check_manifest(weights)
    with stop_signals_raise():  # so that the temporary export is deleted
        print(*calibrate(weights, arguments.out, **options), sep="\n")
    print(f"\nreport and pictures: {arguments.out}")
    if arguments.release:
        (weights / CALIBRATION).write_bytes((arguments.out / CALIBRATION).read_bytes())
        print(f"in force: {weights / CALIBRATION}, {write_manifest(weights)}")
