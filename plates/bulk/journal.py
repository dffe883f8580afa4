"""Which photo a process was at when it died: a photo that kills must not do it for ever.

One small file for each chunk under way: a line for each attempt, and one for each photo that
is begun. The photo at which an attempt ends without the chunk being committed is its last.
Not synced: it must outlive processes, not machines.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

DEATHS_ALLOWED = 3
_ATTEMPT = "attempt"


class Journal:
    """The journal of one chunk."""

    def __init__(self, folder: Path, chunk: int) -> None:
        """Read what earlier attempts left.

        Args:
            folder: For journals.
            chunk: The chunk's number.
        """
        self._path = folder / f"chunk-{chunk:08d}.journal"
        self._deaths: Counter[int] = Counter(_last_photos(self._path))
        self._descriptor = -1

    @property
    def deaths(self) -> int:
        """How many attempts ended at a photo."""
        return self._deaths.total()

    def is_deadly(self, photo: int) -> bool:
        """Whether a photo was the last of too many attempts."""
        return self._deaths[photo] >= DEATHS_ALLOWED

    def __enter__(self) -> Self:
        """Begin an attempt.

        Raises:
            OSError: It can't be written, as on a full disk.
        """
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._write(_ATTEMPT)
        return self

    def begin(self, photo: int) -> None:
        """Note that a photo, by its place in the chunk, is worked on from now; raises OSError."""
        self._write(str(photo))

    def _write(self, line: str) -> None:
        os.write(self._descriptor, f"{line}\n".encode())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the attempt alive: nothing is held against the photo it was at."""
        os.close(self._descriptor)
        with contextlib.suppress(OSError):
            self._path.unlink()


def _last_photos(path: Path) -> Iterator[int]:
    """The photo at which each attempt ended."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return
    last: int | None = None
    for line in [*lines, _ATTEMPT]:
        if line.isdecimal():
            last = int(line)
        elif last is not None:  # another attempt; or damage, after which nothing is known
            yield last
            last = None
