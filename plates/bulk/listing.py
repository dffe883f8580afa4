"""The snapshot of the source: its files, cut into chunks that never change.

A chunk is a row group of a Parquet file; each `--extend` adds a file. So the photos of a chunk
are found by its number, in an archive of millions, too. ``listing.json``, written last, says that
the snapshot is complete.
"""

import contextlib
import io
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plates.bulk import OutputError, require
from plates.bulk.output import now, read_json, write_json, write_whole
from plates.bulk.source import Failure, Photo

_INDEX = "listing.json"


@dataclass(frozen=True)
class Listing:
    """What the source held when it was listed."""

    folder: Path
    listed_at: str  # in ISO form, UTC
    photos: int
    chunks: int  # numbered from 0
    unlisted: list[Failure]  # folders that could not be read
    parts: list[dict[str, Any]]  # files: name, number of the first chunk, chunks and photos

    def chunk(self, number: int) -> list[Photo]:
        """Read the photos of one chunk."""
        (parquet,) = require("pyarrow.parquet")
        part = next(part for part in reversed(self.parts) if part["first"] <= number)
        with parquet.ParquetFile(self.folder / part["file"]) as file:
            rows = file.read_row_group(number - part["first"]).to_pylist()
        return [Photo(**row) for row in rows]


def load_listing(folder: Path) -> Listing | None:
    """Load the snapshot in a folder; None if there is none, or if it was not finished."""
    document = read_json(folder / _INDEX)
    if not document:
        return None
    try:
        unlisted = [Failure(**entry) for entry in document.pop("unlisted")]
        return Listing(folder, unlisted=unlisted, **document)
    except (KeyError, TypeError) as error:
        raise OutputError(f"{folder / _INDEX}: expected our JSON; give another --out") from error


def take_listing(
    folder: Path, found: Iterable[Photo | Failure], chunk_photos: int, before: Listing | None
) -> Listing:
    """Write the snapshot of what `find_photos` found; raises OSError, or what `found` raises.

    Files of an unfinished listing are removed; photos and chunks of one `before` stay.
    """
    before = before or Listing(folder, "", photos=0, chunks=0, unlisted=[], parts=[])
    parts = list(before.parts)
    for path in folder.glob("part-*.parquet"):
        if path.name not in [part["file"] for part in parts]:
            path.unlink()
    known = {photo.path for n in range(before.chunks) for photo in before.chunk(n)}
    unlisted: list[Failure] = []

    def new_photos() -> Iterator[Photo]:
        for entry in found:
            if isinstance(entry, Failure):
                unlisted.append(entry)
            elif entry.path not in known:
                yield entry

    data, chunks, photos = _as_parquet(new_photos(), chunk_photos)
    if chunks:
        name = f"part-{before.chunks:08d}.parquet"
        write_whole(folder / name, data)
        parts.append({"file": name, "first": before.chunks, "chunks": chunks, "photos": photos})
    counts = {name: sum(part[name] for part in parts) for name in ("photos", "chunks")}
    listing = Listing(folder, now(), unlisted=unlisted, parts=parts, **counts)
    write_json(folder / _INDEX, {n: v for n, v in asdict(listing).items() if n != "folder"})
    return listing


def _as_parquet(photos: Iterator[Photo], chunk_photos: int) -> tuple[bytes, int, int]:
    """Write photos in chunks: the file, and how many chunks and photos are in it."""
    arrow, parquet = require("pyarrow", "pyarrow.parquet")
    types = {"path": arrow.binary(), "size": arrow.int64(), "modified": arrow.timestamp("us")}
    file, schema, counts = io.BytesIO(), arrow.schema(types), list[int]()
    with contextlib.closing(parquet.ParquetWriter(file, schema, compression="zstd")) as writer:
        while chunk := [asdict(photo) for photo in itertools.islice(photos, chunk_photos)]:
            writer.write_table(arrow.Table.from_pylist(chunk, schema), row_group_size=chunk_photos)
            counts.append(len(chunk))
    return file.getvalue(), len(counts), sum(counts)
