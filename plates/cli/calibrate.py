"""Calibrate the scores: fit them to what comes true, and measure them on other crops.

Half of the crops are rendered, half are plates painted into world_photos/ of DIR: into the
detector's training photos to fit, into its validation photos to measure. The report and its
pictures go to --out; only --release puts the calibration in force.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from plates.cli import CommandError, printable
from plates.cli.options import RELEASED_WEIGHTS, add_data, add_number, add_weights

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
    from plate_models.calibrating.run import CalibrationRun, calibrate, save
    from plate_models.labels import LabelError
    from plate_models.weights import check_manifest, write_manifest

    weights = arguments.weights or RELEASED_WEIGHTS
    options = {
        name: getattr(arguments, name) for name in ("crops", "workers", "most_wrong", "seed")
    }
    config = CalibrationRun(arguments.data, weights, arguments.out, **options)
    arguments.out.mkdir(parents=True, exist_ok=True)  # Not only after the work.
    check_manifest(weights)
    try:
        result = calibrate(config, _progress)
    except (LabelError, ValueError) as error:
        raise CommandError(printable(error)) from error
    _print(result.report)
    print(f"\nreport and pictures: {arguments.out}")
    if arguments.release:
        print(f"in force: {save(result, weights)}, {write_manifest(weights)}")
    return 0


def _progress(trials: Iterable[Any], part: str, blocks: int) -> Iterable[Any]:
    return tqdm(trials, total=blocks, unit="block", desc=part, disable=None)


def _print(report: dict[str, Any]) -> None:
    rows = {f"{name}, cross-validated": row for name, row in report["cross_validation"].items()}
    rows["measured, as read"] = report["measured_uncalibrated"]
    rows[f"measured, {report['method']}"] = report["measured"]
    print(f"{'':<30}" + "".join(f"{head:>14}" for head in _COLUMNS))
    for name, row in rows.items():
        values = (f"{row[key]:>14{form}}" for key, form in _COLUMNS.values())
        print(f"{name:<30}" + "".join(values))
    print(f"\nreadable from {report['readable_from']:.4f}; other thresholds give:")
    for row in report["thresholds"]:
        print(
            "  {accepted_wrong:.2%} wrong accepted: from {readable_from:.4f} {readable} readable, "
            "{readable_and_wrong} of them wrong, "
            "{right_but_not_readable} right ones not readable".format_map(row)
        )
