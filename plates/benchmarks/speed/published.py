"""Our pipeline beside the published one's shape, in one run on the same photos."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from plate_models.engines.nets import Nets
from plate_models.images import decode
from plate_models.training.baseline import PublishedShape
from plate_models.training.figures import median_ratio
from plate_models.training.labels import load_labels
from plates.benchmarks.speed.stages import read_file
from plates.benchmarks.speed.turns import WARM_UP, Times, Work, one_turn, take_turns, times_of

PHOTO_WH = (1920, 1080)
PUBLISHED = "published shape"


@dataclass(frozen=True)
class SideBySide:
    """Times per photo, file in memory to texts, of each engine and of the published shape.

    Attributes:
        photos: How many different ones.
        plates: Found in them by ours; both read the same boxes.
        times: By engine, and of ``PUBLISHED``; the same photos in the same order.
    """

    photos: int
    plates: int
    times: dict[str, Times]

    def ratio(self, engine: str) -> tuple[float, tuple[float, float]]:
        """p50 of an engine over that of the published shape, and its 95 % interval."""
        return median_ratio(self.times[engine].wall_ms, self.times[PUBLISHED].wall_ms)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        ours = [name for name in self.times if name != PUBLISHED]
        ratios = {name: self.ratio(name) for name in ours}
        return {
            "photos": self.photos,
            "plates": self.plates,
            "times": {name: of.to_dict() for name, of in self.times.items()},
            "ratios": {name: {"ratio": r, "interval_95": i} for name, (r, i) in ratios.items()},
        }


def compare_on_photo(
    file: bytes, engines: Mapping[str, Nets], published: PublishedShape, seconds: float
) -> SideBySide:
    """Read one photo again and again, in turns.

    Args:
        file: The photo.
        engines: Ours, by name, at least one. The first one's boxes are read by the
            published shape, whose detector has random weights.
        published: What is compared with.
        seconds: To go on for.
    """
    plates, works = _works(file, engines, published)
    return SideBySide(1, plates, take_turns(works, seconds))


def compare_on_photos(
    files: Iterable[bytes], engines: Mapping[str, Nets], published: PublishedShape
) -> SideBySide:
    """Read many photos, each once by all, in turns.

    Args:
        files: The photos, at least one.
        engines: See :func:`compare_on_photo`.
        published: See :func:`compare_on_photo`.
    """
    turns: list[dict[str, tuple[float, float]]] = []
    total = 0
    for index, file in enumerate(files):
        plates, works = _works(file, engines, published)  # which reads the file, as a warm-up
        for _ in range(0 if index else WARM_UP):
            one_turn(works)
        turns.append(one_turn(works, backwards=index % 2 == 1))
        total += plates
    return SideBySide(len(turns), total, times_of(turns))


def _works(
    file: bytes, engines: Mapping[str, Nets], published: PublishedShape
) -> tuple[int, dict[str, Work]]:
    boxes = [plate.box for plate in read_file(file, next(iter(engines.values())))]
    works: dict[str, Work] = {
        name: partial(read_file, file, nets) for name, nets in engines.items()
    }
    works[PUBLISHED] = lambda: published.read(decode(file), boxes)
    return len(boxes), works


def photos_of_size(folder: Path, size_wh: tuple[int, int] = PHOTO_WH) -> list[Path]:
    """Labelled photos of one size.

    Args:
        folder: Holds ``images/`` and ``plates.csv``.
        size_wh: As stored, in pixels.

    Raises:
        FileNotFoundError: There is no labelled set, or none of its photos has that size.
        LabelError: The table of labels is broken.
    """
    paths = [photo.path for photo in load_labels(folder) if _size_wh(photo.path) == size_wh]
    if not paths:
        raise FileNotFoundError(
            f"{folder}: speed is measured on labelled photos of {size_wh[0]}x{size_wh[1]} pixels, "
            "and there is none"
        )
    return paths


def _size_wh(path: Path) -> tuple[int, int]:
    """Size as stored, from the file's header alone; (0, 0) if it has none."""
    try:
        with Image.open(path) as header:
            return header.size
    except UnidentifiedImageError:
        return 0, 0
