"""An archive to measure with: photos that all differ, made from a seed once, and kept.

A few hundred scenes of the benchmark's renderer are cut, scaled, lit and compressed anew for
each photo. Three in a hundred are none: truncated, empty, or words under a photo's name. Two
more are so blurred that they show no plate.
"""

import json
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]

FOLDER_PHOTOS = 500
_SCENES = 200
_BLOCK = 100
_SIZES_WH = ((640, 360), (800, 450), (960, 540), (1280, 720))
_ODD = {17: "truncated", 43: "empty", 71: "words", 7: "blurred", 88: "blurred"}
_READABLE_KINDS = ("photo", "blurred")


def kind_of(number: int) -> str:
    """What a photo is: "photo", "blurred", "truncated", "empty" or "words"."""
    return _ODD.get(number % 100, "photo")


def is_readable(number: int) -> bool:
    """Whether it can be decoded."""
    return kind_of(number) in _READABLE_KINDS


def path_of(folder: Path, number: int) -> Path:
    """Where a photo lies."""
    return folder / f"{number // FOLDER_PHOTOS:03d}" / f"{number:06d}.jpg"


def make_photos(folder: Path, count: int, seed: int, workers: int) -> int:
    """Make what is not there yet.

    Args:
        folder: For the photos; photo N is the same in every archive of that seed.
        count: How many there shall be.
        seed: Of all chance.
        workers: Processes.

    Returns:
        How many were made.
    """
    from tqdm import tqdm

    from plate_models.training.worker_pool import map_ahead

    marker = folder / "photos.json"
    wanted = {"photos": count, "seed": seed}
    if marker.exists() and json.loads(marker.read_text()) == wanted:
        return 0
    scenes = [(folder.parent / f"scenes-{seed}", seed, number) for number in range(_SCENES)]
    shown = partial(tqdm, file=sys.stderr, disable=not sys.stderr.isatty())
    for _ in shown(map_ahead(_render, scenes, workers), total=_SCENES, unit="scene"):
        pass
    blocks = list(_blocks(folder, count, seed))
    made = 0
    for new in shown(map_ahead(_make, blocks, workers), total=len(blocks), unit="block"):
        made += new
    marker.write_text(json.dumps(wanted))
    return made


def _blocks(folder: Path, count: int, seed: int) -> Iterator[tuple[Path, int, int, int]]:
    for start in range(0, count, _BLOCK):
        yield folder, seed, start, min(start + _BLOCK, count)


def _scene_path(folder: Path, number: int) -> Path:
    return folder / f"{number:03d}.jpg"


def _render(scene: tuple[Path, int, int]) -> None:
    from plate_models.training.benchmark import render_photo
    from plate_models.training.synthetic.kinds import KINDS

    folder, seed, number = scene
    path = _scene_path(folder, number)
    if path.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    kinds = list(KINDS)
    photo = render_photo(kinds[number % len(kinds)], number // len(kinds), seed)
    path.write_bytes(photo.file)


@cache
def _scene(path: Path) -> Image:
    import cv2

    image = cv2.imread(str(path))
    if image is None:
        raise RuntimeError(f"{path}: expected a rendered scene; remove it and run again")
    return np.asarray(image, np.uint8)


def _make(block: tuple[Path, int, int, int]) -> int:
    """Make the photos of a block that are not there."""
    folder, seed, start, end = block
    scenes = folder.parent / f"scenes-{seed}"
    made = 0
    for number in range(start, end):
        path = path_of(folder, number)
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_photo(scenes, seed, number))
        made += 1
    return made


def _photo(scenes: Path, seed: int, number: int) -> bytes:
    import cv2

    kind = kind_of(number)
    if kind == "empty":
        return b""
    if kind == "words":
        return f"Photo {number} was never taken.".encode()
    dice = np.random.default_rng((seed, number))
    image = _scene(_scene_path(scenes, int(dice.integers(_SCENES))))
    height, width = image.shape[:2]
    share = dice.uniform(0.8, 1.0)
    x, y = (int(dice.uniform(0, 1 - share) * side) for side in (width, height))
    cut: NDArray[Any] = image[y : y + int(share * height), x : x + int(share * width)]
    size = _SIZES_WH[int(dice.integers(len(_SIZES_WH)))]
    cut = cv2.resize(cut, size, interpolation=cv2.INTER_AREA)
    if kind == "blurred":
        cut = cv2.GaussianBlur(cut, (0, 0), 25)
    cut = cv2.convertScaleAbs(cut, alpha=dice.uniform(0.7, 1.3), beta=dice.uniform(-15, 15))
    quality = int(dice.integers(60, 93))
    _, file = cv2.imencode(".jpg", cut, [int(cv2.IMWRITE_JPEG_QUALITY), quality])
    data = file.tobytes()
    return data[: len(data) // 2] if kind == "truncated" else data
