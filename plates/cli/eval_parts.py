"""The parts of `plates eval`: each scores one thing and hands back its report."""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets
    from plate_models.training.evaluation.labelled import Progress, Scoreboard
    from plate_models.training.evaluation.rendered import RenderedReport


class Report(Protocol):
    """What each part hands back."""

    def lines(self) -> list[str]:
        """The report for a terminal."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        ...


@runtime_checkable
class Judged(Report, Protocol):
    """A report with a floor."""

    @property
    def passed(self) -> bool:
        """Whether the floor is kept."""
        ...


def head_line(head: Mapping[str, str]) -> str:
    """What stands above every report: what was scored, where it ran, and when."""
    return "weights {weights}, engine {engine} on {device}, {date}".format_map(head)


@dataclass(frozen=True)
class Context:
    """What each part is given.

    Attributes:
        arguments: Of the command line.
        nets: The nets.
        progress: Wraps a list of photos, for a progress bar.
        head: Hash of the weights, engine, device and date, as they stand above every report.
    """

    arguments: argparse.Namespace
    nets: "Nets"
    progress: "Progress"
    head: dict[str, str]

    @property
    def data(self) -> Path:
        """Folder of the photos."""
        return Path(self.arguments.data)

    @property
    def about(self) -> str:
        """What a sheet says about its origin."""
        return head_line(self.head)


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
    from plate_models.training.evaluation.labelled import evaluate, labelled_folder
    from plate_models.training.evaluation.sheet import failure_sheet, photos_in

    arguments = context.arguments
    scored = context.data, context.nets, arguments.baseline, context.progress
    through = None
    if arguments.via:
        from plates.cli.eval_triton import ThroughTriton, photos_through_triton

        with photos_through_triton(context) as read:
            board = evaluate(*scored, read)
            through = read.agreement
    else:
        board = evaluate(*scored)
    if arguments.sheet:
        load = photos_in(labelled_folder(context.data) / "images")
        failure_sheet(board, load, [context.about]).save(arguments.sheet)
    report = WithFailures(board) if arguments.misses else board
    return ThroughTriton(report, through) if through else report


def world(context: Context) -> Report:
    """Photos of other countries."""
    from plate_models.training.evaluation.sheet import photos_in, world_sheet
    from plate_models.training.evaluation.world import FOLDER, evaluate_world

    report = evaluate_world(context.data, context.nets, context.progress)
    sheet: Path | None = context.arguments.sheet
    if sheet:
        load = photos_in(context.data / FOLDER / "images")
        picture = world_sheet(report, load, [context.about])
        picture.save(sheet.with_stem(f"{sheet.stem}-world"))
    return report


def rendered(context: Context) -> Report:
    """The rendered benchmark."""
    from tqdm import tqdm

    from plate_models.training.benchmark import PER_KIND
    from plate_models.training.evaluation.rendered import evaluate_rendered, load_rendered
    from plate_models.training.evaluation.sheet import failure_sheet

    arguments = context.arguments
    report = evaluate_rendered(
        context.nets,
        PER_KIND if arguments.per_type is None else arguments.per_type,
        arguments.workers,
        progress=lambda photos, total: tqdm(photos, total=total, unit="photo", file=sys.stderr),
    )
    sheet: Path | None = arguments.sheet
    if sheet:
        picture = failure_sheet(report.board, load_rendered, [context.about])
        picture.save(sheet.with_stem(f"{sheet.stem}-rendered"))
    return WithFailures(report) if arguments.misses else report


def agreement(context: Context) -> Report:
    """The engine against the float32 reference."""
    from tqdm import tqdm

    from plate_models.engines.nets import load_nets
    from plate_models.training.benchmark import render_photos
    from plate_models.training.evaluation import agreement as engines
    from plate_models.training.evaluation.agreement import compare_crops
    from plate_models.training.synthetic.kinds import KINDS
    from plate_models.weights import WEIGHTS_DIR

    arguments, nets = context.arguments, context.nets
    data = context.data if arguments.data else None
    files = engines.photos_of(data) if data else None
    reference = load_nets("torch", "cpu", arguments.weights or WEIGHTS_DIR)
    crops = compare_crops(
        reference,
        nets,
        arguments.crops,
        data,
        arguments.workers,
        lambda blocks, total: tqdm(blocks, total=total, unit="block", file=sys.stderr),
    )
    photos = engines.compare_photos(files, reference, nets, context.progress) if files else None
    rendered = None
    if arguments.per_type:
        numbered = [(kind, index) for index in range(arguments.per_type) for kind in KINDS]
        made = render_photos(numbered, arguments.workers)
        shown = tqdm(made, total=len(numbered), unit="photo", file=sys.stderr)
        rendered = engines.compare_rendered(shown, reference, nets)
    return engines.EngineReport(f"{nets.engine} on {nets.device}", crops, photos, rendered)


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
    "rendered": Part(rendered, "nine kinds of plates, rendered on the way", needs_data=False),
    "agreement": Part(agreement, "the engine against the float32 reference", needs_data=False),
}
