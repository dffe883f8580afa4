"""What all uploads together may hold in memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from api.errors import Overloaded

Take = Callable[[int], None]


class UploadMemory:
    """The bytes that all uploads together hold in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0

    @contextmanager
    def share(self) -> Iterator[Take]:
        """Account for the bytes of one upload, until the context ends.

        Yields:
            To be called with the number of bytes that came; raises `Overloaded` where
            they are too many.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if self._used + count > self._limit:
                raise Overloaded(
                    "Too many photos are coming in at once. Try again shortly.", reason="memory"
                )
            self._used += count
            taken += count

        try:
            yield take
        finally:
            self._used -= taken
