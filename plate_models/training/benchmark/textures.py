"""Surfaces made of noise and arithmetic: brick, plaster, foliage, asphalt, snow.

Each is a field of grey values, sent through a scale of colours.
"""

from collections.abc import Sequence
from functools import cache

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training.imaging import Field, Floats, Image

Colour = tuple[float, float, float]
Size = tuple[int, int]

_SIDE = 1024


@cache
def _noise_tile(smoothness: float) -> Field:
    """Noise whose spectrum falls as 1 / frequency^smoothness, repeated once each way."""
    white = np.random.default_rng(8060).standard_normal((_SIDE, _SIDE))
    frequency = np.hypot(np.fft.fftfreq(_SIDE)[:, None], np.fft.rfftfreq(_SIDE)[None])
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(white) / frequency**smoothness
    noise = np.fft.irfft2(spectrum, (_SIDE, _SIDE))
    return np.tile((noise / noise.std()).astype(np.float32), (2, 2))


def fractal(rng: Generator, size_hw: Size, zoom: float = 1.0, smoothness: float = 1.0) -> Field:
    """Noise that is alike at all scales.

    Returns (H, W) float32 of about unit variance; not to be written to.
    """
    height, width = (int(np.clip(round(side / zoom), 2, _SIDE)) for side in size_hw)
    y, x = rng.integers(0, _SIDE, 2)
    window = _noise_tile(smoothness)[y : y + height, x : x + width]
    if window.shape == size_hw:
        return window
    return np.asarray(cv2.resize(window, size_hw[::-1]), np.float32)


def colour_field(field: Floats | Field, colours: Sequence[Colour]) -> Image:
    """Colour a field in [0, 1] along evenly spaced colours; (H, W, 3) uint8 RGB."""
    places = np.linspace(0, 255, len(colours))
    channels = [np.interp(np.arange(256), places, tone) for tone in np.transpose(colours)]
    table = np.clip(np.stack(channels, axis=1), 0, 255).astype(np.uint8)
    return table[np.clip(field * 255, 0, 255).astype(np.uint8)]


def shades(colour: Colour, low: float = 0.3, high: float = 1.25) -> tuple[Colour, Colour]:
    """A colour in the dark and in the light, for :func:`colour_field`."""
    r, g, b = colour
    return (r * low, g * low, b * low), (r * high, g * high, b * high)


def brick(rng: Generator, size_hw: Size, px_per_m: float) -> Image:
    """A wall of bricks in running bond."""
    y, x = np.arange(size_hw[0]) / (0.075 * px_per_m), np.arange(size_hw[1]) / (0.26 * px_per_m)
    row = y.astype(int)
    along = x[None] + 0.5 * (row % 2)[:, None]
    tones = rng.uniform(0.35, 0.75, (32, 32))[row[:, None] % 32, along.astype(int) % 32]
    mortar = (y % 1 < 0.16)[:, None] | (along % 1 < 0.06)
    field = np.where(mortar, 0.9, tones) + 0.06 * fractal(rng, size_hw, 1, 0.5)
    clay = ((120, 48, 34), (150, 92, 60), (188, 180, 168), (96, 90, 88))[rng.integers(4)]
    joint = float(rng.uniform(110, 200))
    return colour_field(field, (*shades(clay), (joint, joint, joint * 0.96)))


def plaster(rng: Generator, size_hw: Size, px_per_m: float) -> Image:
    """A plastered or concrete wall with upright joints and stains."""
    field = 0.62 + 0.07 * fractal(rng, size_hw, 1) + 0.05 * fractal(rng, size_hw, 3, 1.6)
    field[:, np.arange(size_hw[1]) % int(rng.uniform(0.9, 3.0) * px_per_m) < 2] -= 0.22
    wall = ((205, 196, 178), (196, 200, 204), (214, 190, 140), (150, 165, 158))[rng.integers(4)]
    return colour_field(field, shades(wall))


def foliage(rng: Generator, size_hw: Size, px_per_m: float) -> Image:
    """A hedge or trees: leaves over leaves, dark gaps between them."""
    leaves = fractal(rng, size_hw, 0.02 * px_per_m, 0.6)
    crowns = fractal(rng, size_hw, 0.1 * px_per_m, 1.3)
    field = 0.45 + 0.16 * leaves + 0.16 * crowns
    season = (
        ((8, 14, 8), (34, 58, 22), (78, 108, 44), (150, 170, 92)),
        ((14, 10, 8), (92, 64, 24), (160, 112, 36), (206, 178, 92)),
        ((16, 14, 13), (58, 50, 46), (112, 104, 98), (206, 206, 210)),
    )[rng.integers(3)]
    return colour_field(field, season)


WALLS = (brick, plaster, foliage)


def ground(rng: Generator, size_hw: Size) -> Image:
    """Wet or dry asphalt, or trodden snow, seen from above."""
    if rng.random() < 0.2:
        field = 0.66 + 0.1 * fractal(rng, size_hw, 2) + 0.1 * fractal(rng, size_hw, 6, 1.5)
        return colour_field(field, ((70, 70, 76), (176, 182, 192), (232, 236, 242)))
    field = 0.42 + 0.11 * fractal(rng, size_hw, 1, 0.2) + 0.08 * fractal(rng, size_hw, 4, 1.5)
    grey = float(rng.uniform(55, 135))
    return colour_field(field, shades((grey, grey, grey * 1.02), 0.2, 1.7))
