"""Score the weights on labelled photos: counts, rates and 95 % intervals.

DIR holds ru_photos/ (images/ and plates.csv) and, for false plates, no_plates/. All
figures are taken at the one operating point of plate_models/spec.py.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.commands import CommandError

if TYPE_CHECKING:
    from plate_models.evaluation import Scoreboard


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=os.environ.get("PLATES_DATA"),
        help="labelled photos (default: PLATES_DATA)",
    )
    parser.add_argument("--weights", type=Path, metavar="DIR", help="default: the released ones")
    parser.add_argument(
        "--baseline", type=Path, metavar="DIR", help="also score the published recognizer in DIR"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write everything, plate by plate, as JSON"
    )
    parser.add_argument("--misses", action="store_true", help="list the plates not read")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: all cores)")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate and print.

    Returns:
        0.

    Raises:
        CommandError: No data, no weights, or (status 2) a photo that can't be decoded.
    """
    if arguments.data is None:
        raise CommandError("give --data DIR, or set PLATES_DATA")
    board = _score(arguments)
    _print_table(board)
    if arguments.json:
        text = json.dumps(board.to_dict(), ensure_ascii=False, indent=1)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    if arguments.misses:
        _print_misses(board)
    return 0


def _score(arguments: argparse.Namespace) -> "Scoreboard":
    """Evaluate under a progress bar; errors as in `run`."""
    import torch
    from tqdm import tqdm

    from plate_models.evaluation import evaluate
    from plate_models.images import ImageError
    from plate_models.weights import WEIGHTS_DIR, WeightsError, load_modules

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    current = Path()

    def progress(photos: list[Any]) -> Iterator[Any]:
        nonlocal current
        for photo in tqdm(photos, unit="photo", file=sys.stderr):
            current = photo.path
            yield photo

    try:
        modules = load_modules(arguments.weights or WEIGHTS_DIR)
        return evaluate(Path(arguments.data), modules, arguments.baseline, progress)
    except (FileNotFoundError, WeightsError) as error:
        raise CommandError(str(error)) from error
    except ImageError as error:
        raise CommandError(f"{current}: {error}", status=2) from error


def _print_table(board: "Scoreboard") -> None:
    print(f"{'':<44} {'count':>11} {'rate':>7}   95 % interval")
    for count in board.counts():
        of = f"{count.hits} of {count.total}"
        if count.rate is None or count.interval_95 is None:
            print(f"{count.name:<44} {of:>11}   nothing to count")
            continue
        low, high = count.interval_95
        print(f"{count.name:<44} {of:>11} {count.rate:>7.1%}   {low:.1%} to {high:.1%}")


def _print_misses(board: "Scoreboard") -> None:
    print("\nNot read end to end (label, answers on the plate, reading in the labelled box):")
    for plate in board.legible:
        if not plate.read:
            answers = ", ".join(text or "?" for text in plate.read_end_to_end) or "not found"
            print(f"  {plate.photo:<40} {plate.text:<10} {answers:<12} {plate.read_in_label}")
    for photo, text in board.false_texts:
        print(f"  {photo:<40} {'no plate':<10} {text}")
