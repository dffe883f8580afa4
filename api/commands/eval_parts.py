"""The parts of `plates eval`: each scores one thing and hands back its report."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from plate_models.evaluation.labelled import Progress
    from plate_models.evaluation.rendered import RenderedReport
    from plate_models.evaluation.scoreboard import Scoreboard
    from plate_models.weights import Modules


class Report(Protocol):
    """What each part hands back."""

    def lines(self) -> list[str]:
        """The report for a terminal."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        ...


@dataclass(frozen=True)
class Context:
    """What each part is given.

    Attributes:
        arguments: Of the command line.
        modules: The nets.
        progress: Wraps a list of photos, for a progress bar.
        head: Hash of the weights and date, as they stand above every report.
    """

    arguments: argparse.Namespace
    modules: "Modules"
    progress: "Progress"
    head: dict[str, str]

    @property
    def data(self) -> Path:
        """Folder of the photos."""
        return Path(self.arguments.data)

    @property
    def about(self) -> str:
        """What a sheet says about its origin."""
        return f"weights {self.head['weights']}, {self.head['date']}"


@dataclass(frozen=True)
class WithFailures:
    """A report that also lists every failure."""

    board: "Scoreboard | RenderedReport"

    def lines(self) -> list[str]:
        """The report, and the failures after it."""
        return [*self.board.lines(), "", *self.board.failure_lines()]

    def to_dict(self) -> dict[str, Any]:
        """The report's own values."""
        return self.board.to_dict()


def labelled(context: Context) -> Report:
    """Labelled photos, and photos without plates."""
    from plate_models.evaluation.failure_sheet import failure_sheet
    from plate_models.evaluation.labelled import evaluate, labelled_folder
    from plate_models.evaluation.sheet import photos_in

    arguments = context.arguments
    board = evaluate(context.data, context.modules, arguments.baseline, context.progress)
    if arguments.sheet:
        load = photos_in(labelled_folder(context.data) / "images")
        failure_sheet(board, load, [context.about]).save(arguments.sheet)
    return WithFailures(board) if arguments.misses else board


def world(context: Context) -> Report:
    """Photos of other countries."""
    from plate_models.evaluation.sheet import photos_in
    from plate_models.evaluation.world import FOLDER, evaluate_world
    from plate_models.evaluation.world_sheet import world_sheet

    report = evaluate_world(context.data, context.modules, context.progress)
    sheet: Path | None = context.arguments.sheet
    if sheet:
        load = photos_in(context.data / FOLDER / "images")
        picture = world_sheet(report, load, [context.about])
        picture.save(sheet.with_stem(f"{sheet.stem}-world"))
    return report


def speed(context: Context) -> Report:
    """Our pipeline against the published one's shape."""
    from plate_models.evaluation.speed import measure_speed

    arguments = context.arguments
    return measure_speed(
        context.data, context.modules, arguments.baseline, arguments.photos, context.progress
    )


def rendered(context: Context) -> Report:
    """The rendered benchmark."""
    from tqdm import tqdm

    from plate_models.evaluation.failure_sheet import failure_sheet
    from plate_models.evaluation.rendered import evaluate_rendered, load_rendered

    arguments = context.arguments
    report = evaluate_rendered(
        context.modules,
        arguments.per_type,
        arguments.workers,
        progress=lambda photos, total: tqdm(photos, total=total, unit="photo", file=sys.stderr),
    )
    sheet: Path | None = arguments.sheet
    if sheet:
        picture = failure_sheet(report.board, load_rendered, [context.about])
        picture.save(sheet.with_stem(f"{sheet.stem}-rendered"))
    return WithFailures(report) if arguments.misses else report


@dataclass(frozen=True)
class Part:
    """One part of the evaluation.

    Attributes:
        score: Does it.
        purpose: For the command's help.
        needs_data: Whether it scores photos of --data.
    """

    score: Callable[[Context], Report]
    purpose: str
    needs_data: bool = True


PARTS = {
    "labelled": Part(labelled, "labelled photos; the default"),
    "world": Part(world, "readable texts on photos of other countries"),
    "speed": Part(speed, "milliseconds per photo"),
    "rendered": Part(rendered, "nine kinds of plates, rendered on the way", needs_data=False),
}
