"""Options that several commands have alike."""

import argparse
import os
from pathlib import Path


def add_data(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare --data.

    Args:
        parser: Of the command.
        what: What the folder holds, for the help.
    """
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=os.environ.get("PLATES_DATA"),
        help=f"{what} (default: PLATES_DATA)",
    )


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Declare --weights; None stands for the released ones."""
    parser.add_argument("--weights", type=Path, metavar="DIR", help="default: the released ones")
