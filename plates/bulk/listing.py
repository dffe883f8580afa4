"""The snapshot of the source: which photos there are, cut into chunks that never change.

A chunk is a row group of a Parquet file; a few hundred of them make a file. So a photo of
millions is found by the number of its chunk, and neither writing nor reading keeps more than
one chunk in memory. ``listing.json``, written last, says that the snapshot is complete.
"""

import contextlib
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from plates.bulk import OutputError, SourceError, require
from plates.bulk.output import read_json, write_json, write_whole
from plates.bulk.source import Photo, Unlisted

_INDEX = "listing.json"
_CHUNKS_PER_FILE = 256
_DIGEST_BYTES = 16
_DIGEST = f"S{2 * _DIGEST_BYTES}"


@dataclass(frozen=True)
class Part:
    """One file of the listing.

    Attributes:
        file: Its name.
        first: Number of its first chunk.
        chunks: How many it holds.
        photos: In all of them.
    """

    file: str
    first: int
    chunks: int
    photos: int


@dataclass(frozen=True)
class Listing:
    """What the source held when it was listed.

    Attributes:
        folder: Of the files.
        parts: The files, in order.
        unlisted: Folders that could not be read.
        listed_at: When, in ISO form, UTC.
    """

    folder: Path
    parts: tuple[Part, ...]
    unlisted: tuple[Unlisted, ...]
    listed_at: str

    @property
    def photos(self) -> int:
        """How many photos there are."""
        return sum(part.photos for part in self.parts)

    @property
    def chunks(self) -> int:
        """How many chunks they were cut into; they are numbered from 0."""
        return sum(part.chunks for part in self.parts)

    def chunk(self, number: int) -> list[Photo]:
        """Read the photos of one chunk."""
        part = self.parts[bisect_right([part.first for part in self.parts], number) - 1]
        (parquet,) = require("pyarrow.parquet")
        with parquet.ParquetFile(self.folder / part.file) as file:
            rows = file.read_row_group(number - part.first).to_pylist()
        return [Photo(row["path"], row["size"], row["modified"]) for row in rows]


def load_listing(folder: Path) -> Listing | None:
    """Find the snapshot of a run.

    Args:
        folder: Of the listing.

    Returns:
        It; None if there is none, or if it was not finished.
    """
    document = read_json(folder / _INDEX)
    if document is None:
        return None
    try:
        parts = tuple(Part(**part) for part in document["parts"])
        unlisted = tuple(Unlisted(**entry) for entry in document["unlisted"])
        return Listing(folder, parts, unlisted, document["listed_at"])
    except (KeyError, TypeError) as error:
        raise OutputError(f"{folder / _INDEX}: expected our JSON; give another --out") from error


def take_listing(
    folder: Path,
    found: Iterable[Photo | Unlisted],
    chunk_photos: int,
    before: Listing | None = None,
) -> Listing:
    """Write what a source holds, and hand it back.

    Args:
        folder: For the files; those of an unfinished listing are removed.
        found: As `source.find_photos` tells it.
        chunk_photos: Photos in a chunk; the last one may have fewer.
        before: A snapshot to be extended: photos that it has are left out, and its chunks
            stay as they are.

    Raises:
        SourceError: The source can't be read; nothing is kept.
        OSError: The snapshot can't be written.
    """
    kept = before.parts if before else ()
    for path in folder.glob("part-*.parquet"):
        if path.name not in {part.file for part in kept}:
            path.unlink()
    unlisted: list[Unlisted] = []
    photos = _photos(found, unlisted)
    if before:
        photos = _unknown(photos, before, chunk_photos)
    chunks = _chunks(photos, chunk_photos)
    parts, first = list(kept), before.chunks if before else 0
    while head := next(chunks, None):
        part = _write_part(folder, first, head, chunks)
        parts.append(part)
        first += part.chunks
    if not parts:
        what = "photos in the folders that can be read" if unlisted else "photos there"
        raise SourceError(f"no {what}: expected names such as photo.jpg", "missing")
    listed_at = datetime.now(UTC).isoformat(timespec="seconds")
    listing = Listing(folder, tuple(parts), tuple(unlisted), listed_at)
    write_json(folder / _INDEX, _to_json(listing))
    return listing


def _to_json(listing: Listing) -> dict[str, Any]:
    return {
        "listed_at": listing.listed_at,
        "photos": listing.photos,
        "chunks": listing.chunks,
        "unlisted": [asdict(entry) for entry in listing.unlisted],
        "parts": [asdict(part) for part in listing.parts],
    }


def _photos(found: Iterable[Photo | Unlisted], unlisted: list[Unlisted]) -> Iterator[Photo]:
    for entry in found:
        if isinstance(entry, Photo):
            yield entry
        else:
            unlisted.append(entry)


def _chunks(photos: Iterator[Photo], size: int) -> Iterator[list[Photo]]:
    while chunk := list(itertools.islice(photos, size)):
        yield chunk


def _write_part(folder: Path, first: int, head: list[Photo], rest: Iterator[list[Photo]]) -> Part:
    """Write one file: a chunk, and those that follow while there is room."""
    arrow, parquet = require("pyarrow", "pyarrow.parquet")
    schema = arrow.schema(
        [
            arrow.field("path", arrow.binary(), nullable=False),
            arrow.field("size", arrow.int64()),
            arrow.field("modified", arrow.timestamp("us")),
        ]
    )
    name = f"part-{first:08d}.parquet"
    counts = []

    def write(file: Any) -> None:
        with contextlib.closing(parquet.ParquetWriter(file, schema)) as writer:
            following = itertools.islice(rest, _CHUNKS_PER_FILE - 1)
            for chunk in itertools.chain((head,), following):
                table = arrow.Table.from_pylist([asdict(photo) for photo in chunk], schema)
                writer.write_table(table, row_group_size=len(chunk))
                counts.append(len(chunk))

    write_whole(folder / name, write)
    return Part(name, first, len(counts), sum(counts))


def _unknown(photos: Iterator[Photo], before: Listing, size: int) -> Iterator[Photo]:
    """Those that the snapshot before lacks: 32 bytes of memory for each that it has."""
    import numpy as np

    digests = (_digest(p.path) for n in range(before.chunks) for p in before.chunk(n))
    known = np.sort(np.fromiter(digests, dtype=_DIGEST, count=before.photos))
    while some := list(itertools.islice(photos, size)):
        wanted = np.array([_digest(p.path) for p in some], _DIGEST)
        places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        yield from itertools.compress(some, known[places] != wanted)


def _digest(path: bytes) -> bytes:
    # Hexadecimal: numpy would drop zeros at the end of raw bytes.
    return blake2b(path, digest_size=_DIGEST_BYTES).hexdigest().encode()
