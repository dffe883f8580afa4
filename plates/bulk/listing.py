"""The snapshot of the source: its files, divided into chunks that never change.

The snapshot is one Parquet file with a row group per chunk, so that a chunk's photos are found by
its number even in an archive of millions. It is replaced atomically: it is always complete.
"""

import io
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet
from pydantic import TypeAdapter

from plates.bulk import OutputError
from plates.bulk.output import now, write_whole
from plates.bulk.source import Failure, Photo

_SCHEMA = pyarrow.schema(
    {"path": pyarrow.binary(), "size": pyarrow.int64(), "modified": pyarrow.timestamp("us")}
)
_LISTED_AT, _UNLISTED = b"listed_at", b"unlisted"
_FAILURES_JSON = TypeAdapter(list[Failure])


@dataclass(frozen=True)
class Listing:
    """The files of the source at the time of the listing."""

    path: Path
    photos: int
    chunks: int  # numbered from 0
    listed_at: str  # in ISO form, UTC
    unlisted: list[Failure]  # folders that could not be read

    def chunk(self, number: int) -> list[Photo]:
        """Read the photos of one chunk."""
        return [Photo(**row) for table in self.tables([number]) for row in table.to_pylist()]

    def tables(self, chunks: Iterable[int]) -> Iterator[pyarrow.Table]:
        """Read chunks as tables; the file's index, which is long, is read only once."""
        with parquet.ParquetFile(self.path) as file:
            yield from map(file.read_row_group, chunks)


def load_listing(path: Path) -> Listing:
    """Load a snapshot; raises OutputError if it is missing or damaged."""
    try:
        found = parquet.read_metadata(path)
        listed_at = found.metadata[_LISTED_AT].decode()
        unlisted = _FAILURES_JSON.validate_json(found.metadata[_UNLISTED])
    except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError) as error:
        raise OutputError(
            f"{path}: expected the listing of this run, got {error}. Give another --out: "
            f"runs of earlier versions have none. It must be a folder that all machines share."
        ) from error
    return Listing(path, found.num_rows, found.num_row_groups, listed_at, unlisted)


def take_listing(
    path: Path, found: Iterable[Photo | Failure], chunk_photos: int, before: Listing | None
) -> Listing:
    """Write a snapshot of the results of `find_photos`; raises OSError, and what `found` raises.

    Photos and chunks of the snapshot `before` stay; a photo that is found again is ignored.
    """
    known: set[bytes] = set()
    unlisted: list[Failure] = []

    def new_photos() -> Iterator[dict[str, Any]]:
        for entry in found:
            if isinstance(entry, Failure):
                unlisted.append(entry)
            elif entry.path not in known:  # pages of a gallery link to the same photos
                known.add(entry.path)
                yield asdict(entry)

    file, new = io.BytesIO(), new_photos()
    with parquet.ParquetWriter(file, _SCHEMA, compression="zstd") as writer:
        for table in before.tables(range(before.chunks)) if before else ():
            writer.write_table(table, len(table))
            known.update(table["path"].to_pylist())
        while chunk := list(itertools.islice(new, chunk_photos)):
            writer.write_table(pyarrow.Table.from_pylist(chunk, _SCHEMA), len(chunk))
        failures = _FAILURES_JSON.dump_json(unlisted)
        writer.add_key_value_metadata({_LISTED_AT: now(), _UNLISTED: failures})
    write_whole(path, file.getvalue())
    return load_listing(path)
