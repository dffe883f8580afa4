"""Lists the files of a folder, a pattern or any URL that fsspec opens, and reads their bytes."""

import glob
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urldefrag, urlsplit

import aiohttp
import tenacity
from fsspec.core import url_to_fs

from plate_models.images.files import SUFFIXES
from plate_models.spec import LIMITS
from plates.bulk import BulkError
from plates.file_kinds import COMPANION, HEAD_BYTES

UNREACHABLE = "unreachable"
_WEB, _WEB_TIMEOUT_S = ("http://", "https://"), 60
# Links of web pages that are no files.
_NO_FILES = ("mailto:", "javascript:", "tel:", "data:")
# The pauses between the tries are 0.5, 2 and 8 seconds.
_TRIES, _FIRST_PAUSE_S, _PAUSE_GROWTH = 4, 0.5, 4
# Photos fetched at a time: remote storages answer slowly, disks do not.
_REMOTE_THREADS, _LOCAL_THREADS, _AHEAD = 8, 1, 2
_FORBIDDEN, _MISSING = (401, 403), (404, 410)
_TRANSIENT_PACKAGES = ("aiohttp", "botocore", "paramiko")
_TRANSIENT_STATUS = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Photo:
    """A file as it was listed."""

    path: bytes  # a local path or a fsspec URL; names on Linux are bytes
    size: int | None = None
    modified: datetime | None = None  # in UTC, without a zone

    @property
    def name(self) -> str:
        """The path as text; bytes that are not UTF-8 are escaped."""
        return self.path.decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class Failure:
    """A photo that can't be read, or a folder that can't be listed: a line of ``failed.csv``."""

    photo: str
    reason: str
    message: str


def has_photo_suffix(path: str) -> bool:
    """Whether the name of a file, also on the web (a.jpg?x) or in an archive, is a photo's."""
    inside = urlsplit(path).path if path.startswith(_WEB) else path.partition("::")[0]
    return any(PurePosixPath(name).suffix.lower() in SUFFIXES for name in (path, inside))


def is_url(source: str) -> bool:
    """Tell URLs (``s3://…``, ``zip://…::…``) from paths."""
    return "://" in source or "::" in source


def find_photos(source: str) -> Iterator[Photo | Failure]:
    """List the files of a source that may be photos, then the folders that can't be read.

    Links to folders are not followed. Raises BulkError if the source itself can't be read.
    """
    try:
        yield from _find(source)
    except Exception as error:  # each storage raises its own kinds
        raise BulkError(f"{source}: {describe(error)[1]}") from error


def _find(source: str) -> Iterator[Photo | Failure]:
    filesystem, top, chain = _open_filesystem(source)
    files: Iterable[dict[str, Any]]
    if glob.has_magic(top) and not filesystem.exists(top):
        found = filesystem.glob(top, detail=True)
        # Ignore hidden files and folders, unless the pattern names them.
        files = [info for name, info in found.items() if name.count("/.") == top.count("/.")]
        if not files:  # glob hides a refusal, ls raises it
            filesystem.ls(top.partition("*")[0].rpartition("/")[0], detail=False)
    elif _is_single(filesystem, top):
        files = [filesystem.info(top)]
    else:
        files = _walk(filesystem, top)
    for info in files:
        name = info["name"]
        url = filesystem.unstrip_protocol(name) + chain if is_url(source) else name
        if "error" in info:
            yield Failure(_photo(url).name, *describe(info["error"]))
            continue
        try:
            found = filesystem.info(name) if info.get("islink") else info
        except OSError:  # a broken or circular link, or no permission: reading it raises the error
            found = {"type": "file"}
        if found["type"] not in ("directory", "other"):  # reading a pipe would never end
            when = found.get("LastModified") or found.get("mtime") or found.get("created")
            yield _photo(url, found.get("size"), when)


def _is_single(filesystem: Any, path: str) -> bool:
    if not path.startswith(_WEB):
        return bool(filesystem.info(path)["type"] == "file")
    # Web servers report everything as a file, even folders with an index page.
    named = has_photo_suffix(urlsplit(path).path)
    return named or "image/" in str(filesystem.info(path).get("mimetype"))


def _walk(filesystem: Any, top: str) -> Iterator[dict[str, Any]]:
    # fsspec's own walk omits folders without permission, and follows circular links of pages.
    waiting, known, refused = [top], {top.rstrip("/")}, []
    while waiting:
        folder = waiting.pop()
        try:
            entries = filesystem.ls(folder, detail=True)
        except Exception as error:  # each storage raises its own kinds
            if folder == top:
                raise
            refused.append({"name": folder, "error": error})
            continue
        for info in entries:
            path = (name := info["name"]).removeprefix(folder.rstrip("/") + "/")
            if name.startswith(_WEB):
                info["name"] = name = urldefrag(name).url
                path = "" if path.startswith(_NO_FILES) else urlsplit(name).path
            if info["type"] == "directory":
                key = name.rstrip("/")
                if key not in known and (key == "." or key.rpartition("/")[2][:1] != "."):
                    known.add(key)
                    waiting.append(name)
                elif name == f"{folder}/" and not name.startswith(_WEB):
                    # S3's key a//1.jpg: a folder without a name, which only a prefix lists.
                    entries += filesystem.find(folder, prefix="/", detail=True).values()
                continue
            file = path.rpartition("/")[2]
            if file and not file.startswith(".") and not COMPANION.search(file):
                yield info
    yield from refused


def _photo(path: str, size: int | None = None, when: object = None) -> Photo:
    if isinstance(when, int | float):
        # Damaged disks and tars have times that no datetime can hold: accept up to the year 6325.
        when = datetime.fromtimestamp(when, UTC) if 0 < when < 2**37 else None
    if isinstance(when, datetime):
        when = (when.astimezone(UTC) if when.tzinfo else when).replace(tzinfo=None)
    return Photo(os.fsencode(path), size, when if isinstance(when, datetime) else None)


def _open_filesystem(source: str) -> tuple[Any, str, str]:
    """Open a URL: fsspec's file system, the path in it, and the rest of the chain (::x.zip)."""
    settings: dict[str, Any] = {"skip_instance_cache": True}
    if source.startswith(_WEB):
        settings["client_kwargs"] = {"timeout": aiohttp.ClientTimeout(total=_WEB_TIMEOUT_S)}
    _, chained, rest = source.partition("::")
    filesystem, path = url_to_fs(source, **({} if chained else settings))
    filesystem.dircache.use_listings_cache = False  # SFTP would pass the option on to SSH
    return filesystem, path, chained + rest


def describe(error: BaseException) -> tuple[str, str]:
    """The reason, in one word, and the message of a storage's error, as in ``failed.csv``."""
    if isinstance(error.__cause__, aiohttp.ClientError | TimeoutError):
        error = error.__cause__  # fsspec reports an unreachable web server as a missing file
    message = " ".join((getattr(error, "strerror", None) or str(error)).split())
    message = message or type(error).__name__
    status = getattr(error, "status", None)  # of an HTTP answer
    if isinstance(error, FileNotFoundError | NotADirectoryError) or status in _MISSING:
        return "missing", f"not there: {message}"
    if isinstance(error, PermissionError) or status in _FORBIDDEN:
        return "forbidden", f"not allowed: {message}"
    package = type(error).__module__.partition(".")[0]
    is_transient = isinstance(error, OSError | EOFError) or package in _TRANSIENT_PACKAGES
    if status is not None:
        is_transient = status in _TRANSIENT_STATUS
    return UNREACHABLE if is_transient else "unreadable", message


class Fetcher:
    """Reads the files of one source, with retries; of files that are too large only the start."""

    def __init__(self, source: str) -> None:
        self._tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: describe(error)[0] == UNREACHABLE),
            wait=tenacity.wait_exponential(_FIRST_PAUSE_S, exp_base=_PAUSE_GROWTH),
            stop=tenacity.stop_after_attempt(_TRIES),
            reraise=True,
        )
        self._source = source
        self._filesystem, _, self._chain = _open_filesystem(source)
        remote = getattr(self._filesystem, "async_impl", False)
        self._threads = _REMOTE_THREADS if remote else _LOCAL_THREADS

    def fetch_ahead(self, photos: Sequence[Photo]) -> Iterator[tuple[int, "Future[bytes]"]]:
        """Fetch files ahead of the caller; yields each file's index and its future, in order."""
        waiting: deque[tuple[int, Future[bytes]]] = deque()
        with ThreadPoolExecutor(self._threads) as pool:
            try:
                for index, photo in enumerate(photos):
                    waiting.append((index, pool.submit(self.fetch, photo)))
                    if len(waiting) > _AHEAD * self._threads:
                        yield waiting.popleft()
                yield from waiting
            finally:
                pool.shutdown(cancel_futures=True)

    def fetch(self, photo: Photo) -> bytes:
        """Read one file; raises the storage's last error (see `describe`)."""
        # Some storages know no sizes: one byte more than allowed shows that a file is too large.
        most = LIMITS.max_bytes + 1 if (photo.size or 0) <= LIMITS.max_bytes else HEAD_BYTES
        if photo.size == 0:
            return b""  # S3 refuses ranges of an empty file
        return bytes(self._tries(self._read, os.fsdecode(photo.path), most))

    def _read(self, path: str, most: int) -> bytes:
        if self._tries.statistics["attempt_number"] > 1:  # a lost SSH connection stays lost
            self._filesystem = _open_filesystem(self._source)[0]
        inside = path.removesuffix(self._chain)
        if not path.startswith(_WEB):
            inside = inside.partition("://")[2] or inside  # SFTP would cut off "?" and the rest
            return bytes(self._filesystem.cat_file(inside, start=0, end=most))
        data = bytearray()
        # The server may ignore ranges. Any `size` will do: without it fsspec sends another request.
        with self._filesystem.open(inside, "rb", block_size=0, size=1) as file:
            while len(data) < most and (part := file.read(most - len(data))):
                data += part  # each read returns only what has arrived
        return bytes(data)
