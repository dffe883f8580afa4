"""Labelled photos: a folder with ``images/`` and one row per plate in ``plates.csv``."""

import csv
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from plate_models.images import ImageError, check_header, decode
from plate_models.images.files import SUFFIXES
from plate_models.images.outline import SIDEWAYS
from plate_models.rectification import batches_of

# Number of consecutive frames of a dashcam clip that go to the same side of the split.
_RUN_LENGTH = 8
_CLIP = re.compile(r"(?P<clip>ro_\w+)\.mp4_t_(?P<second>\d+)\.\w+$")

_FINDINGS = Path(__file__).parent / "world_seen.json"

Box = tuple[float, float, float, float]


class LabelError(Exception):
    """A table of labels is invalid; the message names file and line."""


@dataclass(frozen=True)
class LabelledPlate:
    """One labelled plate."""

    box: Box  # x0, y0, x1, y1 in pixels of the upright photo, as `images.decode` gives it
    text: str = ""  # in Latin letters; "" if not labelled
    legible: bool = False  # whether a person can read every character
    lines: int = 1  # of text, 1 or 2
    kind: str = ""  # a format such as "ru.car", or a country; "" if not labelled
    # Corners TL, TR, BR, BL in pixels of the upright photo; known for rendered plates, else ().
    quad: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Findings:
    """A person's findings in a photo in addition to its labels; boxes have the same coordinates."""

    # CRC-32 of the texts on the plates: the recognizer learns those of its own candidates that are
    # among them. None if no person checked the photo.
    texts: tuple[int, ...] | None = None
    plates: tuple[Box, ...] = ()  # without a label
    unclear: tuple[Box, ...] = ()  # possible plates
    mistaken: tuple[Box, ...] = ()  # no plates, though a detector found them


@dataclass(frozen=True)
class LabelledPhoto:
    """A photo and its labelled plates, if any."""

    path: Path
    plates: tuple[LabelledPlate, ...] = ()
    findings: Findings = Findings()

    def read(self) -> NDArray[np.uint8]:
        """Decode to (H, W, 3) uint8 RGB, upright; raises `ImageError`, which names the file."""
        try:
            return decode(self.path.read_bytes())
        except ImageError as error:
            raise ImageError(f"{self.path}: {error}") from error


def load_labels(folder: Path) -> list[LabelledPhoto]:
    """Read a labelled set, sorted by file name.

    The folder holds ``images/``, or the images themselves, and ``plates.csv`` with the columns
    image (or photo), x0, y0, x1, y1 (pixels of the image as stored, before EXIF turns it upright),
    and optionally text, legible (0 or 1; default 1 for plates with a text), lines (1 or 2; default
    1), and country or kind. Spaces in texts are ignored. Raises FileNotFoundError if ``plates.csv``
    or a listed image is missing, LabelError if there is no row, or one is invalid or repeats a box.
    """
    plates: dict[Path, list[LabelledPlate]] = defaultdict(list)
    path, images = folder / "plates.csv", folder / "images"
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        try:
            for row in reader:
                name = row["photo" if "photo" in row and "image" not in row else "image"]
                image = (images if images.is_dir() else folder) / name
                plate = _plate(row, image)
                if plate.box in (other.box for other in plates[image]):
                    raise ValueError(f"{name} has that box already")
                plates[image].append(plate)
            if not plates:
                raise ValueError("expected a row for each plate, found none")
        except (KeyError, TypeError, ValueError, csv.Error) as error:  # ValueError if not UTF-8
            column = f"no column {error} in {reader.fieldnames}: separate columns by commas"
            reason = column if isinstance(error, KeyError) else error
            raise LabelError(f"{path}, line {reader.line_num}: {reason}") from error
    return [LabelledPhoto(image, tuple(found)) for image, found in sorted(plates.items())]


def _plate(row: dict[str, str], image: Path) -> LabelledPlate:
    """Parse a row; raises KeyError, TypeError (row too short) or ValueError if it is invalid."""
    x0, y0, x1, y1 = (float(row[key]) for key in ("x0", "y0", "x1", "y1"))
    text, lines = (row.get("text") or "").replace(" ", ""), row.get("lines") or "1"
    legible = row.get("legible") or "01"[bool(text)]
    if not (-inf < x0 < x1 < inf and -inf < y0 < y1 < inf):
        raise ValueError(f"expected x0 < x1 and y0 < y1, got {x0:g}, {y0:g}, {x1:g}, {y1:g}")
    if lines not in ("1", "2"):
        raise ValueError(f"lines: expected 1 or 2, got {lines!r}")
    if legible not in ("0", "1") or (legible == "1" and not text):
        raise ValueError(f"legible: expected 0, or 1 where there is a text, got {legible!r}")
    if legible == "1" and (not re.fullmatch("[0-9A-ZÀ-Ž]+", text) or text != text.upper()):
        raise ValueError(f"text: expected Latin (no Cyrillic) capitals and digits, got {text!r}")
    if not image.is_file():
        raise FileNotFoundError(f"{image} is labelled, but missing")
    box, kind = _upright((x0, y0, x1, y1), image), row.get("country") or row.get("kind", "")
    return LabelledPlate(box, text, legible == "1", int(lines), kind)


def _upright(box: Box, path: Path) -> Box:
    """Transform a box from pixels of the stored image to those of the upright image.

    An image that can't be read leaves the box unchanged: the decoder will report its error.
    """
    try:
        _, width, height, orientation = check_header(path.read_bytes())
    except ImageError:
        return box
    x0, y0, x1, y1 = box
    w, h = (height, width) if orientation in SIDEWAYS else (width, height)  # as stored
    if min(x1, y1) <= 0 or x0 >= w or y0 >= h or min(x1 - x0, y1 - y0) < 1:
        raise ValueError(f"expected pixels of the stored photo of {w} x {h}, got the box {box}")
    if orientation in SIDEWAYS:  # transposed, then like 1 to 4
        x0, y0, x1, y1 = y0, x0, y1, x1
    if orientation in (2, 3, 6, 7):
        x0, x1 = width - x1, width - x0
    if orientation in (3, 4, 7, 8):
        y0, y1 = height - y1, height - y0
    return x0, y0, x1, y1


def load_world_photos(data: Path, held_out: bool) -> list[LabelledPhoto]:
    """List ``world_photos`` of a data folder: the training part or the held-out fifth."""
    photos = load_labels(data / "world_photos")
    chosen = validation_names(photo.path.name for photo in photos)
    known = TypeAdapter(dict[str, Findings]).validate_json(_FINDINGS.read_bytes())
    return [
        replace(photo, findings=known.get(photo.path.name, Findings()))
        for photo in photos
        if (photo.path.name in chosen) == held_out
    ]


def load_negatives(folder: Path, held_out: bool) -> list[LabelledPhoto]:
    """List photos without plates: the training half or the held-out half (odd CRC-32 of names)."""
    return [
        LabelledPhoto(path)
        for path in sorted(folder.rglob("*.*"))
        if path.suffix.lower() in SUFFIXES and bool(zlib.crc32(path.name.encode()) % 2) == held_out
    ]


def validation_names(names: Iterable[str]) -> set[str]:
    """Choose the held-out photos: a fifth, by ``crc32(name) % 5``.

    Neighbouring frames of a dashcam clip show the same cars, so a run of frames goes to the side of
    its first frame.
    """
    runs, clips = list[list[str]](), defaultdict(list)
    for name in names:
        if match := _CLIP.match(name):
            clips[match["clip"]].append((int(match["second"]), name))
        else:
            runs.append([name])
    for frames in clips.values():
        runs += batches_of([name for _, name in sorted(frames)], _RUN_LENGTH)
    return {name for run in runs if zlib.crc32(run[0].encode()) % 5 == 0 for name in run}
