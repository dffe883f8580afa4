"""Set the pipeline beside the published one's shape, in this process and in turns.

The published shape squeezes the photo to 1920x1080, runs YOLOv5s at 1280 in eager float32
and reads crops one by one with the recognizer in --baseline; its detector has random
weights, so it is given the boxes that ours found. Both begin with the file.

Floor: the served engine's p50 is at most 0.15 of the published shape's.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from plates.benchmarks import report
from plates.benchmarks.measuring import (
    add_photo,
    add_seconds,
    check_seconds,
    load_engines,
    print_head,
    read_photo,
)
from plates.benchmarks.report import Verdict
from plates.cli import CommandError

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets
    from plate_models.training.baseline import PublishedShape
    from plates.benchmarks.speed.published import SideBySide

FLOOR = 0.15
SERVED = "served"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="DIR",
        required=True,
        help="holds the published recognizer: stn.pt and lprnet.pt",
    )
    add_photo(parser)
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="also measure on the 1920x1080 photos of a labelled set, each once",
    )
    parser.add_argument(
        "--photos", type=int, metavar="N", default=0, help="of --data, N only (default: all)"
    )
    parser.add_argument(
        "--engine",
        choices=(SERVED, "torch"),
        default=SERVED,
        help="torch: show the float32 reference as well (default: served)",
    )
    add_seconds(parser, 30)
    report.add_outputs(parser, "baseline")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and draw.

    Returns:
        0 if the floor holds on every set of photos, else 1.

    Raises:
        CommandError: The published recognizer, a photo or the labelled set is not there;
            or (status 2) labels or a photo that are broken.
    """
    check_seconds(arguments)
    if arguments.photos < 0:
        raise CommandError("--photos: expected 0 or more")
    report.make_folders(arguments)
    # Torch's threads spin unless told otherwise: on a machine that does nothing else, the
    # published pipeline is a quarter faster so.
    os.environ.pop("GOMP_SPINCOUNT", None)
    published, paths = _open(arguments)
    engines = load_engines(list(dict.fromkeys((SERVED, arguments.engine))))
    file = read_photo(arguments.photo, engines[SERVED])
    machine = print_head("Milliseconds per photo, from the file to the texts, one at a time")
    found = dict(_measure(arguments, file, paths, engines, published))
    status = report.print_verdicts(_verdict(name, of) for name, of in found.items())
    from plates.benchmarks.speed_plots import draw_side_by_side

    draw_side_by_side(found, machine, arguments.plot)
    print(f"\nDrawn in {arguments.plot}")
    if arguments.json:
        sets = {name: of.to_dict() for name, of in found.items()}
        report.write_json(arguments.json, {"machine": machine, "sets": sets})
    return status


def _open(arguments: argparse.Namespace) -> "tuple[PublishedShape, list[Path]]":
    """The published shape, and the photos of --data, if there are any."""
    from plate_models.training.baseline import Baseline, PublishedShape
    from plate_models.training.evaluation.labelled import labelled_folder
    from plate_models.training.labels import LabelError
    from plates.benchmarks.speed.published import photos_of_size

    try:
        published = PublishedShape(Baseline(arguments.baseline))
        paths = photos_of_size(labelled_folder(arguments.data)) if arguments.data else []
    except FileNotFoundError as error:
        raise CommandError(str(error)) from error
    except LabelError as error:
        raise CommandError(str(error), status=2) from error
    return published, paths[: arguments.photos or None]


def _measure(
    arguments: argparse.Namespace,
    file: bytes,
    paths: list[Path],
    engines: "dict[str, Nets]",
    published: "PublishedShape",
) -> "Iterator[tuple[str, SideBySide]]":
    from plate_models.images import ImageError
    from plates.benchmarks.speed.published import compare_on_photo, compare_on_photos

    name = str(arguments.photo or "the standard photo")
    yield _shown(name, compare_on_photo(file, engines, published, arguments.seconds))
    if not paths:
        return
    try:
        files = (path.read_bytes() for path in paths)
        yield _shown(str(arguments.data), compare_on_photos(files, engines, published))
    except ImageError as error:
        raise CommandError(f"{arguments.data}: {error}", status=2) from error


def _shown(name: str, found: "SideBySide") -> "tuple[str, SideBySide]":
    from plates.benchmarks.speed.published import PUBLISHED
    from plates.benchmarks.speed.turns import percentile

    turns = len(found.times[PUBLISHED].wall_ms)
    print(f"{name}: {found.photos} photos, {found.plates} plates, {turns} turns")
    rows = []
    for engine, times in found.times.items():
        cells = (times.p50_ms, times.p95_ms, percentile(times.cpu_ms, 50))
        ratio, (low, high) = found.ratio(engine)
        share = "1" if engine == PUBLISHED else f"{ratio:.3f} ({low:.3f} to {high:.3f})"
        rows.append((engine, *(f"{cell:.1f}" for cell in cells), share))
    report.print_table(("", "p50 ms", "p95 ms", "CPU p50 ms", "ratio of p50s (95 %)"), rows)
    print(flush=True)
    return name, found


def _verdict(name: str, found: "SideBySide") -> Verdict:
    ratio, (low, high) = found.ratio(SERVED)
    came = f"{ratio:.3f}, 95 % interval from {low:.3f} to {high:.3f}"
    what = f"p50 of ours over that of the published shape, {name}"
    return Verdict(what, came, f"at most {FLOOR}", ratio <= FLOOR)
