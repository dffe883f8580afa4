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
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plates.cli import CommandError
from plates.cli.options import (
    RELEASED_WEIGHTS,
    add_data,
    add_engine,
    add_number,
    add_weights,
    load_nets,
)

if TYPE_CHECKING:
    from PIL.Image import Image

    from plate_models.engines.nets import Nets
    from plate_models.evaluation.agreement import PhotoAgreement
    from plate_models.evaluation.engines import EngineReport
    from plate_models.evaluation.labelled import Read
    from plate_models.evaluation.rendered import RenderedReport
    from plate_models.evaluation.scoreboard import Scoreboard
    from plate_models.evaluation.world import WorldReport
    from plate_models.labels import LabelledPhoto

PARTS = {
    "labelled": "labelled photos; the default",
    "world": "readable texts on photos of other countries",
    "rendered": "nine kinds of plates, rendered on the way",
    "agreement": "the engine against the float32 reference",
}
_NEED_DATA = {"labelled", "world"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_data(parser, "photos")
    for name, purpose in PARTS.items():
        option = f"--{name}"
        parser.add_argument(option, action="append_const", dest="parts", const=name, help=purpose)
    add_weights(parser)
    add_engine(parser)
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
    nets = load_nets(arguments)
    if arguments.threads:
        import torch

        torch.set_num_threads(arguments.threads)
    from plate_models.weights import check_manifest

    head = {
        "weights": check_manifest(arguments.weights or RELEASED_WEIGHTS),
        "engine": nets.engine,
        "device": nets.device,
        "date": date.today().isoformat(),
    }
    evaluation = _Evaluation(arguments, nets, head)
    print(evaluation.about, flush=True)
    passed, kept = True, dict[str, Any](head)
    for part in parts:
        report = evaluation.score(part)
        lines, kept[part] = report.lines(), report.to_dict()
        passed &= getattr(report, "passed", True)
        if arguments.misses and part in ("labelled", "rendered"):
            lines += ["", *report.failure_lines()]
        if agreement := evaluation.via_triton:
            from plates.cli.eval_triton import WITHIN_PX, verdict

            lines += ["", *verdict(agreement)]
            kept[part]["via_triton"] = agreement.to_dict()
            passed &= not agreement.disagreeing(WITHIN_PX)
        print("", *lines, sep="\n", flush=True)
    if arguments.json:
        text = json.dumps(kept, ensure_ascii=False, indent=1, allow_nan=False)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 0 if passed else 1


def _check(arguments: argparse.Namespace, parts: list[str]) -> None:
    """Refuse at once what would fail after minutes of work."""
    if arguments.data is None and _NEED_DATA & set(parts):
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


class _Evaluation:
    """Scores the parts, each by a method of its name."""

    def __init__(self, arguments: argparse.Namespace, nets: "Nets", head: dict[str, str]) -> None:
        self.arguments, self.nets, self.weights = arguments, nets, head["weights"]
        self.about = "weights {weights}, engine {engine} on {device}, {date}".format_map(head)
        self.via_triton: PhotoAgreement | None = None
        self.current = Path()

    def score(self, part: str) -> Any:
        """Score one part under a progress bar.

        Raises:
            CommandError: No data, or no Triton; (status 2) labels or a photo that are broken.
        """
        from plate_models.images import ImageError
        from plate_models.labels import LabelError

        try:
            return getattr(self, part)()
        except FileNotFoundError as error:
            raise CommandError(str(error)) from error
        except ImageError as error:
            raise CommandError(f"{self.current}: {error}", status=2) from error
        except LabelError as error:
            raise CommandError(str(error), status=2) from error

    def labelled(self) -> "Scoreboard":
        from plate_models.evaluation.failure_sheet import failure_sheet
        from plate_models.evaluation.labelled import evaluate, labelled_folder
        from plate_models.evaluation.sheet import photos_in

        arguments, data = self.arguments, Path(self.arguments.data)
        with self._through_triton() if arguments.via else nullcontext() as read:
            board = evaluate(data, self.nets, arguments.baseline, self._photos, read)
        if arguments.sheet:
            load = photos_in(labelled_folder(data) / "images")
            failure_sheet(board, load, [self.about]).save(arguments.sheet)
        return board

    def world(self) -> "WorldReport":
        from plate_models.evaluation.sheet import photos_in
        from plate_models.evaluation.world import FOLDER, evaluate_world
        from plate_models.evaluation.world_sheet import world_sheet

        data = Path(self.arguments.data)
        report = evaluate_world(data, self.nets, self._photos)
        if self.arguments.sheet:
            load = photos_in(data / FOLDER / "images")
            self._save("world", world_sheet(report, load, [self.about]))
        return report

    def rendered(self) -> "RenderedReport":
        from plate_models.evaluation.failure_sheet import failure_sheet
        from plate_models.evaluation.rendered import evaluate_rendered, load_rendered
        from plate_models.synthetic.benchmark import PER_KIND

        count = self.arguments.per_type
        count = PER_KIND if count is None else count
        workers = self.arguments.workers
        report = evaluate_rendered(self.nets, count, workers, progress=_bar)
        if self.arguments.sheet:
            self._save("rendered", failure_sheet(report.board, load_rendered, [self.about]))
        return report

    def agreement(self) -> "EngineReport":
        from plate_models.engines.nets import load_nets
        from plate_models.evaluation import engines
        from plate_models.evaluation.agreement_crops import compare_crops
        from plate_models.synthetic.benchmark import render_photos
        from plate_models.synthetic.kinds import KINDS

        arguments, nets, workers = self.arguments, self.nets, self.arguments.workers
        data = Path(arguments.data) if arguments.data else None
        files = engines.photos_of(data) if data else None
        reference = load_nets("torch", "cpu", arguments.weights or RELEASED_WEIGHTS)
        crops = compare_crops(reference, nets, arguments.crops, data, workers, _bar)
        photos = engines.compare_photos(files, reference, nets, self._photos) if files else None
        rendered = None
        if arguments.per_type:
            numbered = [(kind, index) for index in range(arguments.per_type) for kind in KINDS]
            made = _bar(render_photos(numbered, workers), len(numbered))
            rendered = engines.compare_rendered(made, reference, nets)
        return engines.EngineReport(f"{nets.engine} on {nets.device}", crops, photos, rendered)

    def _through_triton(self) -> "AbstractContextManager[Read]":
        from plate_models.evaluation.agreement import PhotoAgreement
        from plates.cli.eval_triton import through_triton

        self.via_triton = PhotoAgreement()
        return through_triton(self.arguments, self.nets, self.weights, self.via_triton)

    def _photos(self, photos: "list[LabelledPhoto]") -> "Iterator[LabelledPhoto]":
        for photo in _bar(photos, len(photos)):
            self.current = photo.path
            yield photo

    def _save(self, part: str, sheet: "Image") -> None:
        file = self.arguments.sheet
        sheet.save(file.with_stem(f"{file.stem}-{part}"))


def _bar(items: Iterable[Any], total: int) -> Iterable[Any]:
    from tqdm import tqdm

    return tqdm(items, total=total, file=sys.stderr, disable=None)
