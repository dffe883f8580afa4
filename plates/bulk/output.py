"""The output folder of a run: rows, failures, lock. Every file is replaced atomically.

plates/part-00000000.parquet   a committed chunk: its rows, and its account in the metadata
listing.parquet                the files of the source: see `listing`
work/                          journals of chunks in progress: see `reading.Journal`
manifest.json                  settings, weights, counts, state
failed.csv                     every photo and folder that could not be read, and why
"""

import contextlib
import fcntl
import io
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow
from pyarrow import parquet
from pydantic import TypeAdapter

from plates.bulk import OutputError
from plates.bulk.source import Failure

_CHUNK_NAME = re.compile(r"part-(\d{8,})\.parquet")
_ACCOUNT_KEY = b"plates.bulk"
_TEMPORARY = ".tmp"

_PIXELS, _SCORE, _TEXT = pyarrow.float32(), pyarrow.float32(), pyarrow.string()
# The result's columns. The types are fixed: they never depend on what was found.
SCHEMA = pyarrow.schema(
    [
        pyarrow.field("photo", _TEXT, nullable=False),  # path or URL in the source
        ("plate", pyarrow.int32()),  # 0, 1, … in a photo; null: the photo has no plate
        ("text", _TEXT),  # in Latin look-alikes; "" if unreadable
        ("text_native", _TEXT),  # in the plate's own letters: "В840СК197"
        ("score", _SCORE),  # calibrated probability that the text is right
        ("readable", pyarrow.bool_()),
        ("format", _TEXT),  # such as "ru.car", or "unknown"
        ("region_code", _TEXT),  # null if the format has none
        ("region_name", _TEXT),
        ("lines", pyarrow.int8()),
        # The box, in pixels of the upright photo.
        *((side, _PIXELS) for side in ("x0", "y0", "x1", "y1")),
        # x, y of TL, TR, BR, BL. In fixed-size lists Arrow could not read nulls from Parquet.
        ("quad", pyarrow.list_(_PIXELS)),
        ("detection_score", _SCORE),
        # Best first.
        ("candidates", pyarrow.list_(pyarrow.struct([("text", _TEXT), ("score", _SCORE)]))),
        ("width", pyarrow.int32()),  # of the upright photo, in pixels
        ("height", pyarrow.int32()),
        ("time", pyarrow.timestamp("us")),
        ("time_source", _TEXT),  # "exif": the camera's clock; "file": the file's time in UTC
        ("model_version", _TEXT),
        ("weights", _TEXT),  # hash of the weights' manifest
    ]
)


@dataclass(frozen=True)
class Account:
    """The summary that is committed with the rows of a chunk."""

    chunk: int
    photos: int  # files in it
    plates: int
    failures: tuple[Failure, ...]
    deaths: int  # processes that died while they read it
    others: tuple[str, ...] = ()  # files that are no photos


_ACCOUNT_JSON = TypeAdapter(Account)


class Output:
    """The output folder, and paths in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plates, self.work = folder / "plates", folder / "work"
        self.listing = folder / "listing.parquet"
        self.manifest, self.failed = folder / "manifest.json", folder / "failed.csv"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folders, and lock them; raises OutputError if another run has the lock."""
        try:
            for folder in (self.plates, self.work):
                folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / ".lock").open("a+b", buffering=0)
        except OSError as error:
            raise OutputError(f"{self.folder}: {error.strerror}") from error
        with file:
            try:  # the system releases the lock when the process ends
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                owner = file.read().decode().strip() or "another process"
                raise OutputError(
                    f"{self.folder}: {owner} is writing there. Wait for it, or give another --out."
                ) from error
            file.truncate(0)
            with contextlib.suppress(OSError):  # a full disk: the lock works without
                file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
            for folder in (self.folder, self.plates):
                for left in folder.glob(f".*.{'[0-9a-f]' * 32}{_TEMPORARY}"):  # of a killed run
                    left.unlink()
            yield

    def commit(self, account: Account, rows: list[dict[str, Any]]) -> None:
        """Write a chunk, its rows and account together; on OSError it is not committed."""
        columns = SCHEMA.with_metadata({_ACCOUNT_KEY: _ACCOUNT_JSON.dump_json(account)})
        # Made in memory (0.1 MB), so that errors of the disk are Python's own.
        file = io.BytesIO()
        parquet.write_table(pyarrow.Table.from_pylist(rows, columns), file, compression="zstd")
        write_whole(self._chunk(account.chunk), file.getvalue())

    def committed(self) -> list[int]:
        """The numbers of the committed chunks, in order."""
        found = (_CHUNK_NAME.fullmatch(path.name) for path in self.plates.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def account(self, chunk: int) -> Account:
        """Read the account of a committed chunk; raises OutputError if the file is damaged."""
        path = self._chunk(chunk)
        try:
            return _ACCOUNT_JSON.validate_json(parquet.read_schema(path).metadata[_ACCOUNT_KEY])
        except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError) as error:
            raise OutputError(
                f"{path}: expected a chunk that this command wrote, got {error}. "
                f"Remove the file and run the command again, which reads the chunk again."
            ) from error

    def rows(self, chunk: int) -> list[dict[str, Any]] | None:
        """Read the rows of a chunk; None if it is not committed."""
        path = self._chunk(chunk)
        return list(parquet.ParquetFile(path).read().to_pylist()) if path.exists() else None

    def read_manifest(self) -> dict[str, Any]:
        """Read ``manifest.json``, empty if there is none; raises OutputError if it is damaged."""
        try:
            found = json.loads(self.manifest.read_text(encoding="utf-8"))
            return {**found, "settings": dict(found["settings"])}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            expected = f"{self.manifest}: expected the manifest of a run, got {error!r}"
            raise OutputError(f"{expected}. Give another --out.") from error

    def write_manifest(self, document: dict[str, Any]) -> None:
        """Write ``manifest.json``; raises OSError."""
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        write_whole(self.manifest, text.encode())

    def write_failed(self, failures: Iterable[Failure]) -> None:
        """Write ``failed.csv``; raises OSError."""
        import pandas  # not needed by the processes that read

        table = pandas.DataFrame(map(asdict, failures), columns=["photo", "reason", "message"])
        write_whole(self.failed, table.to_csv(index=False).encode())

    def _chunk(self, number: int) -> Path:
        return self.plates / f"part-{number:08d}.parquet"


def now() -> str:
    """The current time in UTC, in ISO format."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file atomically: on OSError, or if the process is killed, the old file stays."""
    # Programs that read the folder ignore names that begin with a dot.
    temporary = path.with_name(f".{path.name}.{uuid4().hex}{_TEMPORARY}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            # The rename is not synced: if a crash of the machine loses it, the chunk is read again.
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
