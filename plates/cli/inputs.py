"""Photos and videos named on the command line."""

import glob
import os
import sys
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from plate_models.images import ImageError, decode
from plate_models.images.files import SUFFIXES
from plate_models.spec import LIMITS
from plates.cli import printable
from plates.file_kinds import COMPANION, HEAD_BYTES, Kind, kind_of

_VIDEOS = frozenset(
    {".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv"}
    | {".ts", ".mts", ".m2t", ".m2ts"}  # Transport streams have no signature.
)
_MOST_NAMES = 20


@dataclass(frozen=True)
class Picture:
    """A photo, or one frame of a video with its number from 0 and its time."""

    file: Path
    image: NDArray[np.uint8]  # (H, W, 3) RGB, upright
    frame: int | None = None
    time_s: float | None = None


@dataclass
class Inputs:
    """The files that the arguments name, in the order of the arguments; within one, by name."""

    kinds: dict[Path, Kind] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # path to reason
    skipped: list[str] = field(default_factory=list)  # files that are neither photos nor videos

    def pictures(self, every_s: float = 0) -> Generator[Picture, None, None]:
        """Yield photos, and a video's frames every `every_s` seconds (0: all); show the progress.

        Files that can't be read are added to `failures`. Close the generator after an error.
        """
        # disable=None: no bar unless stderr is a terminal. A video counts as 1 until it is opened.
        with tqdm(total=len(self.kinds), unit="picture", disable=None) as bar:
            for path, kind in self.kinds.items():
                bar.set_postfix_str(shown(path), refresh=False)
                try:
                    if kind == "video":
                        yield from _frames(path, every_s, bar)
                        continue
                    with path.open("rb") as file:  # not all of a file that is too large
                        data = file.read(LIMITS.max_bytes + 1)
                    yield Picture(path, decode(data))
                except (OSError, ImageError) as error:
                    self.failures[str(path)] = getattr(error, "strerror", None) or str(error)
                bar.update()

    def print_omissions(self) -> None:
        """List on stderr the files that could not be read, and those that were skipped."""
        if self.failures:
            print(f"{len(self.failures)} could not be read:", file=sys.stderr)
        for name, reason in self.failures.items():
            print(f"  {printable(name)}: {printable(reason)}", file=sys.stderr)
        if self.skipped:
            count = len(self.skipped)
            names = ", ".join(map(printable, self.skipped[:_MOST_NAMES]))
            rest = f" and {count - _MOST_NAMES} more" if count > _MOST_NAMES else ""
            print(f"{count} skipped, neither photos nor videos: {names}{rest}", file=sys.stderr)


def find_inputs(names: Iterable[str]) -> Inputs:
    """Find files by name or pattern, and below folders all files that are not hidden."""
    inputs = Inputs()
    for name in names:
        path = Path(name)
        # Path's own methods raise an error without permission.
        if os.path.isdir(path):
            found = _search(path, inputs)
        elif os.path.exists(path) or not glob.has_magic(name):
            found = {path: _kind_of_file(path)}
        else:
            # Path.glob takes no absolute patterns.
            matches = map(Path, sorted(glob.glob(name, recursive=True)))  # noqa: PTH207
            found = {match: _kind_of_file(match) for match in matches if os.path.isfile(match)}
        if not found:
            inputs.failures.setdefault(name, "no photos or videos there")
        inputs.kinds |= found
    return inputs


def _search(folder: Path, inputs: Inputs) -> dict[Path, Kind]:
    """Find the photos and videos below a folder; note other files as skipped."""

    def failed(error: OSError) -> None:
        inputs.failures[str(error.filename)] = error.strerror or str(error)

    found: dict[Path, Kind] = {}
    walk = os.walk(folder, onerror=failed)
    for path in sorted(Path(root, name) for root, _, names in walk for name in names):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        # Skip pipes and sockets, but not broken links, which fail when they are read.
        if hidden or (os.path.exists(path) and not os.path.isfile(path)):
            continue
        if (kind := _kind_of_file(path)) != "other":
            found[path] = kind
        elif not COMPANION.search(path.name):
            inputs.skipped.append(str(path))
    return found


def _kind_of_file(path: Path) -> Kind:
    if not os.path.isfile(path):  # a pipe, whose bytes can be read only once
        return "photo"
    try:
        with path.open("rb") as file:
            kind = kind_of(file.read(HEAD_BYTES))
    except OSError:
        return "photo"  # reading it later fails again, with the reason
    if kind != "other":
        return kind
    # Names decide only if the first bytes don't, as in damaged files.
    suffix = path.suffix.lower()
    return "photo" if suffix in SUFFIXES else "video" if suffix in _VIDEOS else "other"


def _frames(path: Path, every_s: float, bar: "tqdm[NoReturn]") -> Iterator[Picture]:
    import av

    number, broken, next_s = 0, 0, 0.0
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            bar.total = (bar.total or 1) - 1 + max(1, stream.frames)
            start_s = float((stream.start_time or 0) * (stream.time_base or 0))
            for packet in container.demux(stream):
                broken += packet.is_corrupt
                try:
                    frames = packet.decode()
                except av.error.InvalidDataError:  # the next packets may be intact
                    frames, broken = [], broken + 1
                for frame in frames:
                    time_s = number / 25 if frame.time is None else frame.time - start_s
                    late_s = time_s - next_s + 1e-3  # Times are rounded.
                    if late_s >= 0 or late_s < -every_s - 1:  # joined recordings: time jumps back
                        next_s = every_s + (next_s if 0 <= late_s < every_s else time_s)
                        rgb = np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90))
                        upright = np.ascontiguousarray(rgb, np.uint8)
                        yield Picture(path, upright, number, round(time_s, 3))
                    number += 1
                    bar.update()
    except (av.error.FFmpegError, IndexError) as error:
        if not number:
            raise ImageError("This video can't be decoded.") from error
        broken += 1
    if broken or not number:
        raise ImageError(f"This video is damaged: {number} frames of it could be decoded.")


def shown(path: Path) -> str:
    """The path to display: relative to the current folder if it lies below that folder."""
    here = Path.cwd()
    return printable(path.relative_to(here) if path.is_relative_to(here) else path)
