"""A photo's bytes, with patience for what passes by itself: time-outs, lost connections."""

import asyncio
import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from plate_models.images import TooManyBytes, too_many_bytes_message
from plate_models.spec import LIMITS, Limits

if TYPE_CHECKING:
    from plates.bulk.source import Photo

UNREACHABLE = "unreachable"
_PAUSES_S = (0.5, 2.0, 8.0)
# Where so many photos in a row stay out of reach, the storage is down: no more waiting there.
_DOWN_AFTER = 3
_FORBIDDEN, _MISSING = (401, 403), (404, 410)
_PASSING_STATUS = (408, 425, 429, 500, 502, 503, 504)
_PASSING_ERRNO = frozenset(
    getattr(errno, name)
    for name in (
        *("EAGAIN", "EIO", "ETIMEDOUT", "ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "EPIPE"),
        *("EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ENETDOWN", "ESTALE", "EREMOTEIO"),
    )
)
# Storages far away are waited for: these many photos at once. A disk has the next one ready.
_REMOTE_THREADS, _LOCAL_THREADS = 8, 1
_AHEAD = 2


@dataclass(frozen=True)
class Fetched:
    """A photo's file.

    Attributes:
        data: Its bytes.
        modified: When it was, in UTC without a zone; None where nobody knows.
    """

    data: bytes
    modified: datetime | None


def describe(error: BaseException) -> tuple[str, str]:
    """Name an error of a storage.

    Returns:
        A reason as in ``failed.csv`` ("missing", "forbidden", "unreachable", "unreadable"),
        and a message for people.
    """
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        error = error.__cause__  # fsspec calls a server missing that can't be reached
    message = " ".join((getattr(error, "strerror", None) or str(error)).split())
    message = message or type(error).__name__
    status = getattr(error, "status", None)  # of an HTTP answer
    if isinstance(error, FileNotFoundError | NotADirectoryError) or status in _MISSING:
        return "missing", f"not there: {message}"
    if isinstance(error, PermissionError) or status in _FORBIDDEN:
        return "forbidden", f"not allowed: {message}"
    if _passes(error, status):
        return UNREACHABLE, message
    return "unreadable", message


def _passes(error: BaseException, status: int | None) -> bool:
    """Whether another try may go better."""
    if status is not None:
        return status in _PASSING_STATUS
    if isinstance(error, ConnectionError | TimeoutError | asyncio.TimeoutError | EOFError):
        return True
    if isinstance(error, OSError) and error.errno in _PASSING_ERRNO:
        return True
    # aiohttp's and botocore's are no OSErrors.
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"ClientConnectionError", "ClientPayloadError", "ConnectionError"})


class Fetcher:
    """Reads photos of one source."""

    def __init__(
        self,
        source: str,
        limits: Limits = LIMITS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Open the source.

        Args:
            source: As for `source.find_photos`.
            limits: Larger files are not read.
            sleep: Waits between tries.

        Raises:
            SourceError: The storage can't be opened.
        """
        from plates.bulk.source import is_url, open_filesystem

        self._limits, self._sleep, self._down = limits, sleep, 0
        self._filesystem, self._is_http = None, source.startswith(("http://", "https://"))
        if is_url(source):
            self._filesystem = open_filesystem(source)[0]
        remote = getattr(self._filesystem, "async_impl", False)
        self._threads = _REMOTE_THREADS if remote else _LOCAL_THREADS

    def fetch_ahead(self, photos: "Sequence[Photo]") -> Iterator[tuple[int, "Future[Fetched]"]]:
        """Read the next photos while somebody works on the one before.

        Args:
            photos: In the order in which they are wanted.

        Yields:
            The index of each and what will hold its file; or raise what `fetch` does.
        """
        waiting: deque[tuple[int, Future[Fetched]]] = deque()
        with ThreadPoolExecutor(self._threads) as pool:
            try:
                for index, photo in enumerate(photos):
                    waiting.append((index, pool.submit(self.fetch, photo)))
                    if len(waiting) > _AHEAD * self._threads:
                        yield waiting.popleft()
                yield from waiting
            finally:
                pool.shutdown(cancel_futures=True)

    def fetch(self, photo: "Photo") -> Fetched:
        """Read one photo, again where that may help.

        Raises:
            TooManyBytes: It is larger than the limits allow.
            Exception: Whatever the storage raised last: see `describe`.
        """
        pauses = deque(() if self._down >= _DOWN_AFTER else _PAUSES_S)
        while True:
            try:
                fetched = self._read(photo)
            except Exception as error:
                if describe(error)[0] != UNREACHABLE:
                    raise
                if not pauses:
                    self._down += 1
                    raise
                self._sleep(pauses.popleft())
            else:
                self._down = 0
                return fetched

    def _read(self, photo: "Photo") -> Fetched:
        most = self._limits.max_bytes
        if photo.size is not None and photo.size > most:
            raise TooManyBytes(too_many_bytes_message(self._limits))
        modified = photo.modified
        if self._filesystem is None:
            with open(photo.path, "rb") as file:  # noqa: PTH123  bytes are no Path
                data = file.read(most + 1)
                seconds = os.fstat(file.fileno()).st_mtime
            modified = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
        else:
            data = self._read_remote(self._filesystem, os.fsdecode(photo.path), most + 1)
        if len(data) > most:
            raise TooManyBytes(too_many_bytes_message(self._limits))
        return Fetched(data, modified)

    def _read_remote(self, filesystem: Any, url: str, most: int) -> bytes:
        path = filesystem._strip_protocol(url.partition("::")[0])
        if not self._is_http:
            return bytes(filesystem.cat_file(path))
        # Web servers don't tell sizes in their pages: read as it comes, and no more than that.
        # Any size will do: left out, it would be asked for by a request of its own.
        with filesystem.open(path, "rb", block_size=0, size=1) as file:
            return bytes(file.read(most))
