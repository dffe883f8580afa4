"""How far the run is: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from tqdm import tqdm

_LINE_EVERY_S = 15.0


class Progress:
    """Counts photos, and shows them on stderr."""

    def __init__(self, total: int, done: int, failed: int) -> None:
        """Begin.

        Args:
            total: Photos in the listing.
            done: Of them, by earlier runs.
            failed: Among these.
        """
        self.total, self.done, self.failed = total, done, failed
        self._before, self._began, self._shown = done, time.monotonic(), time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            self._bar = tqdm(total=total, initial=done, unit="photo", file=sys.stderr)
            self._bar.set_postfix(failed=failed)

    def add(self, photos: int, failed: int) -> None:
        """Count the photos of a chunk."""
        self.done += photos
        self.failed += failed
        if self._bar is not None:
            self._bar.set_postfix(failed=self.failed, refresh=False)
            self._bar.update(photos)
        elif time.monotonic() - self._shown >= _LINE_EVERY_S or self.done == self.total:
            self._shown = time.monotonic()
            self.say(self._line())

    def say(self, text: str) -> None:
        """Print a line without tearing the bar."""
        tqdm.write(text, file=sys.stderr)
        sys.stderr.flush()

    def _line(self) -> str:
        elapsed = max(time.monotonic() - self._began, 1e-9)
        rate = (self.done - self._before) / elapsed
        left = tqdm.format_interval((self.total - self.done) / rate) if rate else "?"
        return (
            f"{self.done:,} of {self.total:,} photos, {self.failed:,} failed, "
            f"{rate:.1f} photos/s, {left} left"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
