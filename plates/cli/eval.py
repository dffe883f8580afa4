"""Score the weights: counts, rates and 95 % intervals, all at the operating point that ships.

Labelled photos are scored if nothing else is asked for. `plates compare` sets two files of
--json side by side: of two versions, or of two engines.
"""

import argparse
import os
from pathlib import Path

from plates.cli import CommandError, options, printable
from plates.cli.options import add_number

PARTS = {
    "labelled": "recall, exact match and character errors on DIR/ru_photos (images/ and "
    "plates.csv; or DIR is itself such a set), false plates on DIR/no_plates",
    "world": "readable texts on the held-out fifth of DIR/world_photos, to be looked at",
    "rendered": "nine kinds of plates end to end on the rendered benchmark, which is made on the "
    "way: needs no data. 4,500 photos unless --per-type says otherwise",
}


def configure(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser, "photos")
    for name, purpose in PARTS.items():
        option = f"--{name}"
        parser.add_argument(option, action="append_const", dest="parts", const=name, help=purpose)
    options.add_weights(parser)
    options.add_engine(parser)
    text = "also score the published recognizer in DIR"
    parser.add_argument("--baseline", type=Path, metavar="DIR", help=text)
    text = "render N photos of each kind of plates (default: 500)"
    add_number(parser, "--per-type", None, text)
    add_number(parser, "--workers", 2, "processes that render")
    add_number(parser, "--threads", None, "CPU threads (default: all cores)", least=1)
    parser.add_argument("--misses", action="store_true", help="list every failure")
    text = "draw the failures; those of --world and --rendered in FILE-world.png and so on"
    parser.add_argument("--sheet", type=Path, metavar="FILE.png", help=text)
    text = "keep everything, plate by plate, as JSON"
    parser.add_argument("--json", type=Path, metavar="FILE", help=text)


def run(arguments: argparse.Namespace) -> int:
    parts = [part for part in PARTS if part in (arguments.parts or ["labelled"])]
    _check(arguments, parts)
    if arguments.threads:
        # Read by the served engine's runtimes; torch has a setting of its own.
        os.environ["PLATES_THREADS"] = str(arguments.threads)
        import torch

        torch.set_num_threads(arguments.threads)
    nets = options.load_nets(arguments)
    from plates.cli.scoring import score

    score(arguments, parts, nets)
    return 0


def _check(arguments: argparse.Namespace, parts: list[str]) -> None:
    """Refuse at once what would fail after minutes of work."""
    if arguments.data is None and {"labelled", "world"} & set(parts):
        raise CommandError("give --data DIR, or set PLATES_DATA")
    for file in (arguments.sheet, arguments.json):
        if file and not file.parent.is_dir():
            raise CommandError(f"{printable(file)}: its folder does not exist")
