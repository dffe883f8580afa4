"""Fetches, decodes, reads and commits one chunk of an archive, in one process."""

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from PIL import Image

from plate_models import formats, images
from plate_models.cores import THREADS
from plate_models.images.files import type_of
from plate_models.process import keep_freed_memory
from plate_models.release import WEIGHTS_DIR, check_manifest
from plate_models.spec import LIMITS, MODEL_VERSION
from plates.bulk import BulkError, Request
from plates.bulk.listing import load_listing
from plates.bulk.output import Account, Output
from plates.bulk.source import UNREACHABLE, Failure, Fetcher, Photo, describe, has_photo_suffix
from plates.file_kinds import HEAD_BYTES, kind_of

if TYPE_CHECKING:
    from plate_models.engines.loaded import Nets
    from plate_models.pipeline import Plate

DEATHS_ALLOWED = 3
# A retry may succeed after these failures; a damaged photo stays damaged.
RETRIED = (UNREACHABLE, "missing", "forbidden", "unreadable", "crashes-the-reader")
_ATTEMPT = "attempt\n"
_EXIF = b"Exif\0\0"
_EXIF_IFD, _DATE_TIME_ORIGINAL = 0x8769, 0x9003
# Pillow copies each tag's value, and a hostile file may have thousands, each as long as the input:
# so Pillow gets one JPEG segment at most (_EXIF_BYTES), of the first ones (_EXIF_WITHIN).
_EXIF_WITHIN, _EXIF_BYTES = 2**18, 2**16

Rows = list[dict[str, Any]]


def load_alone(request: Request, weights: str) -> "Nets":
    """Load the nets for a process that has one core, or a GPU, for itself.

    Raises BulkError if `weights` is not their hash, and what `engines.load_nets` raises.
    """
    # torch, if the engine loads it, reads the second variable.
    os.environ[THREADS] = os.environ["OMP_NUM_THREADS"] = "1"
    keep_freed_memory()
    import cv2

    from plate_models.engines.nets import load_nets

    cv2.setNumThreads(1)
    folder = request.weights or WEIGHTS_DIR
    if (found := check_manifest(folder)) != weights:
        raise BulkError(
            f"{folder}: expected the weights {weights} that this run was begun with, "
            f"found {found}; install the same weights on every machine"
        )
    return load_nets(request.engine, request.device, folder).with_countries(request.countries)


class ChunkReader:
    """Reads chunks with the nets of a run's weights: an actor of Ray Data."""

    def __init__(self, request: Request, weights: str) -> None:
        self._weights, self._output = weights, Output(request.out)
        self._listing = load_listing(self._output.listing)
        self._fetcher = Fetcher(request.source)
        self._nets = load_alone(request, weights)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Read the chunks of a batch, as Ray Data calls it."""
        return {"chunk": batch["chunk"], "problem": [self.read(int(n)) for n in batch["chunk"]]}

    def read(self, chunk: int) -> str:
        """Read and commit a chunk; returns "", or why it could not be written."""
        try:
            self._read(chunk, self._listing.chunk(chunk))
        except Exception as error:  # the other chunks must go on
            return describe(error)[1] if isinstance(error, OSError) else repr(error)
        return ""

    def _read(self, chunk: int, photos: Sequence[Photo]) -> None:
        rows, failures, others = Rows(), list[Failure](), list[str]()
        todo = photos
        if (kept := self._output.rows(chunk)) is not None:  # even if the source is gone
            before, rows = self._output.account(chunk), kept
            others += before.others
            failures += (one for one in before.failures if one.reason not in RETRIED)
            again = {one.photo for one in before.failures if one.reason in RETRIED}
            todo = [photo for photo in photos if photo.name in again]
        with Journal(self._output.work, chunk) as journal:
            for index, fetched in self._fetcher.fetch_ahead(todo):
                result = self._read_photo(journal, index, todo[index], fetched)
                if result is None:
                    others.append(todo[index].name)
                elif isinstance(result, Failure):
                    failures.append(result)
                else:
                    rows += result
            account = Account(
                chunk,
                photos=len(photos),
                plates=sum(row.get("plate") is not None for row in rows),
                failures=tuple(failures),
                deaths=journal.deaths_at.total(),
                others=tuple(others),
            )
            self._output.commit(account, rows)

    def _read_photo(
        self, journal: "Journal", index: int, photo: Photo, fetched: "Future[bytes]"
    ) -> Rows | Failure | None:
        """The rows of a photo, or its failure; None if the file is no photo."""
        if journal.deaths_at[index] >= DEATHS_ALLOWED:
            message = f"the process that read it died, {DEATHS_ALLOWED} times"
            return Failure(photo.name, "crashes-the-reader", message)
        try:
            data = fetched.result()
        except Exception as error:  # each storage has its own errors
            return Failure(photo.name, *describe(error))
        journal.begin(index)
        try:
            if not _is_photo(photo, data):
                return None
            image = images.decode(data)
            plates = self._nets.read(image)
        except images.ImageError as error:
            return Failure(photo.name, error.slug, str(error))
        except Exception as error:  # a bug must not stop the other photos
            return Failure(photo.name, "internal-error", repr(error))
        taken = taken_at(data)
        common = {
            "photo": photo.name,
            "width": image.shape[1],
            "height": image.shape[0],
            "time": taken or photo.modified,
            "time_source": "exif" if taken else "file" if photo.modified else None,
            "model_version": MODEL_VERSION,
            "weights": self._weights,
        }
        return [common | columns_of(index, plate) for index, plate in enumerate(plates)] or [common]


def _is_photo(photo: Photo, data: bytes) -> bool:
    """Decide by a file's first bytes; with a photo's name it is always a photo, maybe damaged.

    Raises ImageError if it is too large, or a RAW file without a photo's name.
    """
    kind, is_named = kind_of(data[:HEAD_BYTES]), has_photo_suffix(photo.name)
    if kind in ("video", "other") and not is_named:
        return False
    if kind == "unread" and type_of(data) == "TIFF" and not is_named:
        raise images.UnsupportedType("RAW files are not read. Convert the photo to JPEG.")
    if max(len(data), photo.size or 0) > LIMITS.max_bytes:
        raise images.TooManyBytes(images.too_many_bytes_message(LIMITS))
    return True


def taken_at(data: bytes) -> datetime | None:
    """Find DateTimeOriginal (Exif 2.32, 4.6.5), the camera's local time; None if it is missing."""
    start = 0 if data[:4] in (b"II*\0", b"MM\0*") else data.find(_EXIF, 0, _EXIF_WITHIN)
    if start < 0:
        return None
    exif = Image.Exif()
    try:
        exif.load(data[start : start + _EXIF_BYTES])
        text = exif.get_ifd(_EXIF_IFD)[_DATE_TIME_ORIGINAL]
        return datetime.strptime(text[:19], "%Y:%m:%d %H:%M:%S")
    except Exception:  # damaged metadata raise any error; only the time is lost
        return None


def columns_of(index: int, plate: "Plate") -> dict[str, Any]:
    """Convert a plate to columns of `output.SCHEMA`."""
    reading = plate.reading
    match = formats.reading_of(reading.text, reading.format)
    region = match.region if match else None
    return {
        "plate": index,
        "text": reading.text,
        "text_native": match.native if match else reading.text,
        "score": reading.score,
        "readable": reading.readable,
        "format": reading.format,
        "region_code": region.code if region else None,
        "region_name": region.name if region else None,
        "lines": plate.lines,
        **dict(zip(("x0", "y0", "x1", "y1"), plate.box, strict=True)),
        "quad": [value for point in plate.quad for value in point],
        "detection_score": plate.detection_score,
        "candidates": [{"text": text, "score": p} for text, p in reading.candidates if text],
    }


class Journal:
    """Records which photo a process was reading when it died, so that no photo kills for ever.

    Each chunk in progress has a small file with a line for each attempt and each photo begun. If
    the file is left over, processes died at the last photos of its attempts. It is not synced: a
    machine that crashes may lose it.
    """

    def __init__(self, folder: Path, chunk: int) -> None:
        self._path = folder / f"chunk-{chunk:08d}.journal"
        self._descriptor = -1
        self.deaths_at: Counter[int] = Counter()
        text = self._path.read_text("ascii", "replace") if self._path.exists() else ""
        for attempt in text.split(_ATTEMPT):
            begun = list(itertools.takewhile(str.isdecimal, attempt.split()))
            self.deaths_at.update(map(int, begun[-1:]))

    def __enter__(self) -> Self:
        """Begin an attempt; raises OSError, as on a full disk."""
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self._descriptor, _ATTEMPT.encode())
        return self

    def begin(self, photo: int) -> None:
        """Record that the process begins a photo, by its index in the chunk; raises OSError."""
        os.write(self._descriptor, f"{photo}\n".encode())

    def __exit__(self, *_: object) -> None:
        """End the attempt, as the process has survived it."""
        os.close(self._descriptor)
        with contextlib.suppress(OSError):
            self._path.unlink()
