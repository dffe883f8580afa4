"""What weather and years do to a plate: worn paint, dirt, snow; and smooth noise."""

import cv2
import numpy as np

from plate_models.training.imaging import Field, Floats, Image
from plate_models.training.synthetic.glyphs import Mask

# Curves through few points look round in a cubic and kinked in a linear scaling.
_CUBIC_BELOW = 20


def blobs(
    rng: np.random.Generator,
    size_hw: tuple[int, ...],
    cells_hw: tuple[int, int],
    channels: int = 1,
) -> Field:
    """Smooth standard normal noise that varies over ``cells_hw`` cells.

    Returns (H, W) float32, or (H, W, channels) for more than one channel.
    """
    coarse = rng.standard_normal((*cells_hw, channels), np.float32)
    if cells_hw[1] < _CUBIC_BELOW:
        # Linear scaling does the rest: that is faster and looks the same.
        larger = cv2.resize(coarse, None, fx=4, fy=4, interpolation=cv2.INTER_CUBIC)
        coarse = np.asarray(larger, np.float32)
    return np.asarray(cv2.resize(coarse, (size_hw[1], size_hw[0])), np.float32)


def _lay_over(rgb: Image, cover: Field, colour: Floats) -> None:
    """Mix a colour into a picture, in place."""
    rgb[:] = rgb + cover[..., None] * (colour.astype(np.float32) - rgb)


def wear_ink(ink: Mask, rng: np.random.Generator) -> Mask:
    """Rub paint off the characters in patches.

    Returns (H, W) uint8, nowhere more than before.
    """
    patches = blobs(rng, ink.shape, (4, 14)) + 0.7 * blobs(rng, ink.shape, (28, 130))
    loss = rng.uniform(0.2, 0.8) * np.clip(patches - rng.uniform(0, 1), 0, 1)
    return (ink * (1.0 - loss)).astype(np.uint8)


def add_dirt(rgb: Image, rng: np.random.Generator) -> None:
    """Lay dust and splashes over a picture, in place."""
    size = rgb.shape[:2]
    cover = 0.35 * blobs(rng, size, (3, 8)) + 0.25 * blobs(rng, size, (16, 60))
    lower = np.linspace(-0.3, 0.4, size[0], dtype=np.float32)[:, None] * rng.uniform(-0.3, 1)
    cover += lower + rng.uniform(-0.6, 0.35)
    colour = rng.uniform(45, 150) * np.array([1.0, rng.uniform(0.85, 1), rng.uniform(0.65, 1)])
    _lay_over(rgb, np.clip(cover, 0, rng.uniform(0.2, 0.85)).astype(np.float32), colour)


def add_snow(rgb: Image, rng: np.random.Generator) -> None:
    """Let snow stick to the upper or the lower side, in place."""
    height, width = rgb.shape[:2]
    rows = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    if rng.random() < 0.5:
        rows = 1 - rows
    level = 0.25 * blobs(rng, (height, width), (6, 24)) + rows - rng.uniform(0.75, 1.1)
    cover = np.clip(level * 8, 0, 1).astype(np.float32)
    _lay_over(rgb, cover, rng.uniform(200, 250) * np.array([0.98, 0.99, 1.0]))
