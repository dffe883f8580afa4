"""What the tools that measure in this process share: the photo, the engines, the threads."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plates.benchmarks.machine import describe_machine
from plates.benchmarks.photos import standard_photo
from plates.cli import CommandError

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets


def add_photo(parser: argparse.ArgumentParser) -> None:
    """Declare --photo."""
    parser.add_argument(
        "--photo",
        type=Path,
        metavar="FILE",
        help="with at least one plate (default: the standard photo, rendered: 1920x1080, two "
        "plates)",
    )


def add_seconds(parser: argparse.ArgumentParser, default: float) -> None:
    """Declare --seconds."""
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        default=default,
        help=f"to measure for (default: {default:g})",
    )


def check_seconds(arguments: argparse.Namespace) -> None:
    """Raise CommandError unless there is time to measure."""
    if not arguments.seconds > 0:
        raise CommandError(f"--seconds: expected more than 0, got {arguments.seconds:g}")


def load_engines(names: Sequence[str]) -> "dict[str, Nets]":
    """Load the released weights onto engines; torch computes with as many threads as they do.

    Raises:
        CommandError: The weights are not there.
    """
    import torch

    from plate_models.cores import choose_threads
    from plates.cli.options import load_nets

    try:
        torch.set_num_threads(choose_threads())
    except ValueError as error:
        raise CommandError(str(error)) from error
    return {
        name: load_nets(argparse.Namespace(engine=name, device="cpu", weights=None))
        for name in names
    }


def read_photo(path: Path | None, nets: "Nets") -> bytes:
    """Take the photo to measure with.

    Args:
        path: Of --photo; None stands for the standard one.
        nets: Look whether there is a plate in it.

    Raises:
        CommandError: It can't be read, or there is no plate in it.
    """
    from plate_models.images import ImageError
    from plates.benchmarks.speed.stages import read_file

    try:
        file = path.read_bytes() if path else standard_photo()
        plates = read_file(file, nets)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    except ImageError as error:
        raise CommandError(f"{path}: {error}", status=2) from error
    if not plates:
        raise CommandError(f"{path}: expected a photo with at least one plate, found none")
    return file


def print_head(what: str) -> str:
    """Print what is measured, and where.

    Returns:
        The machine's description.
    """
    from plate_models.cores import choose_threads

    machine = f"{describe_machine()}, {choose_threads()} threads"
    print(f"{what}\n{machine}\n", flush=True)
    return machine
