"""Labelled photos: a folder with ``images/`` and one row per plate in ``plates.csv``."""

import csv
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path


class LabelError(Exception):
    """A table of labels can't be understood; the message names file and line."""


@dataclass(frozen=True)
class LabelledPlate:
    """One labelled plate.

    Attributes:
        box: x0, y0, x1, y1 in pixels of the image as stored.
        text: What stands on it, in Latin letters; "" where it isn't labelled.
        legible: Whether a person can read every character.
        light: "day", "dark", or "" where it isn't labelled.
        lines: 1 or 2: in how many lines the text stands on the plate.
    """

    box: tuple[float, float, float, float]
    text: str = ""
    legible: bool = False
    light: str = ""
    lines: int = 1


@dataclass(frozen=True)
class LabelledPhoto:
    """A photo and the plates labelled in it; maybe none."""

    path: Path
    plates: tuple[LabelledPlate, ...] = ()


def load_labels(folder: Path) -> list[LabelledPhoto]:
    """Read a labelled set, sorted by file name.

    Args:
        folder: Holds ``images/`` and ``plates.csv`` with the columns image, x0, y0, x1,
            y1, and optionally text, legible (0 or 1), light, and lines (1 or 2; 1 where
            it is left out).

    Raises:
        FileNotFoundError: The folder has no ``plates.csv``, or a listed image is missing.
        LabelError: A row is not as described above.
    """
    plates: dict[str, list[LabelledPlate]] = defaultdict(list)
    path = folder / "plates.csv"
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        for row in reader:
            try:
                plates[row["image"]].append(_plate(row))
            except (KeyError, TypeError, ValueError) as error:
                reason = f"no column {error}" if isinstance(error, KeyError) else error
                raise LabelError(f"{path}, line {reader.line_num}: {reason}") from error
    photos = [
        LabelledPhoto(folder / "images" / name, tuple(plates[name])) for name in sorted(plates)
    ]
    missing = [photo.path for photo in photos if not photo.path.is_file()]
    if missing:
        raise FileNotFoundError(f"{path} lists {missing[0]}, which is not there")
    return photos


def _plate(row: dict[str, str]) -> LabelledPlate:
    """One row; a KeyError, TypeError (too short) or ValueError where it is broken."""
    x0, y0, x1, y1 = (float(row[key]) for key in ("x0", "y0", "x1", "y1"))
    lines = row.get("lines") or "1"
    if lines not in ("1", "2"):
        raise ValueError(f"lines: expected 1 or 2, got {lines!r}")
    return LabelledPlate(
        (x0, y0, x1, y1),
        row.get("text", ""),
        row.get("legible", "0") == "1",
        row.get("light", ""),
        int(lines),
    )


def load_negatives(folder: Path, held_out: bool) -> list[LabelledPhoto]:
    """List photos without plates: the half that is trained on, or the held-out one.

    Args:
        folder: Holds the images.
        held_out: Odd CRC-32 of the file name; the even half is for training.
    """
    files = sorted(path for path in folder.rglob("*.jpg"))
    return [
        LabelledPhoto(path)
        for path in files
        if bool(zlib.crc32(path.name.encode()) % 2) == held_out
    ]
