"""Textures: noise, mapped to a scale of colours."""

from collections.abc import Sequence
from functools import cache

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training.imaging import Field, Image
from plate_models.training.tables import pick, tables_of

_SIDE = 1024
_TABLES = tables_of(__file__)


@cache
def _noise_tile(smoothness: float) -> Field:
    """Noise with the spectrum 1 / frequency^smoothness, repeated once along each axis."""
    white = np.random.default_rng(8060).standard_normal((_SIDE, _SIDE))
    frequency = np.hypot(np.fft.fftfreq(_SIDE)[:, None], np.fft.rfftfreq(_SIDE)[None])
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(white) / frequency**smoothness
    noise = np.fft.irfft2(spectrum, (_SIDE, _SIDE))
    return np.tile((noise / noise.std()).astype(np.float32), (2, 2))


def fractal(rng: Generator, size_hw: tuple[int, int], zoom: float, smoothness: float) -> Field:
    """Fractal noise, similar at all scales: (H, W) float32 of about unit variance."""
    height, width = (int(np.clip(round(side / zoom), 2, _SIDE)) for side in size_hw)
    y, x = rng.integers(0, _SIDE, 2)
    window = _noise_tile(smoothness)[y : y + height, x : x + width]
    return np.asarray(cv2.resize(window, size_hw[::-1]), np.float32)


def draw_background(rng: Generator, size_wh: tuple[int, int]) -> Image:
    """Draw a wall, plants or the sky, and the ground below; (H, W, 3) uint8 RGB."""
    width, height = size_wh
    horizon = round(rng.uniform(0.1, 0.7) * height)
    parts = []
    for scales, rows in ((_TABLES["above"], horizon), (_TABLES["below"], height - horizon)):
        fine = fractal(rng, (rows, width), rng.uniform(1, 4), 0.6)
        coarse = fractal(rng, (rows, width), 6, 1.4)
        parts.append(_colour(0.5 + 0.12 * fine + 0.12 * coarse, pick(scales, rng)))
    return np.concatenate(parts)


def _colour(field: Field, scale: Sequence[tuple[float, float, float]]) -> Image:
    """Map a field in [0, 1] to a scale of evenly spaced colours; (H, W, 3) uint8 RGB."""
    places = np.linspace(0, 255, len(scale))
    channels = [np.interp(np.arange(256), places, tone) for tone in np.transpose(scale)]
    table = np.stack(channels, axis=1).astype(np.uint8)
    return table[np.clip(field * 255, 0, 255).astype(np.uint8)]
