"""What every benchmark ends with: tables, floors that hold or don't, JSON."""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plates.cli import CommandError


@dataclass(frozen=True)
class Verdict:
    """Whether a floor holds.

    Attributes:
        what: What was measured.
        came: What came out, with its unit.
        floor: What it had to be.
        holds: Whether it does.
    """

    what: str
    came: str
    floor: str
    holds: bool

    def __str__(self) -> str:
        word = "holds " if self.holds else "MISSED"
        return f"{word}  {self.what}: {self.came} (floor: {self.floor})"


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns, each as wide as it must be, aligned to the right."""
    lines = [tuple(headings), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip(), flush=True)


def print_verdicts(verdicts: Iterable[Verdict]) -> int:
    """Print one line per floor.

    Returns:
        The exit status: 1 if a floor is missed, else 0.
    """
    verdicts = list(verdicts)
    print()
    for verdict in verdicts:
        print(verdict, flush=True)
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def milliseconds(seconds: float | None) -> str:
    """Write a time for a table; a dash where there is none."""
    return "-" if seconds is None else f"{seconds * 1000:.0f}"


def add_outputs(parser: argparse.ArgumentParser, name: str) -> None:
    """Declare --json and --plot.

    Args:
        parser: Of the tool.
        name: Of the tool, for the picture's default.
    """
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all figures as JSON")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE.png",
        default=Path("build/bench") / f"{name}.png",
        help=f"where the picture goes (default: build/bench/{name}.png)",
    )


def make_folders(arguments: argparse.Namespace) -> None:
    """Make room for what will be written, before minutes are spent on measuring it.

    Raises:
        CommandError: A folder can't be made.
    """
    for path in filter(None, (arguments.json, arguments.plot)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"{path.parent}: {error.strerror}") from error


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write figures to be read by others."""
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def figure(width: float, height: float) -> Any:
    """Make an empty matplotlib figure that needs no display.

    Args:
        width: In inches.
        height: In inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(drawn)
    return drawn
