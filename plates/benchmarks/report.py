"""What every benchmark ends with: tables, floors that hold or are missed, JSON, a picture."""

import argparse
import json
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from plates.cli import CommandError


@dataclass(frozen=True)
class Verdict:
    """Whether a floor holds: what was measured, its value, and what it had to be."""

    what: str
    came: str
    floor: str
    holds: bool

    def __str__(self) -> str:
        word = "holds " if self.holds else "MISSED"
        return f"{word}  {self.what}: {self.came} (floor: {self.floor})"


def add_number(
    parser: argparse.ArgumentParser, name: str, default: float, purpose: str, least: float = 0.01
) -> None:
    """Declare an option that takes a number of the default's type."""

    def number(text: str) -> float:
        value = type(default)(text)
        if not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"expected {least:g} or more, got {text}")
        return value

    purpose = f"{purpose} (default: {default:g})"
    parser.add_argument(name, type=number, metavar="N", default=default, help=purpose)


def add_outputs(parser: argparse.ArgumentParser, name: str) -> None:
    """Declare --json and --plot, whose default is named after the tool."""
    plot = Path("build/bench") / f"{name}.png"
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all figures as JSON")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", default=plot, help=f"the picture (default: {plot})"
    )


def make_folders(arguments: argparse.Namespace) -> None:
    """Make the folders of --json and --plot before minutes are spent on measuring."""
    for path in filter(None, (arguments.json, arguments.plot)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"{path.parent}: {error.strerror}") from error


def print_table(rows: Any) -> None:
    """Print rows, a pandas table or dictionaries, as aligned columns."""
    import pandas

    table = pandas.DataFrame(rows)
    print(table.to_string(index=False, na_rep="-", float_format="{:.4g}".format), flush=True)


def print_verdicts(verdicts: Iterable[Verdict]) -> int:
    """Print a line for each floor; the exit status is 1 if one is missed, else 0."""
    verdicts = list(verdicts)
    print("", *verdicts, sep="\n", flush=True)
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def write(
    arguments: argparse.Namespace, figures: dict[str, Any], plot: Callable[[Any], None]
) -> None:
    """Keep the figures in --json, if it is given, and have them drawn into --plot.

    Args:
        arguments: Those of `add_outputs`.
        figures: What was measured; the machine is added.
        plot: Draws into a matplotlib figure.
    """
    from matplotlib.figure import Figure

    if arguments.json:
        document = {"machine": describe_machine(), **figures}
        text = json.dumps(document, indent=1, ensure_ascii=False, default=float)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    picture = Figure(figsize=(12, 4.6), layout="constrained")
    plot(picture)
    picture.suptitle(describe_machine(), fontsize=9)
    picture.savefig(arguments.plot, dpi=110)
    print(f"\nDrawn in {arguments.plot}")


def describe_machine() -> str:
    """Name processor, cores, memory, system and date in one line: a figure needs them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"{names[0] if names else platform.machine()}, {cores} core{'s' * (cores != 1)}, "
        f"{memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {date.today().isoformat()}"
    )
