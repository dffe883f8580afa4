"""Calibrate the scores: fit them to the share of right texts, and measure them on other crops.

The crops are rendered. The report and its plots go to --out; only --release puts the calibration
into use.
"""

import argparse
from pathlib import Path

from plates.cli import stop_signals_raise
from plates.cli.options import add_number, add_weights


def configure(parser: argparse.ArgumentParser) -> None:
    add_weights(parser)
    text = "write calibration.json and the manifest into the weights' folder"
    parser.add_argument("--release", action="store_true", help=text)
    add_number(parser, "--crops", 20_000, "crops to fit to; as many more to measure with", least=5)
    add_number(parser, "--workers", 2, "number of processes", least=1)
    text = "accepted share of wrong texts among readable ones in formats of the home country"
    add_number(parser, "--most-wrong", 0.005, text, most=1)
    add_number(parser, "--most-wrong-elsewhere", 0.09, "the same for all other formats", most=1)
    add_number(parser, "--seed", 577, "seed of the random numbers")
    text = "folder of the report (default: %(default)s)"
    parser.add_argument("--out", type=Path, metavar="DIR", default="runs/calibration", help=text)


def run(arguments: argparse.Namespace) -> None:
    from plate_models.release import CALIBRATION, check_manifest, replace_file, write_manifest
    from plate_models.training.calibration import calibrate

    weights = arguments.weights
    names = ("crops", "workers", "most_wrong", "most_wrong_elsewhere", "seed")
    options = {name: getattr(arguments, name) for name in names}
    arguments.out.mkdir(parents=True, exist_ok=True)  # A bad path must fail before the work.
    check_manifest(weights)
    with stop_signals_raise():  # so that the temporary export is deleted
        print(*calibrate(weights, arguments.out, **options), sep="\n")
    print(f"\nreport and pictures: {arguments.out}")
    if arguments.release:
        released = replace_file(weights / CALIBRATION, (arguments.out / CALIBRATION).read_bytes())
        print(f"in force: {released}, {write_manifest(weights)}")
