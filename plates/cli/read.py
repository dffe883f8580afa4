"""Read the plates of photos and videos in this process: the service's pipeline, no server.

Files, folders (with all below them) and patterns can be mixed. A table goes to stdout, or
with --json one JSON object per line: `file`, `image` and `plates` as in the answer of
/v1/plates, `model` with the device and engine that read it, and for a frame of a video `frame`
and `time_s`; or with --csv one row per plate:

  file,frame,time_s,text,format,score,readable,detection_score,x0,y0,x1,y1

(frame and time_s are empty for photos; text is empty where a plate is not readable).
Files that can't be read don't stop the others; they are named at the end, and the exit
status is 1.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from plates.cli.inputs import (
    InputError,
    Picture,
    find_files,
    is_video,
    make_output_folder,
    output_stems,
    pictures,
)
from plates.cli.options import add_engine, add_weights, load_nets
from plates.cli.output import csv_writer, json_writer, table_writer

if TYPE_CHECKING:
    from api.schemas import Plate
    from plate_models.engines.nets import Nets

# More inputs than that get a progress bar.
A_HANDFUL = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", nargs="+", metavar="FILE|DIR|GLOB|VIDEO")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object per picture")
    output.add_argument("--csv", action="store_true", help="one row per plate")
    parser.add_argument(
        "--annotate", type=Path, metavar="DIR", help="write the pictures with their plates drawn in"
    )
    parser.add_argument(
        "--crops", type=Path, metavar="DIR", help="write each plate, straightened, as a picture"
    )
    parser.add_argument(
        "--every",
        type=float,
        default=0.5,
        metavar="SECONDS",
        help="of a video, read one frame in that many seconds; 0 reads all (default: 0.5)",
    )
    add_weights(parser)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read everything.

    Returns:
        0, or 1 if something could not be read.

    Raises:
        CommandError: There are no weights, no such engine or device, or a photo would be
            written over.
    """
    files, failures = find_files(arguments.paths)
    stems = output_stems(files)
    for folder in filter(None, (arguments.annotate, arguments.crops)):
        make_output_folder(folder, stems)
    nets = load_nets(arguments)
    model = {"device": nets.device, "engine": nets.engine}
    json_lines = json_writer(model) if arguments.json else None
    write = json_lines or (csv_writer() if arguments.csv else table_writer())
    for picture in _all_pictures(files, arguments.every, failures):
        plates = _read(picture, nets)
        write(picture, plates)
        number = "" if picture.frame is None else f"_{picture.frame:06d}"
        stem = f"{stems[picture.file]}{number}"
        if arguments.annotate and (plates or picture.frame is None):
            _annotate(arguments.annotate / f"{stem}.jpg", picture, plates)
        if arguments.crops:
            _write_crops(arguments.crops, stem, picture, plates)
        sys.stdout.flush()
    if failures:
        print(f"{len(failures)} could not be read:", file=sys.stderr)
        for name, reason in failures.items():
            print(f"  {name}: {reason}", file=sys.stderr)
    return 1 if failures else 0


def _read(picture: Picture, nets: "Nets") -> "list[Plate]":
    """Read one picture, into the JSON of an answer."""
    import torch

    from api.answers import plate_from

    return [
        plate_from(
            text=plate.reading.text,
            score=plate.reading.score,
            format_name=plate.reading.format,
            box=plate.box,
            quad=plate.quad,
            detection_score=plate.detection_score,
            characters=plate.reading.characters,
            candidates=plate.reading.candidates,
        )
        for plate in nets.read(torch.from_numpy(picture.image))
    ]


def _all_pictures(files: list[Path], every_s: float, failures: dict[str, str]) -> Iterator[Picture]:
    """Open one file after the other, under a progress bar if they are many."""
    from tqdm import tqdm

    few = len(files) <= A_HANDFUL and not any(map(is_video, files))
    bar = tqdm(files, unit="file", file=sys.stderr, disable=few)
    for path in bar:
        bar.set_postfix_str(path.name, refresh=False)
        try:
            for picture in pictures(path, every_s):
                yield picture
                bar.refresh()
        except InputError as error:
            failures[str(path)] = str(error)


def _annotate(path: Path, picture: Picture, plates: "list[Plate]") -> None:
    from plate_models.annotate import Mark, annotate, write_jpeg

    marks = [Mark(plate.quad, plate.text or "?", plate.readable) for plate in plates]
    write_jpeg(path, annotate(picture.image, marks))


def _write_crops(folder: Path, stem: str, picture: Picture, plates: "list[Plate]") -> None:
    """One picture per plate, numbered in the order of the answer, named by what was read."""
    from plate_models.annotate import straighten, write_jpeg

    for number, plate in enumerate(plates, 1):
        name = f"{stem}_plate{number}_{plate.text or 'unreadable'}.jpg"
        write_jpeg(folder / name, straighten(picture.image, plate.quad))
