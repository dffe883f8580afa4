"""Read the plates of photos and videos in this process: the service's pipeline, no server.

Files, folders with their subfolders, and patterns can be mixed. The command prints a table; or with
--csv one row per plate, after a header; or with --json one object per line and picture: `file`,
`image` and `plates` as in the answer of /v1/plates, `model` with the device and the engine, and for
a frame of a video `frame` and `time_s`. If a file can't be read, the command reads the others,
lists the file at the end and exits with status 1. It also lists files in folders that are neither
photos nor videos, except types that often lie beside photos (.txt, .csv, .json, …).
"""

import argparse
import csv
import io
import json
import sys
from contextlib import closing
from pathlib import Path

from tqdm import tqdm

from api.answers import Plate, answer_of
from plates.cli.inputs import Picture, find_inputs
from plates.cli.options import add_nets, add_number, load_nets
from plates.cli.outputs import Jpegs, Table

CSV_COLUMNS = (
    *("file", "frame", "time_s", "text", "format", "score", "readable", "detection_score"),
    *("x0", "y0", "x1", "y1"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="FILE|DIR|GLOB|VIDEO")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object per picture")
    output.add_argument("--csv", action="store_true", help="one row per plate")
    text = "folder for the pictures with their plates drawn in"
    parser.add_argument("--annotate", type=Path, metavar="DIR", help=text)
    text = "folder for a straightened picture of each plate"
    parser.add_argument("--crops", type=Path, metavar="DIR", help=text)
    text = "seconds between the frames that are read of a video; 0 reads all frames"
    add_number(parser, "--every", 0.5, text)
    add_nets(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read all inputs; returns 1 if one could not be read, else 0."""
    inputs = find_inputs(arguments.paths)
    jpegs = Jpegs(inputs, arguments.annotate, arguments.crops)
    nets = load_nets(arguments)
    model = {"device": nets.device, "engine": nets.engine}
    if arguments.csv and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # names keep their bytes
    table = None if arguments.json or arguments.csv else Table(inputs)
    if arguments.csv:
        print(*CSV_COLUMNS, sep=",")
    with closing(inputs.pictures(arguments.every)) as pictures:
        for picture in pictures:
            plates = [
                answer_of(plate.reading, plate.box, plate.quad, plate.detection_score)
                for plate in nets.read(picture.image)
            ]
            with tqdm.external_write_mode(sys.stdout):
                if table:
                    table.print(picture, plates)
                elif arguments.csv:
                    _print_csv(picture, plates)
                else:
                    _print_json(picture, plates, model)
                sys.stdout.flush()
            jpegs.write(picture, plates)
    inputs.print_omissions()
    return 1 if inputs.failures else 0


def _print_json(picture: Picture, plates: list[Plate], model: dict[str, str]) -> None:
    height, width = picture.image.shape[:2]
    line: dict[str, object] = {"file": str(picture.file)}
    if picture.frame is not None:
        line |= {"frame": picture.frame, "time_s": picture.time_s}
    line["image"] = {"width": width, "height": height}
    line |= {"plates": [plate.model_dump() for plate in plates], "model": model}
    print(json.dumps(line, ensure_ascii=sys.stdout.encoding != "utf-8"))


def _print_csv(picture: Picture, plates: list[Plate]) -> None:
    name = str(picture.file)
    # The csv module quotes no control characters but line feeds.
    dialect = "excel" if name.isprintable() else "unix"  # quotes all fields
    rows = csv.writer(sys.stdout, dialect, lineterminator="\n")
    for plate in plates:
        readable = str(plate.readable).lower()
        reading = (plate.text, plate.format, plate.score, readable, plate.detection_score)
        rows.writerow((name, picture.frame, picture.time_s, *reading, *plate.box))
