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
    from plate_models.training.calibration import Trial


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
    from plate_models.training.calibration import CalibrationRun, calibrate, save
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
    print(*result.lines(), sep="\n")
    print(f"\nreport and pictures: {arguments.out}")
    if arguments.release:
        print(f"in force: {save(result, weights)}, {write_manifest(weights)}")
    return 0


def _progress(trials: Iterable[list["Trial"]], part: str, blocks: int) -> Iterable[list["Trial"]]:
    from tqdm import tqdm

    return tqdm(trials, total=blocks, unit="block", desc=part, file=sys.stderr)
