"""Read the plates of photos and videos in this process: the service's pipeline, no server.

Files, folders (with all below them) and patterns can be mixed. A table goes to stdout, or
with --json one JSON object per line: `file`, `image` and `plates` as in the answer of
/v1/plates, `model` with the device and engine that read it, and for a frame of a video `frame`
and `time_s`; or with --csv one row per plate:

  file,frame,time_s,text,format,score,readable,detection_score,x0,y0,x1,y1

(frame and time_s are empty for photos; text is empty where a plate is not readable).
Types are recognized by the files' content. Files that can't be read don't stop the others; they
are named at the end, and the exit status is 1. Files in folders that are neither photos nor
videos are named, too, except those that commonly lie beside photos (.txt, .csv, .json, …).
"""

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tqdm import tqdm

from api.answers import Plate, plate_from
from plates.cli.inputs import Inputs, Picture, find_inputs, make_output_folder, shown
from plates.cli.options import add_engine, add_number, add_weights, load_nets

CSV_COLUMNS = (
    *("file", "frame", "time_s", "text", "format", "score", "readable", "detection_score"),
    *("x0", "y0", "x1", "y1"),
)
# A longer name moves its own line to the right, not all others.
_WIDEST_NAME = 60


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="FILE|DIR|GLOB|VIDEO")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object per picture")
    output.add_argument("--csv", action="store_true", help="one row per plate")
    text = "write the pictures with their plates drawn in"
    parser.add_argument("--annotate", type=Path, metavar="DIR", help=text)
    text = "write each plate, straightened, as a picture"
    parser.add_argument("--crops", type=Path, metavar="DIR", help=text)
    text = "of a video, read one frame in that many seconds; 0 reads all"
    add_number(parser, "--every", 0.5, text, metavar="SECONDS")
    add_weights(parser)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read everything; the exit status is 1 if something could not be read."""
    inputs = find_inputs(arguments.paths)
    for folder in filter(None, (arguments.annotate, arguments.crops)):
        make_output_folder(folder, inputs.kinds)
    import torch

    nets = load_nets(arguments)
    model = {"device": nets.device, "engine": nets.engine}
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names that are not UTF-8: CSV keeps their bytes, JSON escapes them.
        sys.stdout.reconfigure(errors="surrogateescape" if arguments.csv else "backslashreplace")
    table = None if arguments.json or arguments.csv else Table(inputs)
    if arguments.csv:
        print(*CSV_COLUMNS, sep=",")
    stems = output_stems(inputs.kinds)
    with closing(inputs.pictures(arguments.every)) as pictures:
        for picture in pictures:
            plates = [
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
            with tqdm.external_write_mode(sys.stdout):
                if table:
                    table.print(picture, plates)
                elif arguments.csv:
                    _print_csv(picture, plates)
                else:
                    _print_json(picture, plates, model)
                sys.stdout.flush()
            stem = stems[picture.file]
            write_pictures(picture, plates, stem, arguments.annotate, arguments.crops)
    inputs.print_omissions()
    return 1 if inputs.failures else 0


def _print_json(picture: Picture, plates: list[Plate], model: dict[str, str]) -> None:
    height, width = picture.image.shape[:2]
    frame = {"frame": picture.frame, "time_s": picture.time_s}
    line = {
        "file": str(picture.file),
        **(frame if picture.frame is not None else {}),
        "image": {"width": width, "height": height},
        "plates": [plate.model_dump() for plate in plates],
        "model": model,
    }
    print(json.dumps(line, ensure_ascii=False))


def _print_csv(picture: Picture, plates: list[Plate]) -> None:
    name = str(picture.file)
    rows = csv.writer(sys.stdout, lineterminator="\n")
    if not name.isprintable():  # Of control characters, the module quotes line feeds only.
        rows = csv.writer(sys.stdout, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for plate in plates:
        readable = str(plate.readable).lower()
        reading = (plate.text, plate.format, plate.score, readable, plate.detection_score)
        rows.writerow((name, picture.frame, picture.time_s, *reading, *plate.box))


class Table:
    """One line per plate; photos without plates show a dash."""

    def __init__(self, inputs: Inputs, timed: bool = False) -> None:
        # The names of a video's frames end in their times.
        widths = [len(shown(path)) + 9 * (kind == "video") for path, kind in inputs.kinds.items()]
        self._width = min(_WIDEST_NAME, max([*widths, len("photo")]))
        self._timed = timed
        more = f" {'plate':>6} {'ms':>7}" if timed else ""
        print(f"{'photo':<{self._width}} {'text':<12} {'format':<14} {'score':>6}{more}")

    def print(self, picture: Picture, plates: list[Plate], ms: float = 0) -> None:
        """Print one picture's lines; `ms` is how long it took to read."""
        at = "" if picture.time_s is None else f" {picture.time_s:.2f}s"
        name = f"{shown(picture.file) + at:<{self._width}}"
        for plate in plates:
            more = f" {plate.detection_score:>6.3f} {ms:>7.1f}" if self._timed else ""
            reading = f"{plate.text or '?':<12} {plate.format:<14} {plate.score:>6.3f}"
            print(f"{name} {reading}{more}")
        if not plates and picture.frame is None:
            print(f"{name} -" + (f"{ms:>49.1f}" if self._timed else ""))


def output_stems(files: Iterable[Path]) -> dict[Path, str]:
    """Name what is written about each file: its name without suffix, numbered if taken."""
    owners: dict[str, Path] = {}
    for path in files:
        stem, number = path.stem, 2
        while owners.setdefault(stem, path) != path:
            stem, number = f"{path.stem}-{number}", number + 1
    return {path: stem for stem, path in owners.items()}


def write_pictures(
    picture: Picture,
    plates: list[Plate],
    stem: str,
    annotated: Path | None,
    crops: Path | None = None,
) -> None:
    """Write the picture, if it is a photo or has plates, and each plate."""
    from plate_models.annotate import Mark, annotate, straighten, write_jpeg

    stem += "" if picture.frame is None else f"_{picture.frame:06d}"
    if annotated and (plates or picture.frame is None):
        marks = [Mark(plate.quad, plate.text or "?", plate.readable) for plate in plates]
        write_jpeg(annotated / f"{stem}.jpg", annotate(picture.image, marks))
    if crops:
        for number, plate in enumerate(plates, 1):
            name = f"{stem}_plate{number}_{plate.text or 'unreadable'}.jpg"
            write_jpeg(crops / name, straighten(picture.image, plate.quad))
