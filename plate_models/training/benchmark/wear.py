"""What roads do to plates: dust, spray from wheels, runs of rain, scratches, rust.

All of it is kept so thin that every character stays legible.
"""

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training.benchmark.textures import Field, fractal

_MUD = ((0.20, 0.155, 0.11), (0.12, 0.10, 0.085), (0.30, 0.28, 0.25))
_RUST = (0.17, 0.07, 0.03)
# Chances of each, and the most of a colour that they hide.
DUST_SHARE, SPRAY_SHARE, RUN_SHARE, SCRATCH_SHARE, RUST_SHARE = 0.45, 0.3, 0.25, 0.25, 0.12
DUST_COVER, SPRAY_COVER, RUN_COVER = 0.4, 0.8, 0.4


def soil(sheet: Field, rng: Generator, px_per_mm: float) -> None:
    """Age a plate, in place.

    Args:
        sheet: (H, W, 3) float32 reflectance, written to.
        rng: Source of all chance.
        px_per_mm: Its resolution.
    """
    mud = _MUD[rng.integers(len(_MUD))]
    size = (sheet.shape[0], sheet.shape[1])
    if rng.random() < DUST_SHARE:
        drift = 0.5 + 0.25 * fractal(rng, size, 3 * px_per_mm, 1.4)
        _cover(sheet, np.clip(drift, 0, 1) * rng.uniform(0.05, DUST_COVER), mud)
    if rng.random() < SPRAY_SHARE:
        _cover(sheet, _spray(rng, size, px_per_mm), mud)
    if rng.random() < RUN_SHARE:
        _cover(sheet, _runs(rng, size, px_per_mm), mud)
    if rng.random() < SCRATCH_SHARE:
        _scratch(sheet, rng, px_per_mm)
    if rng.random() < RUST_SHARE:
        edge = np.zeros(size, np.float32)
        cv2.rectangle(edge, (0, 0), (size[1] - 1, size[0] - 1), (1.0,), round(5 * px_per_mm))
        spots = np.clip(fractal(rng, size, 2 * px_per_mm, 1.0) - 0.3, 0, 1)
        _cover(sheet, edge * spots * 0.9, _RUST)


def _cover(sheet: Field, cover: Field, colour: tuple[float, float, float]) -> None:
    sheet += cover.astype(np.float32)[..., None] * (np.array(colour, np.float32) - sheet)


def _spray(rng: Generator, size_hw: tuple[int, int], px_per_mm: float) -> Field:
    """Drops of mud, denser towards one side, none much larger than a stroke is wide."""
    drops = fractal(rng, size_hw, rng.uniform(0.8, 1.8) * px_per_mm, 0.4)
    fall = np.linspace(0, 1, size_hw[0], dtype=np.float32)[:, None]
    level = rng.uniform(2.2, 3.2) - rng.uniform(0, 1.0) * fall
    return np.clip(3 * (drops - level), 0, rng.uniform(0.3, SPRAY_COVER)).astype(np.float32)


def _runs(rng: Generator, size_hw: tuple[int, int], px_per_mm: float) -> Field:
    """Dirt that rain has drawn downwards."""
    columns = fractal(rng, (2, size_hw[1]), 2 * px_per_mm, 0.6)[:1]
    fall = np.linspace(rng.uniform(0, 0.6), 1, size_hw[0], dtype=np.float32)[:, None]
    runs: Field = np.clip(columns - 0.4, 0, 1) * fall * np.float32(rng.uniform(0.1, RUN_COVER))
    return runs


def _scratch(sheet: Field, rng: Generator, px_per_mm: float) -> None:
    """Thin lines that bare the metal or the primer."""
    cover = np.zeros(sheet.shape[:2], np.float32)
    size = np.array(sheet.shape[1::-1])
    for _ in range(int(rng.integers(1, 7))):
        start = rng.uniform(0, 1, 2) * size
        stop = start + rng.normal(0, 40, 2) * px_per_mm
        ends = [tuple(np.rint(point).astype(int).tolist()) for point in (start, stop)]
        width = max(1, round(rng.uniform(0.4, 1.2) * px_per_mm))
        cv2.line(cover, ends[0], ends[1], (float(rng.uniform(0.3, 0.8)),), width, cv2.LINE_AA)
    tone = float(rng.choice((0.08, 0.45, 0.7)))
    _cover(sheet, cover, (tone, tone, tone))
