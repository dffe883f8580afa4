"""What `plates eval` scores, part by part; it loads torch."""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from PIL.Image import Image
from tqdm import tqdm

from plate_models.engines.nets import Nets
from plate_models.images import ImageError
from plate_models.training.benchmark import PER_KIND
from plate_models.training.evaluation.labelled import evaluate, labelled_folder
from plate_models.training.evaluation.rendered import evaluate_rendered, load_rendered
from plate_models.training.evaluation.sheet import failure_sheet, photos_in, world_sheet
from plate_models.training.evaluation.world import FOLDER, evaluate_world
from plate_models.training.labels import LabelError, LabelledPhoto
from plate_models.weights import check_manifest
from plates.cli import CommandError, printable
from plates.cli.options import RELEASED_WEIGHTS

# A report of plate_models.training.evaluation, and what draws its sheet, given lines for its head.
Scored = tuple[Any, Callable[[Sequence[str]], Image] | None]


def score(arguments: argparse.Namespace, parts: Sequence[str], nets: Nets) -> None:
    """Evaluate, print, and keep and draw what is asked for."""
    weights = check_manifest(arguments.weights or RELEASED_WEIGHTS)
    head = {"weights": weights, "engine": nets.engine, "device": nets.device}
    head["date"] = date.today().isoformat()
    about = "weights {weights}, engine {engine} on {device}, {date}".format_map(head)
    print(about, flush=True)
    scoring, kept = Scoring(arguments, nets), dict[str, Any](head)
    try:
        for part in parts:
            report, draw = getattr(scoring, f"_{part}")()
            kept[part], lines = report.to_dict(), report.lines()
            if arguments.misses and hasattr(report, "failure_lines"):
                lines += ["", *report.failure_lines()]
            print("", *map(printable, lines), sep="\n", flush=True)
            if arguments.sheet and draw:
                path, end = arguments.sheet, "" if part == "labelled" else f"-{part}"
                draw([about]).save(path.with_stem(path.stem + end))
    except ImageError as error:
        raise CommandError(f"{printable(scoring.photo)}: {error}", status=2) from error
    except LabelError as error:
        raise CommandError(printable(error), status=2) from error
    if arguments.json:
        text = json.dumps(kept, ensure_ascii=False, indent=1, allow_nan=False)
        arguments.json.write_text(text + "\n", encoding="utf-8")


@dataclass
class Scoring:
    """One evaluation by the arguments of `plates eval`; a method for each part."""

    arguments: argparse.Namespace
    nets: Nets
    photo: Path = Path()  # that is being read

    def _labelled(self) -> Scored:
        data = self.arguments.data
        board = evaluate(data, self.nets, self.arguments.baseline, self._photos)
        load = photos_in(labelled_folder(data) / "images")
        return board, lambda about: failure_sheet(board, load, about)

    def _world(self) -> Scored:
        data = self.arguments.data
        report = evaluate_world(data, self.nets, self._photos)
        load = photos_in(data / FOLDER / "images")
        return report, lambda about: world_sheet(report, load, about)

    def _rendered(self) -> Scored:
        per_type, workers = self.arguments.per_type, self.arguments.workers
        count = PER_KIND if per_type is None else per_type
        report = evaluate_rendered(self.nets, count, workers, progress=_bar)
        return report, lambda about: failure_sheet(report.board, load_rendered, about)

    def _photos(self, photos: list[LabelledPhoto]) -> Iterator[LabelledPhoto]:
        for photo in _bar(photos, len(photos)):
            self.photo = photo.path
            yield photo


def _bar(items: Iterable[Any], total: int) -> Iterable[Any]:
    return tqdm(items, total=total, disable=None)
