"""Photos and videos named on the command line."""

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plate_models.images import ImageError, decode
from plate_models.images.files import HEAD_BYTES, Kind, kind_of
from plates.cli import CommandError, printable

if TYPE_CHECKING:
    from tqdm import tqdm

# Names count only where the first bytes say nothing, as in damaged files.
_PHOTO = re.compile(
    r".*\.(jpe?g|png|webp|bmp|tiff?|gif|hei[cf]|avif|jxl|jp2|raw|dng|cr[23]|nef|arw|raf)", re.I
)
_VIDEO = re.compile(r".*\.(mp4|m4v|mov|avi|mkv|webm|mpe?g|ts|wmv)", re.I)
# What commonly lies beside photos, and is passed over without a word.
_COMPANION = re.compile(
    r".*\.(aae|csv|db|gpx|html?|ini|jsonl?|log|md|srt|svg|toml|tsv|txt|xml|xmp|ya?ml)", re.I
)
_MANY = 20


class InputError(Exception):
    """A file that can't be read; the message says why."""


@dataclass
class Inputs:
    """What the arguments mean."""

    # The files to read, each once, in the order of the arguments and by name within one;
    # "video", or any other kind for a photo.
    kinds: dict[Path, Kind] = field(default_factory=dict)
    # Why a file, folder or argument can't be read.
    failures: dict[str, str] = field(default_factory=dict)
    # Files in folders that are neither photos nor videos.
    skipped: list[str] = field(default_factory=list)

    def print_omissions(self) -> None:
        """Name on stderr what could not be read, and what was skipped."""
        if self.failures:
            print(f"{len(self.failures)} could not be read:", file=sys.stderr)
        for name, reason in self.failures.items():
            print(f"  {printable(name)}: {printable(reason)}", file=sys.stderr)
        if self.skipped:
            count = len(self.skipped)
            names = ", ".join(map(printable, self.skipped[:_MANY]))
            rest = f" and {count - _MANY} more" if count > _MANY else ""
            print(f"{count} skipped, neither photos nor videos: {names}{rest}", file=sys.stderr)


@dataclass(frozen=True)
class Picture:
    """A photo, or one frame of a video with its number from 0 and its time."""

    file: Path
    image: NDArray[np.uint8]  # (H, W, 3) RGB, upright
    frame: int | None = None
    time_s: float | None = None


def find_inputs(names: Iterable[str]) -> Inputs:
    """Find files, all below folders that is not hidden, and what matches patterns."""
    inputs = Inputs()
    for name in names:
        path = Path(name)
        if path.is_dir():
            found = _search(path, inputs)
        elif path.exists() or not glob.has_magic(name):
            found = [path]
        else:
            # Path.glob takes no absolute patterns.
            matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207
            found = [Path(match) for match in matches if Path(match).is_file()]
        if not found:
            inputs.failures.setdefault(name, "no photos or videos there")
        inputs.kinds |= {path: _kind_of_file(path) for path in found}
    return inputs


def _search(folder: Path, inputs: Inputs) -> list[Path]:
    """The photos and videos below a folder; other files are noted as skipped."""

    def failed(error: OSError) -> None:
        inputs.failures[str(error.filename)] = error.strerror or str(error)

    found = []
    walk = os.walk(folder, onerror=failed)
    for path in sorted(Path(root, name) for root, _, names in walk for name in names):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        # What exists and is not a file is a pipe or a socket; a broken link fails when read.
        if hidden or (path.exists() and not path.is_file()):
            continue
        if _kind_of_file(path) != "other":
            found.append(path)
        elif not _COMPANION.fullmatch(path.name):
            inputs.skipped.append(str(path))
    return found


def _kind_of_file(path: Path) -> Kind:
    if path.exists() and not path.is_file():
        return "photo"  # A pipe: it can be read only once.
    try:
        with path.open("rb") as file:
            kind = kind_of(file.read(HEAD_BYTES))
    except OSError:
        return "photo"  # Reading it fails again and says why.
    if kind != "other":
        return kind
    if _VIDEO.fullmatch(path.name):
        return "video"
    return "photo" if _PHOTO.fullmatch(path.name) else "other"


def pictures(path: Path, kind: Kind, every_s: float, bar: "tqdm[Any]") -> Iterator[Picture]:
    """Open a photo, or a video of which one frame is taken in `every_s` seconds (0: each frame).

    `bar` advances by photos and frames; its total counts a video as one until it is opened.

    Raises:
        InputError: The file can't be read.
    """
    if kind == "video":
        yield from _frames(path, every_s, bar)
        return
    try:
        data = path.read_bytes()
        image = decode(data)
    except OSError as error:
        raise InputError(error.strerror or str(error)) from error
    except ImageError as error:
        raise InputError(str(error)) from error
    if kind_of(data[:HEAD_BYTES]) == "unread":
        raise InputError("Of RAW files only a small preview can be read. Convert it to JPEG.")
    yield Picture(path, image)
    bar.update()


def _frames(path: Path, every_s: float, bar: "tqdm[Any]") -> Iterator[Picture]:
    import cv2

    capture = cv2.VideoCapture(str(path))
    try:
        bar.total = (bar.total or 1) + max(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) - 1)
        fps = capture.get(cv2.CAP_PROP_FPS) or 25.0
        number, next_s = 0, 0.0
        while capture.grab():
            time_s = number / fps
            # Half a frame of tolerance: sums of fractions miss the frame otherwise.
            if time_s + 0.5 / fps >= next_s:
                next_s += every_s
                done, frame = capture.retrieve()
                if done:
                    rgb = cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
                    yield Picture(path, np.asarray(rgb, np.uint8), number, round(time_s, 3))
            number += 1
            bar.update()
        if number == 0:
            raise InputError("This video can't be decoded.")
    finally:
        capture.release()


def shown(path: Path) -> str:
    """A path for people: relative to the current folder if it lies below it."""
    here = Path.cwd()
    return printable(path.relative_to(here) if path.is_relative_to(here) else path)


def output_stems(files: Iterable[Path]) -> dict[Path, str]:
    """Name what is written about each file: its name without suffix, numbered if taken."""
    stems: dict[Path, str] = {}
    taken: set[str] = set()
    for path in files:
        stem, number = path.stem, 1
        while stem in taken:
            number += 1
            stem = f"{path.stem}-{number}"
        taken.add(stem)
        stems[path] = stem
    return stems


def make_output_folder(folder: Path, inputs: Iterable[Path]) -> None:
    """Make a folder for JPEGs named after the inputs.

    Raises:
        CommandError: One of the inputs lies there and could be replaced.
    """
    # By inode: the same file may have several paths, and links lead to it.
    taken = {_inode(path) for path in inputs if path.exists()}
    for path in folder.glob("*.jpg"):
        if path.exists() and _inode(path) in taken:
            text = f"{path} is one of the photos and would be replaced. Give another folder."
            raise CommandError(text)
    folder.mkdir(parents=True, exist_ok=True)


def _inode(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
