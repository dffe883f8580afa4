"""What a folder, a pattern or any URL that fsspec opens holds: photos, one after the other."""

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plate_models.images.files import SUFFIXES
from plates.bulk import SourceError, require
from plates.bulk.fetching import describe

_HTTP = ("http", "https")
# Of one request; a photo has at most 20 MB.
_HTTP_TIMEOUT_S = 60


@dataclass(frozen=True)
class Photo:
    """A photo as it was listed.

    Attributes:
        path: What opens it: a local path or a fsspec URL. Bytes: names on Linux are bytes.
        size: In bytes, where the listing told.
        modified: When the file was, in UTC without a zone, where the listing told.
    """

    path: bytes
    size: int | None = None
    modified: datetime | None = None

    @property
    def name(self) -> str:
        """The path as text; bytes that are no UTF-8 are written as escapes."""
        return self.path.decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class Unlisted:
    """A folder whose photos are not known.

    Attributes:
        folder: Its path or URL.
        reason: As in ``failed.csv``.
        message: For people.
    """

    folder: str
    reason: str
    message: str


def is_url(source: str) -> bool:
    """Tell URLs (``s3://…``, ``zip://…::…``) from paths."""
    return "://" in source or "::" in source


def absolute(source: str) -> str:
    """The source as every process of a cluster finds it."""
    return source if is_url(source) else str(Path(source).absolute())


def find_photos(source: str) -> Iterator[Photo | Unlisted]:
    """List the photos of a source, by their names; folders are not followed through links.

    Args:
        source: A folder, a photo or a pattern with ``*``; or a URL of one.

    Yields:
        Photos in the order in which the storage tells them, and folders that can't be read.

    Raises:
        SourceError: The source itself can't be read.
    """
    return _find_remote(source) if is_url(source) else _find_local(source)


def _find_local(source: str) -> Iterator[Photo | Unlisted]:
    path = Path(source)
    if path.is_dir():
        yield from _walk_local(source)
    elif path.exists():
        yield Photo(os.fsencode(source))
    elif glob.has_magic(source):
        # Path.glob takes no absolute patterns, and this one keeps no list.
        for match in glob.iglob(source, recursive=True):  # noqa: PTH207
            if Path(match).is_file():
                yield Photo(os.fsencode(match))
    else:
        raise SourceError(f"{source}: no such file or folder", "missing")


def _walk_local(top: str) -> Iterator[Photo | Unlisted]:
    """A folder with all below it; only the folders still to be read are kept in memory."""
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif _is_photo(entry.name) and entry.is_file():
                        yield Photo(os.fsencode(entry.path))
        except OSError as error:
            if folder == top:
                reason, message = describe(error)
                raise SourceError(f"{top}: {message}", reason) from error
            yield _unlisted(os.fsencode(folder).decode("utf-8", "backslashreplace"), error)


def _is_photo(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122  a million of them


def _unlisted(folder: str, error: Exception) -> Unlisted:
    return Unlisted(folder, *describe(error))


def open_filesystem(source: str) -> tuple[Any, str, str]:
    """Open the storage behind a URL.

    Returns:
        fsspec's file system, the path inside it, and what follows the path in a chained URL
        (``::/data/photos.zip``).

    Raises:
        SourceError: fsspec knows no such protocol, a package for it is missing, or what it
            is chained to can't be opened.
    """
    (core,) = require("fsspec.core")
    settings: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if urlsplit(source).scheme in _HTTP:
        (aiohttp,) = require("aiohttp")
        timeout = aiohttp.ClientTimeout(total=_HTTP_TIMEOUT_S)
        settings["client_kwargs"] = {"timeout": timeout}
    _, chained, rest = source.partition("::")
    try:
        filesystem, path = core.url_to_fs(source, **({} if chained else settings))
    except ImportError as error:
        raise SourceError(f"{source}: another package is needed: {error}") from error
    except ValueError as error:
        raise SourceError(f"{source}: {error}; `python -m fsspec` lists no such storage") from error
    except Exception as error:  # each storage raises its own kinds
        reason, message = describe(error)
        raise SourceError(f"{source}: {message}", reason) from error
    return filesystem, path, chained + rest


def _find_remote(source: str) -> Iterator[Photo | Unlisted]:
    filesystem, top, chain = open_filesystem(source)
    try:
        if glob.has_magic(top):
            found = filesystem.glob(top, detail=True)
            photos = [info for info in found.values() if info["type"] == "file"]
            if not photos:  # an empty answer may hide a refusal
                filesystem.ls(top.partition("*")[0].rpartition("/")[0], detail=False)
        elif _is_single(filesystem, top):
            photos = [filesystem.info(top)]
        else:
            yield from _walk_remote(filesystem, top, chain)
            return
    except SourceError:
        raise
    except Exception as error:  # each storage raises its own kinds
        reason, message = describe(error)
        raise SourceError(f"{source}: {message}", reason) from error
    yield from (_photo(filesystem, info, chain) for info in photos)


def _is_single(filesystem: Any, path: str) -> bool:
    """Web servers call everything a file, folders with an index page, too."""
    if urlsplit(path).scheme in _HTTP:
        return _is_photo(urlsplit(path).path)
    return bool(filesystem.info(path)["type"] == "file")


def _walk_remote(filesystem: Any, top: str, chain: str) -> Iterator[Photo | Unlisted]:
    waiting, known = [top], {top.rstrip("/")}
    while waiting:
        folder = waiting.pop()
        try:
            entries = filesystem.ls(folder, detail=True)
        except Exception as error:  # each storage raises its own kinds
            if folder == top:
                raise
            yield _unlisted(_url_of(filesystem, folder, chain), error)
            continue
        for info in entries:
            name = info["name"]
            if info["type"] == "directory":
                if name.rstrip("/") not in known:  # pages link back and forth
                    known.add(name.rstrip("/"))
                    waiting.append(name)
            elif _is_photo(urlsplit(name).path if urlsplit(name).scheme in _HTTP else name):
                yield _photo(filesystem, info, chain)


def _photo(filesystem: Any, info: dict[str, Any], chain: str) -> Photo:
    when = next((info[key] for key in ("LastModified", "mtime", "created") if key in info), None)
    if isinstance(when, (int, float)):
        when = datetime.fromtimestamp(when, UTC)
    if isinstance(when, datetime):
        when = when.astimezone(UTC).replace(tzinfo=None) if when.tzinfo else when
    else:
        when = None
    url = _url_of(filesystem, info["name"], chain)
    return Photo(os.fsencode(url), info.get("size"), when)


def _url_of(filesystem: Any, path: str, chain: str) -> str:
    return str(filesystem.unstrip_protocol(path)) + chain
