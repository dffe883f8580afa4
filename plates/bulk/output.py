"""The folder that a run writes to: who may, what is where, files that are whole or not there.

plates/part-00000000.parquet   a committed chunk: see `rows` and `ledger`
listing/                       what the source held: see `listing`
work/                          what is under way: see `journal`
manifest.json                  settings, weights, counts, state
failed.csv                     every photo and folder that could not be read, and why
"""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from plates.bulk import OutputError

_TEMPORARY = ".tmp"
_LOCK = ".lock"


class Output:
    """Paths below the output folder.

    Attributes:
        folder: It.
        plates, listing, work: Folders.
        manifest, failed: Files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plates, self.listing = folder / "plates", folder / "listing"
        self.work = folder / "work"
        self.manifest, self.failed = folder / "manifest.json", folder / "failed.csv"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folders and keep every other run out.

        Raises:
            OutputError: Another run writes there, or the folder can't be made.
        """
        try:
            for folder in (self.plates, self.listing, self.work):
                folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / _LOCK).open("a+", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{self.folder}: {error.strerror}") from error
        with file:
            # The system lets go of it when the process ends, however it ends.
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                owner = file.read().strip() or "another process"
                raise OutputError(
                    f"{self.folder}: {owner} is writing there. Wait for it, or give another --out."
                ) from error
            file.truncate(0)
            with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
                file.write(f"process {os.getpid()} on {socket.gethostname()}")
                file.flush()
            yield

    def remove_leftovers(self) -> int:
        """Remove what killed processes left half-written.

        Returns:
            How many files.
        """
        found = [
            path
            for folder in (self.folder, self.plates, self.listing)
            for path in folder.glob(f".*{_TEMPORARY}")
        ]
        for path in found:
            path.unlink(missing_ok=True)
        return len(found)


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file that is there whole or not at all, whatever dies meanwhile.

    Args:
        path: Of the file; what was there before is replaced.
        write: Is handed the open file. Readers of the folder don't see it before its end:
            its name begins with a dot.

    Raises:
        OSError: It can't be written; the disk may be full. What was there before stays.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}{_TEMPORARY}")
    try:
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """The rename itself must reach the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document; errors as of `write_whole`."""
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a document.

    Returns:
        It, or None if there is no such file.

    Raises:
        OutputError: It is damaged or can't be read.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: expected our JSON, got {error}; give another --out") from error
    if not isinstance(document, dict):
        raise OutputError(f"{path}: expected our JSON, got another; give another --out")
    return document
