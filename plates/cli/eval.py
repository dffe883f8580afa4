"""Score the weights: counts, rates and 95 % intervals, all at the operating point that ships.

What is scored; labelled photos if nothing else is asked for:

  --labelled  recall, exact match and character errors on DIR/ru_photos (images/ and
              plates.csv; or DIR is itself such a set), false plates on DIR/no_plates
  --world     readable texts on the held-out fifth of DIR/world_photos, to be looked at
  --rendered  nine kinds of plates end to end on the rendered benchmark, which is made on
              the way: needs no data. 4,500 photos unless --per-type says otherwise
  --agreement the engine against the float32 reference (torch, on the CPU): texts and logits
              of --crops plates, rendered and painted into DIR/world_photos, every photo of
              DIR/ru_photos and DIR/no_plates end to end, and the rendered benchmark where
              --per-type asks for it. At most 0.1 % of the crops' texts may differ

With --via triton the labelled photos are read by `plate_recognition` in a Triton, file in,
texts out, and each answer is compared with that of this process.

The exit status is 1 where a comparison misses its floor, or Triton and this process disagree.
`plates compare` sets two files of --json side by side.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plates.cli import CommandError, options, printable
from plates.cli.options import RELEASED_WEIGHTS, add_number

if TYPE_CHECKING:
    from PIL.Image import Image

    from plate_models.engines.nets import Nets
    from plate_models.training.evaluation.labelled import Read
    from plate_models.training.labels import LabelledPhoto

# A report of plate_models.training.evaluation, and what draws its sheet, given lines for its head.
Scored = tuple[Any, "Callable[[list[str]], Image] | None"]

PARTS = {
    "labelled": "labelled photos; the default",
    "world": "readable texts on photos of other countries",
    "rendered": "nine kinds of plates, rendered on the way",
    "agreement": "the engine against the float32 reference",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_data(parser, "photos")
    for name, purpose in PARTS.items():
        option = f"--{name}"
        parser.add_argument(option, action="append_const", dest="parts", const=name, help=purpose)
    options.add_weights(parser)
    options.add_engine(parser)
    text = "read the labelled photos through Triton (default: here)"
    parser.add_argument("--via", metavar="triton", help=text)
    text = "gRPC of a Triton (default: one is started)"
    parser.add_argument("--triton", metavar="HOST:PORT", help=text)
    text = "also score the published recognizer in DIR"
    parser.add_argument("--baseline", type=Path, metavar="DIR", help=text)
    text = "render N photos of each kind of plates (default: 500; for --agreement none)"
    add_number(parser, "--per-type", None, text)
    add_number(parser, "--crops", 10_000, "compare engines on N crops")
    add_number(parser, "--workers", 2, "processes that render")
    add_number(parser, "--threads", None, "CPU threads (default: all cores)", least=1)
    parser.add_argument("--misses", action="store_true", help="list every failure")
    text = "draw the failures; those of --world and --rendered in FILE-world.png and so on"
    parser.add_argument("--sheet", type=Path, metavar="FILE.png", help=text)
    text = "keep everything, plate by plate, as JSON"
    parser.add_argument("--json", type=Path, metavar="FILE", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate and print; the exit status is 1 if a comparison missed its floor."""
    parts = [part for part in PARTS if part in (arguments.parts or ["labelled"])]
    _check(arguments, parts)
    if arguments.threads:
        # Read by the served engine's runtimes; torch has a setting of its own.
        os.environ["PLATES_THREADS"] = str(arguments.threads)
    nets = options.load_nets(arguments)
    if arguments.threads:
        import torch

        torch.set_num_threads(arguments.threads)
    from plate_models.images import ImageError
    from plate_models.training.labels import LabelError
    from plate_models.weights import check_manifest

    weights = check_manifest(arguments.weights or RELEASED_WEIGHTS)
    head = {"weights": weights, "engine": nets.engine, "device": nets.device}
    head["date"] = date.today().isoformat()
    about = "weights {weights}, engine {engine} on {device}, {date}".format_map(head)
    print(about, flush=True)
    work, kept, passed = _Work(arguments, nets), dict[str, Any](head), True
    through: AbstractContextManager[Any] = nullcontext((None, None))
    if arguments.via:
        from plates.cli.eval_triton import disagreements, through_triton

        through = through_triton(arguments, nets, weights)
    try:
        with through as (work.read, agreement):
            for part in parts:
                report, draw = _SCORES[part](work)
                kept[part], lines = report.to_dict(), report.lines()
                passed &= getattr(report, "passed", True)
                if arguments.misses and hasattr(report, "failure_lines"):
                    lines += ["", *report.failure_lines()]
                if agreement:
                    kept[part]["via_triton"] = agreement.to_dict()
                    verdict, *differing = disagreements(agreement)
                    lines += ["", verdict, *differing]
                    passed &= not differing
                print("", *map(printable, lines), sep="\n", flush=True)
                if arguments.sheet and draw:
                    end = "" if part == "labelled" else f"-{part}"
                    path = arguments.sheet
                    draw([about]).save(path.with_stem(path.stem + end))
    except ImageError as error:
        raise CommandError(f"{work.photo}: {error}", status=2) from error
    except LabelError as error:
        raise CommandError(str(error), status=2) from error
    if arguments.json:
        text = json.dumps(kept, ensure_ascii=False, indent=1, allow_nan=False)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 0 if passed else 1


def _check(arguments: argparse.Namespace, parts: list[str]) -> None:
    """Refuse at once what would fail after minutes of work."""
    if arguments.data is None and {"labelled", "world"} & set(parts):
        raise CommandError("give --data DIR, or set PLATES_DATA")
    if arguments.via not in (None, "triton"):
        raise CommandError(f"--via: expected triton, got {arguments.via!r}")
    if arguments.via and parts != ["labelled"]:
        raise CommandError("--via triton reads labelled photos: leave the other parts out")
    if arguments.triton and not arguments.via:
        raise CommandError("--triton HOST:PORT goes with --via triton")
    if "agreement" in parts and arguments.engine == "torch" and arguments.device == "cpu":
        raise CommandError(
            "--agreement compares with torch on the CPU: --engine torch would meet itself there"
        )
    for file in (arguments.sheet, arguments.json):
        if file and not file.parent.is_dir():
            raise CommandError(f"{file}: its folder does not exist")


@dataclass
class _Work:
    """What the parts need; `photo` is the one that is being read."""

    arguments: argparse.Namespace
    nets: "Nets"
    read: "Read | None" = None
    photo: Path = Path()

    def photos(self, photos: "list[LabelledPhoto]") -> "Iterator[LabelledPhoto]":
        for photo in _bar(photos, len(photos)):
            self.photo = photo.path
            yield photo


def _bar(items: Iterable[Any], total: int) -> Iterable[Any]:
    from tqdm import tqdm

    return tqdm(items, total=total, file=sys.stderr, disable=None)


def _labelled(work: _Work) -> Scored:
    from plate_models.training.evaluation.failure_sheet import failure_sheet

    from plate_models.training.evaluation.labelled import evaluate, labelled_folder
    from plate_models.training.evaluation.sheet import photos_in

    data = Path(work.arguments.data)
    board = evaluate(data, work.nets, work.arguments.baseline, work.photos, work.read)
    load = photos_in(labelled_folder(data) / "images")
    return board, lambda about: failure_sheet(board, load, about)


def _world(work: _Work) -> Scored:
    from plate_models.training.evaluation.world_sheet import world_sheet

    from plate_models.training.evaluation.sheet import photos_in
    from plate_models.training.evaluation.world import FOLDER, evaluate_world

    data = Path(work.arguments.data)
    report = evaluate_world(data, work.nets, work.photos)
    return report, lambda about: world_sheet(report, photos_in(data / FOLDER / "images"), about)


def _rendered(work: _Work) -> Scored:
    from plate_models.training.evaluation.failure_sheet import failure_sheet

    from plate_models.training.benchmark import PER_KIND
    from plate_models.training.evaluation.rendered import evaluate_rendered, load_rendered

    per_type, workers = work.arguments.per_type, work.arguments.workers
    count = PER_KIND if per_type is None else per_type
    report = evaluate_rendered(work.nets, count, workers, progress=_bar)
    return report, lambda about: failure_sheet(report.board, load_rendered, about)


def _agreement(work: _Work) -> Scored:
    from plate_models.training.evaluation.agreement_crops import compare_crops

    from plate_models.engines.nets import load_nets
    from plate_models.training.benchmark import render_photos
    from plate_models.training.evaluation import engines
    from plate_models.training.synthetic.kinds import KINDS

    arguments, nets = work.arguments, work.nets
    data = Path(arguments.data) if arguments.data else None
    files = engines.photos_of(data) if data else None
    reference = load_nets("torch", "cpu", arguments.weights or RELEASED_WEIGHTS)
    crops = compare_crops(reference, nets, arguments.crops, data, arguments.workers, _bar)
    photos = engines.compare_photos(files, reference, nets, work.photos) if files else None
    rendered = None
    if arguments.per_type:
        numbered = [(kind, index) for index in range(arguments.per_type) for kind in KINDS]
        made = _bar(render_photos(numbered, arguments.workers), len(numbered))
        rendered = engines.compare_rendered(made, reference, nets)
    name = f"{nets.engine} on {nets.device}"
    return engines.EngineReport(name, crops, photos, rendered), None


_SCORES = {"labelled": _labelled, "world": _world, "rendered": _rendered, "agreement": _agreement}
