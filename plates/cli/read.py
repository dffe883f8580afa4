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
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plates.cli.inputs import (
    InputError,
    Inputs,
    Picture,
    find_inputs,
    make_output_folder,
    output_stems,
    pictures,
    shown,
)
from plates.cli.options import add_engine, add_number, add_weights, load_nets

if TYPE_CHECKING:
    from api.answers import Plate
    from plate_models.engines.nets import Nets

Reader = Callable[[Picture], "list[Plate]"]
Writer = Callable[[Picture, "list[Plate]", float], None]

CSV_COLUMNS = (
    *("file", "frame", "time_s", "text", "format", "score", "readable", "detection_score"),
    *("x0", "y0", "x1", "y1"),
)
# More inputs than that get a progress bar, and so does a video.
_A_HANDFUL = 5
# A longer name moves its own line to the right, not all others.
_WIDEST_NAME = 60


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", nargs="+", metavar="FILE|DIR|GLOB|VIDEO")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object per picture")
    output.add_argument("--csv", action="store_true", help="one row per plate")
    text = "write the pictures with their plates drawn in"
    parser.add_argument("--annotate", type=Path, metavar="DIR", help=text)
    text = "write each plate, straightened, as a picture"
    parser.add_argument("--crops", type=Path, metavar="DIR", help=text)
    text = "of a video, read one frame in that many seconds; 0 reads all"
    add_number(parser, "--every", 0.5, text)
    add_weights(parser)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read everything; the exit status is 1 if something could not be read."""
    inputs = find_inputs(arguments.paths)
    for folder in filter(None, (arguments.annotate, arguments.crops)):
        make_output_folder(folder, inputs.kinds)
    nets = load_nets(arguments)
    write = _writer(arguments, inputs, {"device": nets.device, "engine": nets.engine})
    folders = arguments.annotate, arguments.crops
    read_inputs(inputs, lambda picture: _read(picture, nets), write, *folders, arguments.every)
    inputs.print_omissions()
    return 1 if inputs.failures else 0


def read_inputs(
    inputs: Inputs,
    read: Reader,
    write: Writer,
    annotated: Path | None = None,
    crops: Path | None = None,
    every_s: float = 0,
) -> None:
    """Read inputs under a progress bar; what can't be read is added to the failures.

    `read` gives a picture's plates, or raises InputError; `write` also gets the milliseconds that
    it took. `annotated` and `crops` are folders for pictures of all plates.
    """
    from tqdm import tqdm

    stems, count = output_stems(inputs.kinds), len(inputs.kinds)
    few = count <= _A_HANDFUL and "video" not in inputs.kinds.values()
    # None: unless stderr is a terminal.
    with tqdm(total=count, unit="picture", file=sys.stderr, disable=few or None) as bar:
        for path, kind in inputs.kinds.items():
            bar.set_postfix_str(shown(path), refresh=False)
            try:
                for picture in pictures(path, kind, every_s, bar):
                    began = time.perf_counter()
                    plates = read(picture)
                    with bar.external_write_mode(sys.stdout):
                        write(picture, plates, 1e3 * (time.perf_counter() - began))
                        sys.stdout.flush()
                    _write_pictures(annotated, crops, stems[path], picture, plates)
            except InputError as error:
                inputs.failures[str(path)] = str(error)
                bar.update()


def _read(picture: Picture, nets: "Nets") -> "list[Plate]":
    """Read one picture in this process, into the JSON of an answer."""
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


def _write_pictures(
    annotated: Path | None, crops: Path | None, stem: str, picture: Picture, plates: "list[Plate]"
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


def _writer(arguments: argparse.Namespace, inputs: Inputs, model: Mapping[str, str]) -> Writer:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names that are not UTF-8: CSV keeps their bytes, JSON escapes them.
        sys.stdout.reconfigure(errors="surrogateescape" if arguments.csv else "backslashreplace")
    if arguments.json:
        return lambda picture, plates, _: _write_json(picture, plates, model)
    return _csv_writer() if arguments.csv else table_writer(inputs)


def _write_json(picture: Picture, plates: "list[Plate]", model: Mapping[str, str]) -> None:
    height, width = picture.image.shape[:2]
    frame = {"frame": picture.frame, "time_s": picture.time_s}
    line = {
        "file": str(picture.file),
        **(frame if picture.frame is not None else {}),
        "image": {"width": width, "height": height},
        "plates": [plate.model_dump() for plate in plates],
        "model": dict(model),
    }
    print(json.dumps(line, ensure_ascii=False))


def _csv_writer() -> Writer:
    plain = csv.writer(sys.stdout, lineterminator="\n")
    quoted = csv.writer(sys.stdout, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(CSV_COLUMNS)

    def write(picture: Picture, plates: "list[Plate]", _: float) -> None:
        name = str(picture.file)
        # Of control characters, the module itself quotes line feeds only.
        writer = plain if name.isprintable() else quoted
        for plate in plates:
            readable = str(plate.readable).lower()
            reading = (plate.text, plate.format, plate.score, readable, plate.detection_score)
            writer.writerow((name, picture.frame, picture.time_s, *reading, *plate.box))

    return write


def table_writer(inputs: Inputs, timed: bool = False) -> Writer:
    """A heading now, then one line per plate; photos without plates show a dash."""
    # The names of a video's frames end in their times.
    widths = [len(shown(path)) + 9 * (kind == "video") for path, kind in inputs.kinds.items()]
    width = min(_WIDEST_NAME, max([*widths, len("photo")]))
    more = f" {'plate':>6} {'ms':>7}" if timed else ""
    print(f"{'photo':<{width}} {'text':<12} {'format':<14} {'score':>6}{more}")

    def write(picture: Picture, plates: "list[Plate]", ms: float) -> None:
        at = "" if picture.time_s is None else f" {picture.time_s:.2f}s"
        name = f"{shown(picture.file) + at:<{width}}"
        for plate in plates:
            more = f" {plate.detection_score:>6.3f} {ms:>7.1f}" if timed else ""
            reading = f"{plate.text or '?':<12} {plate.format:<14} {plate.score:>6.3f}"
            print(f"{name} {reading}{more}")
        if not plates and picture.frame is None:
            print(f"{name} -" + (f"{ms:>49.1f}" if timed else ""))

    return write
