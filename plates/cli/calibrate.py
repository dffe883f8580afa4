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
from plates.cli.options import add_data, add_weights

if TYPE_CHECKING:
    from plate_models.training.calibrating.run import Result
    from plate_models.training.calibrating.trials import Trial


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_data(parser, "holds world_photos/")
    parser.add_argument(
        "--crops",
        type=int,
        metavar="N",
        default=20_000,
        help="to fit to, and as many again to measure with (default: 20000)",
    )
    add_weights(parser)
    parser.add_argument(
        "--release",
        action="store_true",
        help="write calibration.json and the manifest beside the weights",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=Path("runs/calibration"),
        help="for the report (default: runs/calibration)",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", default=2, help="processes (default: 2)"
    )
    parser.add_argument(
        "--most-wrong",
        type=float,
        metavar="SHARE",
        default=0.005,
        help="of wrong texts accepted among the readable ones (default: 0.005)",
    )
    parser.add_argument("--seed", type=int, default=577, help="of all chance (default: 577)")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate and print what came out.

    Returns:
        0.

    Raises:
        CommandError: No data, too few crops, or no weights.
    """
    if arguments.data is None:
        raise CommandError("give --data DIR, or set PLATES_DATA")
    if arguments.workers < 1:
        raise CommandError(f"--workers: expected at least 1, got {arguments.workers}")
    from plate_models.training.calibrating.run import CalibrationRun, calibrate, save
    from plate_models.training.labels import LabelError
    from plate_models.weights import WEIGHTS_DIR, WeightsError, check_manifest, write_manifest

    weights = arguments.weights or WEIGHTS_DIR
    config = CalibrationRun(
        data=Path(arguments.data),
        weights=weights,
        folder=arguments.out,
        crops=arguments.crops,
        workers=arguments.workers,
        most_wrong=arguments.most_wrong,
        seed=arguments.seed,
    )
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

    return tqdm(trials, total=blocks, unit="block", desc=part, file=sys.stderr)


def _print(result: "Result") -> None:
    summary = result.summary
    rows = [
        *((f"{name}, cross-validated", q) for name, q in summary["cross_validation"].items()),
        ("measured, as read", summary["measured_uncalibrated"]),
        (f"measured, {summary['method']}", summary["measured"]),
    ]
    head = ("crops", "right", "ECE", "of doubtful", "Brier", "constant", "right at 95 %")
    print(f"{'':<30}" + "".join(f"{name:>14}" for name in head))
    for name, q in rows:
        values = (q[k] for k in ("ece", "ece_doubtful", "brier", "brier_constant"))
        numbers = "".join(f"{value:>14.5f}" for value in values)
        print(f"{name:<30}{q['crops']:>14}{q['right']:>14.2%}{numbers}{q['right_at_95']:>14.3%}")
    print(f"\nreadable from {result.calibration.readable_from:.4f}; other thresholds give:")
    for row in result.report["thresholds"]:
        print(
            f"  {row['accepted_wrong']:.2%} wrong accepted: from {row['readable_from']:.4f} "
            f"{row['readable']} readable, {row['readable_and_wrong']} of them wrong, "
            f"{row['right_but_not_readable']} right ones not readable"
        )
