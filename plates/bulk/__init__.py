"""Archives of photos: listed once, read in chunks by Ray Data, kept as Parquet, exactly once.

    source   the files that a folder, a pattern or a URL holds, and their bytes
    output   the folder that is written to: rows, failures, lock; files whole or not there
    listing  the snapshot of the source, cut into chunks
    reading  one chunk: fetch, decode, read, commit; which photo a process died at
    running  a run of the command: list, send chunks through Ray Data, count

The rename of a chunk's finished file is its only commit: no photo is lost or counted twice.
The service is installed without the packages of this one: Ray, Arrow, fsspec, tenacity.
"""

from dataclasses import dataclass
from pathlib import Path


class BulkError(Exception):
    """The archive can't be read; the message says what to do."""


class OutputError(BulkError):
    """The output folder is in use, belongs to another run, or can't be written."""


@dataclass(frozen=True)
class Request:
    """What is to be read, and by what."""

    source: str  # a folder, photo, pattern or URL
    out: Path  # the same folder for all machines
    chunk: int = 256  # photos: what is lost when a process dies, and rows of a file
    limit: int | None = None  # at most so many files
    extend: bool = False  # list the source again, and add what is new
    retry_failed: bool = False  # read chunks again in which photos failed that may be there by now
    workers: int | None = None  # processes; None: one per usable core, or per GPU
    gpus: int = 0  # that the processes share evenly
    address: str | None = None  # of a Ray cluster; None: one is started on this machine
    weights: Path | None = None  # their folder; None: the released ones
    engine: str = "served"  # engine and device as for `engines.load_nets`
    device: str = "cpu"
