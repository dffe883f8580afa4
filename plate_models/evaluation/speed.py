"""Our pipeline against the published one's shape, in one run on the same photos."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from PIL import Image, UnidentifiedImageError

from plate_models.baseline import Baseline, PublishedShape
from plate_models.engines.nets import Nets
from plate_models.evaluation.labelled import Progress, labelled_folder
from plate_models.figures import median_ratio
from plate_models.images import decode
from plate_models.labels import LabelledPhoto, load_labels

PHOTO_WH = (1920, 1080)
_WARM_UP = 2
T = TypeVar("T")


@dataclass(frozen=True)
class SpeedReport:
    """Milliseconds per photo of both pipelines.

    Attributes:
        ours_ms: File in memory to texts, in process; one per photo.
        published_ms: The published pipeline's shape on the same photos, in their order.
        plates: Plates read in them, the same ones by both.
        threads: Torch's threads.
    """

    ours_ms: tuple[float, ...]
    published_ms: tuple[float, ...]
    plates: int
    threads: int

    def lines(self) -> list[str]:
        """The report for a terminal."""
        ratio, (low, high) = median_ratio(self.ours_ms, self.published_ms)
        ours, published = (statistics.median(ms) for ms in (self.ours_ms, self.published_ms))
        return [
            f"Speed on {len(self.ours_ms)} photos of {PHOTO_WH[0]}x{PHOTO_WH[1]} with "
            f"{self.plates} plates, {self.threads} threads, one photo at a time, in turns",
            f"  p50 of ours, in process               {ours:8.1f} ms",
            f"  p50 of the published pipeline's shape {published:8.1f} ms",
            f"  ratio of the p50s {ratio:.3f}, 95 % interval {low:.3f} to {high:.3f}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        ratio, interval = median_ratio(self.ours_ms, self.published_ms)
        return {**asdict(self), "ratio": ratio, "interval_95": interval}


def measure_speed(
    data: Path, nets: Nets, baseline: Path, photos: int = 0, progress: Progress = iter
) -> SpeedReport:
    """Read each photo by ours, then by the published shape, and so on in turns.

    In turns, so that whatever else slows the machine slows both. Both decode the file
    alike, and both read the boxes that ours finds.

    Args:
        data: As for `labelled.evaluate`; its photos of 1920×1080 are taken.
        nets: The nets.
        baseline: Folder of the published recognizer.
        photos: Measure on so many of them only; 0 for all.
        progress: Wraps the list of photos, for a progress bar.

    Raises:
        FileNotFoundError: There is no labelled set with photos of that size, or no
            published recognizer.
        LabelError: The table of labels is broken.
    """
    chosen = _of_size(load_labels(labelled_folder(data)), PHOTO_WH)
    if not chosen:
        raise FileNotFoundError(
            f"{data}: speed is measured on labelled photos of {PHOTO_WH[0]}x{PHOTO_WH[1]} pixels, "
            "and there is none"
        )
    chosen = chosen[:photos] if photos else chosen
    published = PublishedShape(Baseline(baseline))
    for photo in chosen[:_WARM_UP]:
        _one_turn(photo.path.read_bytes(), nets, published)
    turns = [_one_turn(p.path.read_bytes(), nets, published) for p in progress(chosen)]
    ours_ms, published_ms, plates = zip(*turns, strict=True)
    return SpeedReport(ours_ms, published_ms, sum(plates), torch.get_num_threads())


def _one_turn(file: bytes, nets: Nets, published: PublishedShape) -> tuple[float, float, int]:
    """Milliseconds of ours and of the published shape, and the plates both read."""
    found, ours_ms = _timed(lambda: nets.read(torch.from_numpy(decode(file))))
    boxes = [plate.box for plate in found]
    _, published_ms = _timed(lambda: published.read(decode(file), boxes))
    return ours_ms, published_ms, len(boxes)


def _of_size(photos: list[LabelledPhoto], size_wh: tuple[int, int]) -> list[LabelledPhoto]:
    return [photo for photo in photos if _size_wh(photo.path) == size_wh]


def _size_wh(path: Path) -> tuple[int, int]:
    """Size as stored, from the file's header alone; (0, 0) if it has none."""
    try:
        with Image.open(path) as header:
            return header.size
    except UnidentifiedImageError:
        return 0, 0


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = work()
    return result, 1000 * (time.perf_counter() - start)
