"""Reads archives of photos: lists them, reads chunks with Ray Data, writes Parquet, exactly once.

    source   lists the files of a folder, a pattern or a URL, and reads their bytes
    output   the output folder: rows, failures, lock; every file is replaced atomically
    listing  the snapshot of the source, divided into chunks
    reading  fetches, decodes, reads and commits one chunk; notes the photo that kills a process
    running  a run of the command: list, send chunks through Ray Data, count

A chunk is committed only by renaming its finished file: no photo is lost or counted twice.
The service is installed without this package's dependencies: Ray, Arrow, fsspec, tenacity.
"""

from dataclasses import dataclass
from pathlib import Path


class BulkError(Exception):
    """The archive can't be read; the message says what to do."""


class OutputError(BulkError):
    """The output folder is in use, belongs to another run, or can't be written."""

    exit_status = 2  # of the command


@dataclass(frozen=True)
class Request:
    """The options of a run."""

    source: str  # a folder, photo, pattern or URL
    out: Path  # the same folder for all machines
    chunk: int = 256  # photos per output file; they are read again if a process dies
    limit: int | None = None  # the largest number of files to read
    extend: bool = False  # list the source again, and add new files
    retry_failed: bool = False  # read chunks again with failures that a retry may resolve
    workers: int | None = None  # processes; None: one per usable core, or per GPU
    gpus: int = 0  # shared evenly by the processes
    address: str | None = None  # of a Ray cluster; None: start Ray on this machine
    weights: Path | None = None  # their folder; None: the released weights
    engine: str = "served"  # engine and device as for `engines.load_nets`
    device: str = "cpu"
    countries: tuple[str, ...] | None = None  # whose formats are known; None: the weights'
