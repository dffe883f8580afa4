"""Photos and videos named on the command line, one picture after the other."""

import glob
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from plate_models.images import ImageError, decode
from plate_models.images.files import SUFFIXES as PHOTO_SUFFIXES
from plates.cli import CommandError

VIDEO_SUFFIXES = {".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".ts", ".wmv"}


class InputError(Exception):
    """A file or folder that can't be read; the message says why."""


@dataclass(frozen=True)
class Picture:
    """A photo, or one frame of a video.

    Attributes:
        file: The file it came from.
        image: (H, W, 3) uint8 RGB, upright.
        frame: Number of the frame from 0; None for a photo.
        time_s: Seconds from the video's start; None for a photo.
    """

    file: Path
    image: NDArray[np.uint8]
    frame: int | None = None
    time_s: float | None = None


def is_video(path: Path) -> bool:
    """Tell videos from photos, by the name."""
    return path.suffix.lower() in VIDEO_SUFFIXES


def find_files(names: Iterable[str]) -> tuple[list[Path], dict[str, str]]:
    """Find the files that arguments mean: files, folders with all below them, patterns.

    Args:
        names: As typed; a pattern may hold *, ?, [] and **.

    Returns:
        The files, each once, in the order of the arguments and by name within one; and
        for each argument that means no file at all, why.
    """
    found: dict[Path, None] = {}
    failures: dict[str, str] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            below = [p for p in sorted(path.rglob("*")) if _is_readable_type(p)]
        elif path.exists() or not glob.has_magic(name):
            below = [path]
        else:
            # Path.glob takes no absolute patterns.
            matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207
            below = [Path(match) for match in matches if Path(match).is_file()]
        if not below:
            failures[name] = "no photos or videos there"
        found |= dict.fromkeys(below)
    return list(found), failures


def _is_readable_type(path: Path) -> bool:
    return path.suffix.lower() in PHOTO_SUFFIXES | VIDEO_SUFFIXES and path.is_file()


def pictures(path: Path, every_s: float) -> Iterator[Picture]:
    """Open a photo or a video.

    Args:
        path: The file.
        every_s: Of a video, one frame in that many seconds; 0 takes every frame.

    Yields:
        One picture, or the chosen frames.

    Raises:
        InputError: The file can't be read.
    """
    if is_video(path):
        yield from _frames(path, every_s)
        return
    try:
        data = path.read_bytes()
        yield Picture(path, decode(data))
    except OSError as error:
        raise InputError(error.strerror or str(error)) from error
    except ImageError as error:
        raise InputError(str(error)) from error


def _frames(path: Path, every_s: float) -> Iterator[Picture]:
    if not path.is_file():
        raise InputError("No such file or directory")
    capture = cv2.VideoCapture(str(path))
    try:
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
        if number == 0:
            raise InputError("This video can't be decoded.")
    finally:
        capture.release()


def output_stems(files: Iterable[Path]) -> dict[Path, str]:
    """Choose names for what is written about each file.

    Args:
        files: The inputs.

    Returns:
        For each its name without suffix, numbered where two would be the same.
    """
    taken: set[str] = set()
    stems = {}
    for path in files:
        stem, number = path.stem, 1
        while stem in taken:
            number += 1
            stem = f"{path.stem}-{number}"
        taken.add(stem)
        stems[path] = stem
    return stems


def make_output_folder(folder: Path, stems: Mapping[Path, str]) -> None:
    """Make a folder for pictures of the inputs, unless one would replace an input.

    Args:
        folder: Where <stem>.jpg of photos and <stem>_….jpg of frames and plates will go.
        stems: As `output_stems` chose them.

    Raises:
        CommandError: A picture would replace an input, or the folder can't be made.
    """
    # By inode: the same file may have several paths, and links lead to it.
    inputs = {_inode(path) for path in stems if path.exists()}
    for stem in stems.values():
        written = [folder / f"{stem}.jpg", *folder.glob(f"{glob.escape(stem)}_*.jpg")]
        for target in written:
            if target.exists() and _inode(target) in inputs:
                raise CommandError(
                    f"{target} is one of the photos and would be replaced. Give another folder."
                )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{folder}: {error.strerror}") from error


def _inode(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
