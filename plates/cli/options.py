"""Options that several commands share."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from plate_models.engines import ENGINES
from plate_models.release import WEIGHTS_DIR
from plates.cli import CommandError

if TYPE_CHECKING:
    from plate_models.engines.loaded import Nets


def add_number(
    parser: argparse.ArgumentParser,
    name: str,
    default: float | None,
    purpose: str,
    least: float = 0,
    most: float = math.inf,
) -> None:
    """Declare an option: a number of the default's type (None: int), from `least` to `most`."""
    kind = float if isinstance(default, float) else int

    def parse(text: str) -> float:
        value = kind(text)
        if not least <= value <= most:
            bounds = "or more" if math.isinf(most) else f"to {most:g}"
            raise CommandError(f"{name}: expected {least:g} {bounds}, got {text}", status=2)
        return value

    parse.__name__ = kind.__name__  # argparse's message shows it
    text = purpose if default is None else f"{purpose} (default: {default})"
    parser.add_argument(name, type=parse, default=default, metavar="N", help=text)


def add_weights(parser: argparse.ArgumentParser) -> None:
    text = "folder of the weights (default: the released ones)"
    parser.add_argument("--weights", type=Path, metavar="DIR", default=WEIGHTS_DIR, help=text)


def add_nets(parser: argparse.ArgumentParser) -> None:
    """Declare --weights, --engine, --device and --countries, for `load_nets`."""
    add_weights(parser)
    text = (
        "what runs the nets: the service's engine for a CPU, or float32 in torch "
        "(default: served for the released weights on the CPU, else torch)"
    )
    parser.add_argument("--engine", choices=ENGINES, help=text)
    text = "cpu, or a GPU such as cuda:0 (default: cpu)"
    parser.add_argument("--device", default="cpu", help=text)
    text = "countries whose formats are known, the likeliest first (default: those of the weights)"
    parser.add_argument("--countries", metavar="NAME[,NAME]", type=_countries, help=text)


def _countries(text: str) -> tuple[str, ...]:
    from plate_models.formats import checked_countries

    try:
        return checked_countries(text.split(","))
    except ValueError as error:
        raise CommandError(f"--countries: {error}", status=2) from error


def default_engine(arguments: argparse.Namespace) -> str:
    """The engine without --engine: it depends on --weights and --device."""
    released = arguments.weights.resolve() == WEIGHTS_DIR
    return "served" if released and arguments.device == "cpu" else "torch"


def load_nets(arguments: argparse.Namespace) -> "Nets":
    """Load the nets that --weights, --engine, --device and --countries select."""
    from plate_models.engines import nets

    engine = arguments.engine or default_engine(arguments)
    try:
        loaded = nets.load_nets(engine, arguments.device, arguments.weights)
    except OSError as error:  # a read-only installation
        if engine == "torch":
            raise
        raise CommandError(f"the nets can't be exported: {error}; try --engine torch") from error
    return loaded.with_countries(arguments.countries)
