"""Evaluate the weights with the released thresholds: counts, rates, 95 % intervals, in one table.

Without a choice of parts all parts are evaluated whose data DIR contains: allow an hour. `plates
compare` compares two files of --json, of two versions or of two engines.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from plate_models.images import ImageError
from plates.cli import CommandError, options, printable
from plates.cli.samples import SAMPLES

if TYPE_CHECKING:
    from plate_models.training.evaluation.sets import Photo

PARTS = {
    "labelled": "DIR/ru_photos (images/ and plates.csv; or DIR is itself such a set)",
    "worse": "the same photos, degraded: grey, blurred, rotated, cropped to a plate and so on",
    "latin": "DIR/latin_photos, by region; O counts as 0",
    "world": "the held-out fifth of DIR/world_photos; also lists texts read beside the labels",
    "no-plates": "DIR/no_plates: boxes and readable texts, of which there should be none",
    "samples": "the project's sample scenes (needs no data)",
    "rendered": "the rendered benchmark by kind of plate, also grey, by night, in the red "
    "channel alone, and filmed (rendered on the fly, needs no data)",
    "video": "frames of rendered clips at a low bitrate (needs no data)",
}
WITHOUT_DATA = ("samples", "rendered", "video")


def configure(parser: argparse.ArgumentParser) -> None:
    default, text = os.environ.get("PLATES_DATA") or None, "folder of photos (default: PLATES_DATA)"
    parser.add_argument("--data", type=Path, metavar="DIR", default=default, help=text)
    for name, purpose in PARTS.items():
        option = f"--{name}"
        parser.add_argument(option, action="append_const", dest="parts", const=name, help=purpose)
    options.add_nets(parser)
    text = "rendered photos of each kind of plate; of each variant a fifth as many"
    options.add_number(parser, "--per-type", 500, text)
    options.add_number(parser, "--clips", 48, "number of rendered clips")
    options.add_number(parser, "--workers", 2, "number of processes that render")
    parser.add_argument("--misses", action="store_true", help="list every failure")
    text = "write all results, plate by plate, as JSON"
    parser.add_argument("--json", type=Path, metavar="FILE", help=text)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate the parts and print a table of each, then one of all; write the JSON if wanted."""
    parts = [part for part in PARTS if part in (arguments.parts or PARTS)]
    # Fail at once, not after minutes of work.
    if arguments.data is None and not set(parts) <= set(WITHOUT_DATA):
        others = " ".join(f"--{part}" for part in WITHOUT_DATA)
        raise CommandError(f"give --data DIR, or set PLATES_DATA; these parts need none: {others}")
    if arguments.json and not arguments.json.parent.is_dir():
        raise CommandError(f"{printable(arguments.json)}: its folder does not exist")
    from plate_models.release import check_manifest
    from plate_models.training.evaluation.comparison import title
    from plate_models.training.evaluation.scoreboard import Scoreboard, score, table
    from plate_models.training.labels import LabelError

    nets, weights = options.load_nets(arguments), check_manifest(arguments.weights)
    head = {"weights": weights, "engine": nets.engine, "device": nets.device}
    head |= {"date": date.today().isoformat(), "countries": ",".join(arguments.countries or ())}
    print(title(head), flush=True)
    boards: dict[str, Scoreboard] = {}
    try:
        for part in parts:
            try:
                photos = _photos(part, arguments)
            except FileNotFoundError as error:
                if arguments.parts or part == "labelled":
                    raise
                print(f"\n{part}: skipped: {printable(error)}")
                continue
            found = score(tqdm(photos, part, disable=None), nets)
            boards |= found
            lines = table(found)
            # After the table: the texts and failures of each row, by photo.
            for row, board in found.items():
                if named := board.lines() + (board.failure_lines() if arguments.misses else []):
                    lines += ["", f"{row}: readable texts that are wrong or not labelled", *named]
            print("", *map(printable, lines), sep="\n", flush=True)
            if arguments.json:
                # Written after each part, as a run may take an hour.
                kept: dict[str, Any] = {row: board.to_dict() for row, board in boards.items()}
                text = json.dumps({**head, "rows": kept}, ensure_ascii=False, allow_nan=False)
                arguments.json.write_text(text + "\n", encoding="utf-8")
    except (ImageError, LabelError) as error:
        raise CommandError(printable(error), status=2) from error
    print("", *table(boards), sep="\n")


def _photos(part: str, arguments: argparse.Namespace) -> "Iterable[Photo]":
    from plate_models.training.evaluation import sets

    loads: dict[str, Callable[[], Iterable[Photo]]] = {
        "labelled": lambda: sets.russian(arguments.data),
        "worse": lambda: sets.worse(arguments.data),
        "latin": lambda: sets.latin(arguments.data),
        "world": lambda: sets.world(arguments.data),
        "no-plates": lambda: sets.without_plates(arguments.data),
        "samples": lambda: sets.samples(SAMPLES),
        "rendered": lambda: sets.rendered(arguments.per_type, arguments.workers),
        "video": lambda: sets.video(arguments.clips, arguments.workers),
    }
    return loads[part]()
