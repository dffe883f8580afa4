"""Reads one chunk after the other, in one process, and commits each."""

import os
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plate_models.cores import THREADS
from plate_models.images import ImageError, decode
from plate_models.spec import MODEL_VERSION
from plates.bulk import BulkError
from plates.bulk.fetching import Fetched, Fetcher, describe
from plates.bulk.journal import DEATHS_ALLOWED, Journal
from plates.bulk.ledger import Account, Failure, commit
from plates.bulk.listing import load_listing
from plates.bulk.output import Output
from plates.bulk.rows import Shot, rows_of
from plates.bulk.source import Photo
from plates.bulk.taken import taken_at

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets
    from plate_models.pipeline import Plate

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Job:
    """What a process needs to know to work on chunks.

    Attributes:
        source: As the listing has it.
        out: The output folder, the same for all processes.
        weights: Hash of the weights that the run was begun with.
        weights_folder: Where these are; None stands for the released ones.
        engine: As for `engines.load_nets`.
        device: As for `engines.load_nets`.
        threads: For the nets of one process.
    """

    source: str
    out: Path
    weights: str
    weights_folder: Path | None = None
    engine: str = "served"
    device: str = "cpu"
    threads: int = 1


@dataclass(frozen=True)
class Outcome:
    """What became of a chunk.

    Attributes:
        chunk: Its number.
        photos: How many it has.
        failed: How many of them could not be read.
        deaths: Of processes at it, before it was read.
        problem: Why it could not be written; None once it is committed.
    """

    chunk: int
    photos: int
    failed: int = 0
    deaths: int = 0
    problem: str | None = None


def load_alone(job: Job) -> "Nets":
    """Load the nets for a process that has one core, or a GPU, for itself.

    Raises:
        BulkError: The weights are others than those that the run was begun with.
        EngineError, WeightsError, ExportError: See `engines.load_nets`.
    """
    os.environ[THREADS] = str(job.threads)
    from plate_models.heap import keep_freed_memory

    keep_freed_memory()
    import cv2
    import torch

    from plate_models.engines.nets import load_nets
    from plate_models.weights import WEIGHTS_DIR, check_manifest

    torch.set_num_threads(job.threads)
    cv2.setNumThreads(1)
    folder = job.weights_folder or WEIGHTS_DIR
    found = check_manifest(folder)
    if found != job.weights:
        raise BulkError(
            f"{folder}: expected the weights {job.weights} that this run was begun with, "
            f"found {found}; install the same on every machine"
        )
    return load_nets(job.engine, job.device, folder)


class ChunkReader:
    """Holds the nets, and reads chunks."""

    def __init__(self, job: Job, load: "Callable[[Job], Nets]" = load_alone) -> None:
        """Load the nets and open the source.

        Args:
            job: What to read, and where to.
            load: Loads the nets.

        Raises:
            BulkError: The output folder is not there, or what `load` raises.
        """
        self._job, self._output = job, Output(job.out)
        listing = load_listing(self._output.listing)
        if listing is None:
            raise BulkError(
                f"{job.out}: expected the listing of this run there, found none; "
                f"--out must be a folder that all machines share"
            )
        self._listing, self._fetcher, self._nets = listing, Fetcher(job.source), load(job)

    def read(self, chunk: int) -> Outcome:
        """Read a chunk's photos and commit it; what goes wrong is told, not raised."""
        photos: Sequence[Photo] = ()
        try:
            photos = self._listing.chunk(chunk)
            return self._read(chunk, photos)
        except Exception as error:  # the other chunks must go on
            message = describe(error)[1] if isinstance(error, OSError) else repr(error)
            return Outcome(chunk, len(photos), problem=message)

    def _read(self, chunk: int, photos: Sequence[Photo]) -> Outcome:
        rows: Rows = []
        failures: list[Failure] = []
        began, plates = time.time(), 0
        with Journal(self._output.work, chunk) as journal:
            for index, fetched in self._fetcher.fetch_ahead(photos):
                found = self._read_photo(journal, index, photos[index], fetched)
                if isinstance(found, Failure):
                    failures.append(found)
                else:
                    rows += found
                    plates += sum("plate" in row for row in found)
            counts = len(photos), plates, tuple(failures), journal.deaths
            process = f"{socket.gethostname()}:{os.getpid()}"
            commit(self._output, Account(chunk, *counts, process, began, time.time()), rows)
        return Outcome(chunk, len(photos), len(failures), journal.deaths)

    def _read_photo(
        self, journal: Journal, index: int, photo: Photo, fetched: "Future[Fetched]"
    ) -> Rows | Failure:
        if journal.is_deadly(index):
            message = f"the process that read it died, {DEATHS_ALLOWED} times"
            return Failure(photo.name, "crashes-the-reader", message)
        try:
            file = fetched.result()
        except ImageError as error:
            return Failure(photo.name, error.slug, str(error))
        except Exception as error:  # each storage raises its own kinds
            return Failure(photo.name, *describe(error))
        journal.begin(index)
        try:
            image, plates = read_file(file.data, self._nets)
        except ImageError as error:
            return Failure(photo.name, error.slug, str(error))
        except Exception as error:  # a fault of ours: it must not cost the others
            return Failure(photo.name, "internal-error", repr(error))
        height, width = image
        shot = Shot(photo.name, width, height, taken_at(file.data), file.modified)
        return rows_of(shot, plates, MODEL_VERSION, self._job.weights)


def read_file(data: bytes, nets: "Nets") -> "tuple[tuple[int, int], list[Plate]]":
    """Decode a photo and read its plates.

    Returns:
        Its height and width, and the plates.

    Raises:
        ImageError: It can't be decoded.
    """
    import torch

    image = decode(data)
    return (image.shape[0], image.shape[1]), nets.read(torch.from_numpy(image))
