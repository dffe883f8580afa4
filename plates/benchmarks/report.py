"""What every benchmark ends with: tables, floors that hold or are missed, JSON, a picture."""

import argparse
import json
import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import psutil

from plate_models.cores import usable_cores
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


def at_most(what: str, value: float, limit: float, unit: str = "") -> Verdict:
    """Judge a figure that has an upper limit."""
    return Verdict(what, f"{round(value, 2):g}{unit}", f"<= {limit:g}{unit}", value <= limit)


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


def panels(*tables: tuple[Any, dict[str, Any]]) -> Callable[[Any], None]:
    """Plan a picture for `write`: rows side by side, each with options of `DataFrame.plot`."""

    def plot(figure: Any) -> None:
        import pandas

        all_axes = figure.subplots(1, len(tables), squeeze=False)[0]
        for axes, (rows, options) in zip(all_axes, tables, strict=True):
            pandas.DataFrame(rows).plot(ax=axes, grid=True, **options)

    return plot


def write(
    arguments: argparse.Namespace, figures: dict[str, Any], plot: Callable[[Any], None]
) -> None:
    """Keep the figures in --json, if it is given, and have `plot` draw a figure for --plot."""
    from matplotlib.figure import Figure

    if arguments.json:
        write_json(arguments.json, figures)
    picture = Figure(figsize=(12, 4.6), layout="constrained")
    plot(picture)
    picture.suptitle(describe_machine(), fontsize=9)
    picture.savefig(arguments.plot, dpi=110)
    print(f"\nDrawn in {arguments.plot}")


def write_json(path: Path, figures: dict[str, Any]) -> None:
    """Write figures and the machine's description to a file."""
    document = {"machine": describe_machine(), **figures}
    text = json.dumps(document, indent=1, ensure_ascii=False, default=float)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error


def describe_machine() -> str:
    """Name processor, cores, memory, system and date in one line: a figure needs them."""
    named = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    processor, cores = named[1] if named else platform.machine(), usable_cores()
    return (
        f"{processor}, {cores} core{'s' * (cores != 1)}, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, {date.today().isoformat()}"
    )
