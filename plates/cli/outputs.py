"""The output of `plates read` and `plates demo`: a table, annotated pictures, single plates."""

import os
from pathlib import Path

from api.answers import Plate
from plates.cli import CommandError, printable
from plates.cli.inputs import Inputs, Picture, shown

# A longer file name shifts only its own line to the right.
_WIDEST_NAME = 60
# In bytes: a file name has at most 255, of which frame, plate and text need some.
_LONGEST_STEM = 200


class Table:
    """One line per plate; photos without plates show a dash."""

    def __init__(self, inputs: Inputs, timed: bool = False) -> None:
        # A frame's name ends with its time.
        widths = [len(shown(path)) + 9 * (kind == "video") for path, kind in inputs.kinds.items()]
        self._width = min(_WIDEST_NAME, max([*widths, len("photo")]))
        more = f" {'ms':>6}" if timed else ""
        print(f"{'photo':<{self._width}} {'text':<12} {'format':<14} {'score':>6}{more}")

    def print(self, picture: Picture, plates: list[Plate], ms: float | None = None) -> None:
        """Print one picture's lines; `ms` is how long it took to read."""
        time = "" if ms is None else f" {ms:>6.1f}"
        at = "" if picture.time_s is None else f" {picture.time_s:.2f}s"
        name = f"{shown(picture.file) + at:<{self._width}}"
        for plate in plates:
            print(f"{name} {plate.text or '?':<12} {plate.format:<14} {plate.score:>6.3f}{time}")
        if not plates and picture.frame is None:
            print(f"{name} {'-':<34}{time}")


class Jpegs:
    """Writes pictures with their plates drawn in, and single plates, named after the inputs."""

    def __init__(self, inputs: Inputs, annotated: Path | None, plates: Path | None = None) -> None:
        """Make the folders; raises `CommandError` if an output could replace an input."""
        self._annotated, self._plates = annotated, plates
        # By inode and device, as links give a file several paths.
        taken = {path.stat()[1:3] for path in inputs.kinds if os.path.exists(path)}
        for folder in filter(None, (annotated, plates)):
            for path in folder.glob("*.jpg"):
                if os.path.exists(path) and path.stat()[1:3] in taken:
                    text = "is one of the photos and would be replaced. Give another folder."
                    raise CommandError(f"{printable(path)} {text}")
            folder.mkdir(parents=True, exist_ok=True)
        owners: dict[str, Path] = {}
        for path in inputs.kinds:
            name = path.stem
            while len(os.fsencode(name)) > _LONGEST_STEM:
                name = name[:-1]
            stem, number = name, 2
            while owners.setdefault(stem, path) != path:  # numbered if the name is taken
                stem, number = f"{name}-{number}", number + 1
        self._stems = {path: stem for stem, path in owners.items()}

    def write(self, picture: Picture, plates: list[Plate]) -> None:
        """Write the picture, if it is a photo or has plates, and a picture of each plate."""
        from plates.annotate import annotate, straighten, write_jpeg

        frame = "" if picture.frame is None else f"_{picture.frame:06d}"
        stem = self._stems[picture.file] + frame
        if self._annotated and (plates or not frame):
            write_jpeg(self._annotated / f"{stem}.jpg", annotate(picture.image, plates))
        if self._plates:
            for number, plate in enumerate(plates, 1):
                name = f"{stem}_plate{number}_{plate.text or 'unreadable'}.jpg"
                write_jpeg(self._plates / name, straighten(picture.image, plate.quad))
