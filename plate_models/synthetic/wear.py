"""What weather and years do to a plate: worn paint, dirt, snow."""

from functools import cache

import cv2
import numpy as np
import numpy.typing as npt

from plate_models.synthetic.glyphs import Mask

FloatImage = npt.NDArray[np.float32]

_BANK_SIDE = 768


@cache
def noise_bank() -> FloatImage:
    """Standard normal noise to cut windows from: drawing it anew costs too much."""
    return np.random.default_rng(50577).standard_normal((_BANK_SIDE, _BANK_SIDE), np.float32)


def noise(rng: np.random.Generator, size_hw: tuple[int, int]) -> FloatImage:
    """A window of standard normal noise; sides over the bank's are tiled."""
    bank = noise_bank()
    height, width = size_hw
    if height >= _BANK_SIDE or width >= _BANK_SIDE:
        bank = np.tile(bank, (2 + height // _BANK_SIDE, 2 + width // _BANK_SIDE))
    y = int(rng.integers(bank.shape[0] - height))
    x = int(rng.integers(bank.shape[1] - width))
    return bank[y : y + height, x : x + width]


def blobs(
    rng: np.random.Generator, size_hw: tuple[int, int], cells_hw: tuple[int, int]
) -> FloatImage:
    """Smooth standard normal noise that varies over ``cells_hw`` cells."""
    coarse = noise(rng, cells_hw)
    size_wh = size_hw[1], size_hw[0]
    return np.asarray(cv2.resize(coarse, size_wh, interpolation=cv2.INTER_CUBIC), np.float32)


def wear_ink(ink: Mask, rng: np.random.Generator, px_per_mm: float) -> Mask:
    """Rub paint off the characters in patches.

    Args:
        ink: (H, W) uint8 coverage.
        px_per_mm: Its resolution.

    Returns:
        (H, W) uint8, nowhere more than before.
    """
    patches = blobs(rng, ink.shape, (4, 14))
    grain = blobs(rng, ink.shape, (28, 130))
    kept = 1.0 - rng.uniform(0.2, 0.9) * np.clip(patches + 0.7 * grain - rng.uniform(0, 1), 0, 1)
    return (ink * kept).astype(np.uint8)


def add_dirt(rgb: FloatImage, rng: np.random.Generator) -> None:
    """Lay dust and splashes over a picture, in place."""
    size = rgb.shape[:2]
    cover = 0.35 * blobs(rng, size, (3, 8)) + 0.25 * blobs(rng, size, (16, 60))
    lower = np.linspace(-0.3, 0.4, size[0], dtype=np.float32)[:, None] * rng.uniform(-0.3, 1)
    cover = np.clip(cover + lower + rng.uniform(-0.6, 0.35), 0, rng.uniform(0.2, 0.85))
    colour = rng.uniform(45, 150) * np.array([1.0, rng.uniform(0.85, 1), rng.uniform(0.65, 1)])
    rgb += cover[..., None] * (colour.astype(np.float32) - rgb)


def add_snow(rgb: FloatImage, rng: np.random.Generator) -> None:
    """Let snow stick to a side or in spots, in place."""
    height, width = rgb.shape[:2]
    level = blobs(rng, (height, width), (6, 24)) * 0.25
    rows = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    if rng.random() < 0.5:
        rows = 1 - rows
    level = level + rows - rng.uniform(0.75, 1.1)
    cover = np.clip(level * 8, 0, 1)[..., None]
    rgb += cover * (rng.uniform(200, 250) - rgb)
