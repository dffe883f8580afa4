"""What is done: a chunk is, as soon as its file is there under its name.

The file holds the rows, and in its metadata what else happened to the chunk: how many photos,
which failed and why, and when. So rows and failures are committed by the same rename, and
``failed.csv`` can be written anew from the files at any time.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from plates.bulk import OutputError, require
from plates.bulk.output import Output, write_whole
from plates.bulk.rows import SCHEMA_VERSION, schema
from plates.bulk.source import Unlisted

_NAME = re.compile(r"part-(\d{8,})\.parquet")
_KEY = b"plates.bulk"
FAILED_COLUMNS = ("photo", "reason", "message")


@dataclass(frozen=True)
class Failure:
    """A photo that could not be read.

    Attributes:
        photo: Its path or URL.
        reason: A stable word in kebab case.
        message: For people.
    """

    photo: str
    reason: str
    message: str


@dataclass(frozen=True)
class Account:
    """What is committed with the rows of a chunk.

    Attributes:
        chunk: Its number.
        photos: How many it has.
        plates: Found in them.
        failures: Those of them that could not be read.
        deaths: Of processes, while they worked on it.
        process: Which process computed it: host and number.
        began, ended: When, in seconds since 1970.
    """

    chunk: int
    photos: int
    plates: int
    failures: tuple[Failure, ...]
    deaths: int
    process: str
    began: float
    ended: float


def commit(output: Output, account: Account, rows: list[dict[str, Any]]) -> None:
    """Write a chunk: rows and account together, once and for all.

    Raises:
        OSError: It can't be written, as on a full disk; the chunk is not committed.
    """
    arrow, parquet = require("pyarrow", "pyarrow.parquet")
    about = json.dumps({"schema": SCHEMA_VERSION, **asdict(account)}, ensure_ascii=False)
    table = arrow.Table.from_pylist(rows, schema().with_metadata({_KEY: about.encode()}))
    # Made in memory: a tenth of a megabyte, and errors of the disk are Python's own.
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, compression="zstd")
    path = output.plates / f"part-{account.chunk:08d}.parquet"
    write_whole(path, lambda file: file.write(buffer.getbuffer()))


def committed(output: Output) -> set[int]:
    """Number the chunks that are done."""
    found = (_NAME.fullmatch(path.name) for path in output.plates.iterdir())
    return {int(match[1]) for match in found if match}


def account_of(output: Output, chunk: int) -> Account:
    """Read what was committed with a chunk.

    Raises:
        OutputError: The file is damaged, or not ours.
    """
    arrow, parquet = require("pyarrow", "pyarrow.parquet")
    path = output.plates / f"part-{chunk:08d}.parquet"
    try:
        about = json.loads(parquet.read_schema(path).metadata[_KEY])
        failures = tuple(Failure(**failure) for failure in about.pop("failures"))
        del about["schema"]
        return Account(failures=failures, **about)
    except (OSError, arrow.ArrowException, KeyError, TypeError, ValueError) as error:
        raise OutputError(
            f"{path}: expected a finished chunk of ours, got {error}. "
            f"Remove the file, and run again to have it read anew."
        ) from error


def accounts(output: Output, chunks: Iterable[int]) -> Iterator[Account]:
    """Read the accounts of chunks, one after the other; errors as of `account_of`."""
    return (account_of(output, chunk) for chunk in chunks)


def write_failed(output: Output, unlisted: Iterable[Unlisted], done: Iterable[Account]) -> None:
    """Write ``failed.csv``; errors as of `output.write_whole`."""

    def write(file: Any) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(FAILED_COLUMNS)
        lines.writerows((entry.folder, entry.reason, entry.message) for entry in unlisted)
        for account in done:
            lines.writerows((f.photo, f.reason, f.message) for f in account.failures)
        text.detach()

    write_whole(output.failed, write)
