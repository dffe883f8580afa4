"""The detector's photos: read, split into training and validation, kept in memory."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from plate_models.images import decode
from plate_models.training.labels import LabelledPhoto, load_labels, load_negatives

# Consecutive dashcam frames that go to one side of the split together.
_RUN_LENGTH = 8
# A box this many times as wide as high holds one line of text.
_LONG = 2.6
_CLIP = re.compile(r"(?P<clip>ro_\w+)\.mp4_t_(?P<second>\d+)\.\w+$")


@dataclass(frozen=True)
class TrainingPhoto:
    """A decoded photo with all its known plates.

    Attributes:
        name: File name.
        image: (H, W, 3) uint8 RGB.
        boxes: (K, 4) float32 x0, y0, x1, y1 in pixels; K = 0 for a negative.
        lines: (K,) int64 lines of text on each plate, 1 or 2, or 0 where nobody knows.
    """

    name: str
    image: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    lines: NDArray[np.int64]


def validation_names(names: Iterable[str]) -> set[str]:
    """Choose the photos that are never trained on.

    A fifth of the photos, by ``crc32(name) % 5``. Neighbouring frames of a dashcam
    clip show the same cars, so a run of them shares its first frame's fate.
    """
    chosen, clips = set(), defaultdict(list)
    for name in names:
        if match := _CLIP.match(name):
            clips[match["clip"]].append((int(match["second"]), name))
        elif crc32(name.encode()) % 5 == 0:
            chosen.add(name)
    for frames in clips.values():
        ordered = [name for _, name in sorted(frames)]
        for start in range(0, len(ordered), _RUN_LENGTH):
            run = ordered[start : start + _RUN_LENGTH]
            if crc32(run[0].encode()) % 5 == 0:
                chosen.update(run)
    return chosen


def load_world(data: Path) -> tuple[list[TrainingPhoto], list[TrainingPhoto]]:
    """Training and validation photos of ``world_photos``, decoded (about 1.5 GB)."""
    photos = [_decoded(photo) for photo in load_labels(data / "world_photos")]
    held_out = validation_names(photo.name for photo in photos)
    train = [photo for photo in photos if photo.name not in held_out]
    return train, [photo for photo in photos if photo.name in held_out]


def load_empty(data: Path, held_out: bool = False) -> list[TrainingPhoto]:
    """Photos of ``no_plates``, decoded: the half to train on, or the half held out."""
    return [_decoded(photo) for photo in load_negatives(data / "no_plates", held_out)]


def _decoded(photo: LabelledPhoto) -> TrainingPhoto:
    boxes = np.array([plate.box for plate in photo.plates], np.float32).reshape(-1, 4)
    return TrainingPhoto(
        photo.path.name, decode(photo.path.read_bytes()), boxes, lines_of_shape(boxes)
    )


def lines_of_shape(boxes: NDArray[np.float32]) -> NDArray[np.int64]:
    """Guess the lines of text of plates whose label is only a box.

    Args:
        boxes: (K, 4) float32 x0, y0, x1, y1.

    Returns:
        (K,) int64: 1 for long plates. Others may have one line (a North American plate)
        or two, so they are 0: unknown.
    """
    sides = boxes[:, 2:] - boxes[:, :2]
    return np.where(sides[:, 0] > _LONG * sides[:, 1], 1, 0).astype(np.int64)
