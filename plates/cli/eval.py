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
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plates.cli import CommandError
from plates.cli.eval_parts import PARTS, Context, Judged, Report, head_line
from plates.cli.options import add_data, add_engine, add_weights, load_nets

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets
    from plate_models.training.labels import LabelledPhoto


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_data(parser, "photos")
    for name, part in PARTS.items():
        parser.add_argument(
            f"--{name}", action="append_const", dest="parts", const=name, help=part.purpose
        )
    add_weights(parser)
    add_engine(parser)
    parser.add_argument(
        "--via", metavar="triton", help="read the labelled photos through Triton (default: here)"
    )
    parser.add_argument(
        "--triton", metavar="HOST:PORT", help="gRPC of a Triton (default: one is started)"
    )
    parser.add_argument(
        "--baseline", type=Path, metavar="DIR", help="also score the published recognizer in DIR"
    )
    parser.add_argument(
        "--per-type",
        type=int,
        metavar="N",
        help="render N photos of each kind of plates (default: 500; for --agreement none)",
    )
    parser.add_argument(
        "--crops",
        type=int,
        metavar="N",
        default=10_000,
        help="compare engines on N crops (default: 10000)",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", default=2, help="processes that render (default: 2)"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: all cores)")
    _configure_output(parser)


def _configure_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--misses", action="store_true", help="list every failure")
    parser.add_argument(
        "--sheet",
        type=Path,
        metavar="FILE.png",
        help="draw the failures; those of --world and --rendered in FILE-world.png and so on",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep everything, plate by plate, as JSON"
    )


def run(arguments: argparse.Namespace) -> int:
    """Evaluate and print.

    Returns:
        0, or 1 if a comparison missed its floor.

    Raises:
        CommandError: No data, no weights, no such engine, device or Triton, nowhere to
            write; or (status 2) labels or a photo that are broken.
    """
    parts = [part for part in PARTS if part in (arguments.parts or ["labelled"])]
    _check(arguments, parts)
    nets = _load(arguments)
    from plate_models.weights import WEIGHTS_DIR, check_manifest

    head = {
        "weights": check_manifest(arguments.weights or WEIGHTS_DIR),
        "engine": nets.engine,
        "device": nets.device,
        "date": date.today().isoformat(),
    }
    print(head_line(head), flush=True)
    kept: dict[str, Any] = dict(head)
    passed = True
    for part, report in _evaluate(arguments, nets, parts, head):
        print("", *report.lines(), sep="\n", flush=True)
        kept[part] = report.to_dict()
        passed &= not isinstance(report, Judged) or report.passed
    if arguments.json:
        text = json.dumps(kept, ensure_ascii=False, indent=1, allow_nan=False)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 0 if passed else 1


def _check(arguments: argparse.Namespace, parts: list[str]) -> None:
    """Refuse at once what would fail after minutes of work."""
    if arguments.data is None and any(PARTS[part].needs_data for part in parts):
        raise CommandError("give --data DIR, or set PLATES_DATA")
    for option in ("per_type", "crops", "workers"):
        if (getattr(arguments, option) or 0) < 0:
            raise CommandError(f"--{option.replace('_', '-')}: expected 0 or more")
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


def _load(arguments: argparse.Namespace) -> "Nets":
    """Load the nets, with as many threads as --threads says."""
    if arguments.threads:
        # Read by the served engine's runtimes; torch has a setting of its own.
        os.environ["PLATES_THREADS"] = str(arguments.threads)
    nets = load_nets(arguments)
    if arguments.threads:
        import torch

        torch.set_num_threads(arguments.threads)
    return nets


def _evaluate(
    arguments: argparse.Namespace, nets: "Nets", parts: list[str], head: dict[str, str]
) -> Iterator[tuple[str, Report]]:
    """Run the parts under a progress bar; errors as in `run`."""
    from tqdm import tqdm

    from plate_models.images import ImageError
    from plate_models.training.labels import LabelError

    current = Path()

    def progress(photos: "list[LabelledPhoto]") -> "Iterator[LabelledPhoto]":
        nonlocal current
        for photo in tqdm(photos, unit="photo", file=sys.stderr):
            current = photo.path
            yield photo

    try:
        context = Context(arguments, nets, progress, head)
        for part in parts:
            yield part, PARTS[part].score(context)
    except FileNotFoundError as error:
        raise CommandError(str(error)) from error
    except ImageError as error:
        raise CommandError(f"{current}: {error}", status=2) from error
    except LabelError as error:
        raise CommandError(str(error), status=2) from error
