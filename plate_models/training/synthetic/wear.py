"""What weather and years do to a plate: worn paint, dirt, snow; and cheap noise."""

from functools import cache

import cv2
import numpy as np
import numpy.typing as npt

from plate_models.training.imaging import Field, Image
from plate_models.training.synthetic.glyphs import Mask

_BANK_SIDE = 768
_CUBIC_BELOW = 20


@cache
def _noise_bank() -> Field:
    """Standard normal noise to cut windows from: drawing it anew costs too much."""
    return np.random.default_rng(50577).standard_normal((_BANK_SIDE, _BANK_SIDE), np.float32)


def noise(rng: np.random.Generator, height: int, width: int) -> Field:
    """A window of standard normal noise; not to be written to.

    Returns (height, width) float32. Windows repeat beyond 768 pixels a side.
    """
    bank = _noise_bank()
    if height >= _BANK_SIDE or width >= _BANK_SIDE:
        bank = np.tile(bank, (2 + height // _BANK_SIDE, 2 + width // _BANK_SIDE))
    y = int(rng.integers(bank.shape[0] - height))
    x = int(rng.integers(bank.shape[1] - width))
    return bank[y : y + height, x : x + width]


def blobs(
    rng: np.random.Generator,
    size_hw: tuple[int, ...],
    cells_hw: tuple[int, int],
    channels: int = 1,
) -> Field:
    """Smooth standard normal noise that varies over ``cells_hw`` cells.

    Returns (H, W) float32, or (H, W, channels) for more than one channel.
    """
    height, width = cells_hw
    coarse = noise(rng, height, width * channels)
    if channels > 1:
        coarse = coarse.reshape(height, width, channels)
    size_wh = size_hw[1], size_hw[0]
    if width < _CUBIC_BELOW:
        # Curves through few points look round in a cubic and kinked in a linear scaling.
        middle_wh = 4 * width, 4 * height
        coarse = np.asarray(cv2.resize(coarse, middle_wh, interpolation=cv2.INTER_CUBIC))
    return np.asarray(cv2.resize(coarse, size_wh, interpolation=cv2.INTER_LINEAR), np.float32)


def lay_over(rgb: Image, cover: Field, colour: npt.NDArray[np.float64]) -> None:
    """Mix a colour into a picture, in place."""
    layer = np.empty_like(rgb)
    cv2.rectangle(layer, (0, 0), (rgb.shape[1], rgb.shape[0]), [float(c) for c in colour], -1)
    cv2.blendLinear(layer, rgb, cover, 1 - cover, dst=rgb)


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
    lay_over(rgb, np.clip(cover, 0, rng.uniform(0.2, 0.85)).astype(np.float32), colour)


def add_snow(rgb: Image, rng: np.random.Generator) -> None:
    """Let snow stick to the upper or the lower side, in place."""
    height, width = rgb.shape[:2]
    rows = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    if rng.random() < 0.5:
        rows = 1 - rows
    level = 0.25 * blobs(rng, (height, width), (6, 24)) + rows - rng.uniform(0.75, 1.1)
    cover = np.clip(level * 8, 0, 1).astype(np.float32)
    lay_over(rgb, cover, rng.uniform(200, 250) * np.array([0.98, 0.99, 1.0]))
