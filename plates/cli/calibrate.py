"""Calibrate the scores: fit them to what comes true, and measure them on other crops.

Half of the crops are rendered, half are plates painted into world_photos/ of DIR: into the
detector's training photos to fit, into its validation photos to measure. The report and its
pictures go to --out; only --release puts the calibration in force.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from plates.cli import CommandError
from plates.cli.options import RELEASED_WEIGHTS, add_data, add_number, add_weights

if TYPE_CHECKING:
    from plate_models.training.calibrating.run import Result
    from plate_models.training.calibrating.trials import Trial

# Heading: the measure's name in the report, and its format.
_COLUMNS = {
    "crops": ("crops", ""),
    "right": ("right", ".2%"),
    "ECE": ("ece", ".5f"),
    "of doubtful": ("ece_doubtful", ".5f"),
    "Brier": ("brier", ".5f"),
    "constant": ("brier_constant", ".5f"),
    "right at 95 %": ("right_at_95", ".3%"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_data(parser, "holds world_photos/")
    add_weights(parser)
    text = "write calibration.json and the manifest beside the weights"
    parser.add_argument("--release", action="store_true", help=text)
    add_number(parser, "--crops", 20_000, "to fit to, and as many again to measure with", least=1)
    add_number(parser, "--workers", 2, "processes", least=1)
    text = "accepted share of wrong texts among the readable ones"
    add_number(parser, "--most-wrong", 0.005, text, most=1)
    add_number(parser, "--seed", 577, "of all chance")
    out = Path("runs/calibration")
    text = f"for the report (default: {out})"
    parser.add_argument("--out", type=Path, metavar="DIR", default=out, help=text)


def run(arguments: argparse.Namespace) -> int:
    """Calibrate and print what came out."""
    if arguments.data is None:
        raise CommandError("give --data DIR, or set PLATES_DATA")
    from plate_models.training.calibrating.run import CalibrationRun, calibrate, save

    from plate_models.training.labels import LabelError
    from plate_models.weights import WeightsError, check_manifest, write_manifest

    weights = arguments.weights or RELEASED_WEIGHTS
    options = {
        name: getattr(arguments, name) for name in ("crops", "workers", "most_wrong", "seed")
    }
    config = CalibrationRun(Path(arguments.data), weights, arguments.out, **options)
    arguments.out.mkdir(parents=True, exist_ok=True)  # Not only after the work.
    try:
        check_manifest(weights)
        result = calibrate(config, _progress)
    except (FileNotFoundError, LabelError, ValueError, WeightsError) as error:
        raise CommandError(str(error)) from error
    _print(result)
    print(f"\nreport and pictures: {arguments.out}")
    if arguments.release:
        print(f"in force: {save(result, weights)}, {write_manifest(weights)}")
    return 0


def _progress(trials: Iterable[list["Trial"]], part: str, blocks: int) -> Iterable[list["Trial"]]:
    from tqdm import tqdm

    return tqdm(trials, total=blocks, unit="block", desc=part, file=sys.stderr, disable=None)


def _print(result: "Result") -> None:
    summary = result.summary
    rows = {f"{name}, cross-validated": row for name, row in summary["cross_validation"].items()}
    rows["measured, as read"] = summary["measured_uncalibrated"]
    rows[f"measured, {summary['method']}"] = summary["measured"]
    print(f"{'':<30}" + "".join(f"{head:>14}" for head in _COLUMNS))
    for name, row in rows.items():
        values = (f"{row[key]:>14{form}}" for key, form in _COLUMNS.values())
        print(f"{name:<30}" + "".join(values))
    print(f"\nreadable from {result.calibration.readable_from:.4f}; other thresholds give:")
    for row in result.report["thresholds"]:
        print(
            "  {accepted_wrong:.2%} wrong accepted: from {readable_from:.4f} {readable} readable, "
            "{readable_and_wrong} of them wrong, "
            "{right_but_not_readable} right ones not readable".format_map(row)
        )
