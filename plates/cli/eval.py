"""Score the weights in one table: counts, rates, 95 % intervals, at the operating point that ships.

Without a choice of parts all of them are scored, as far as DIR has them: allow an hour. `plates
compare` sets two files of --json side by side: of two versions, or of two engines.
"""

import argparse
import os
from pathlib import Path

from plates.cli import CommandError, options, printable
from plates.cli.options import add_number

PARTS = {
    "labelled": "DIR/ru_photos (images/ and plates.csv; or DIR is itself such a set)",
    "worse": "the same photos made worse by recipes: grey, blurred, turned, darker and so on",
    "latin": "DIR/latin_photos, by region; O counts as 0",
    "world": "boxes and readable texts on the held-out fifth of DIR/world_photos, to be looked at",
    "no-plates": "boxes and readable texts on DIR/no_plates, where none should be",
    "samples": "the project's own sample scenes: needs no data",
    "rendered": "the rendered benchmark by kind of plate, also grey, by night, in red alone and "
    "filmed; it is made on the way and needs no data",
    "video": "frames of rendered clips at a low bitrate: needs no data",
}
WITHOUT_DATA = ("samples", "rendered", "video")


def configure(parser: argparse.ArgumentParser) -> None:
    text, default = "photos (default: PLATES_DATA)", os.environ.get("PLATES_DATA") or None
    parser.add_argument("--data", type=Path, metavar="DIR", default=default, help=text)
    for name, purpose in PARTS.items():
        option = f"--{name}"
        parser.add_argument(option, action="append_const", dest="parts", const=name, help=purpose)
    options.add_weights(parser)
    options.add_engine(parser)
    text = "render N photos of each kind of plates, and a fifth of that of each variant"
    add_number(parser, "--per-type", 500, text)
    add_number(parser, "--clips", 48, "render N clips of 16 frames")
    add_number(parser, "--workers", 2, "processes that render")
    parser.add_argument("--misses", action="store_true", help="list every failure")
    text = "draw the failures, a file for each part: FILE-labelled.png and so on"
    parser.add_argument("--sheet", type=Path, metavar="FILE.png", help=text)
    text = "keep everything, plate by plate, as JSON"
    parser.add_argument("--json", type=Path, metavar="FILE", help=text)


def run(arguments: argparse.Namespace) -> int:
    parts = [part for part in PARTS if part in (arguments.parts or PARTS)]
    _check(arguments, parts)
    nets = options.load_nets(arguments)
    from plates.cli.scoring import score_parts

    score_parts(arguments, parts, nets)
    return 0


def _check(arguments: argparse.Namespace, parts: list[str]) -> None:
    """Refuse at once what would fail after minutes of work."""
    if arguments.data is None and not set(parts) <= set(WITHOUT_DATA):
        raise CommandError(
            "give --data DIR, or set PLATES_DATA; without data choose of "
            + " ".join(f"--{part}" for part in WITHOUT_DATA)
        )
    for file in (arguments.sheet, arguments.json):
        if file and not file.parent.is_dir():
            raise CommandError(f"{printable(file)}: its folder does not exist")
