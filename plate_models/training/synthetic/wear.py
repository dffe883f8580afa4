"""Wear of a plate: worn paint, dirt, snow, obstacles; and smooth noise."""

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training.imaging import Field, Image, Mask, lay_over

# Noise of fewer cells is upscaled cubically: linear interpolation of few cells shows kinks.
_CUBIC_BELOW = 20


def blobs(
    rng: Generator, size_hw: tuple[int, ...], cells_hw: tuple[int, int], channels: int = 1
) -> Field:
    """Standard normal noise of ``cells_hw`` cells, upscaled smoothly to ``size_hw``.

    Returns (H, W) float32, or (H, W, channels) for more than one channel.
    """
    coarse = rng.standard_normal((*cells_hw, channels), np.float32)
    if cells_hw[1] < _CUBIC_BELOW:
        # Linear interpolation is faster for the rest, and its result hardly differs.
        larger = cv2.resize(coarse, None, fx=4, fy=4, interpolation=cv2.INTER_CUBIC)
        coarse = np.asarray(larger, np.float32)
    return np.asarray(cv2.resize(coarse, (size_hw[1], size_hw[0])), np.float32)


def wear_ink(ink: Mask, rng: Generator) -> Mask:
    """Rub paint off the characters in patches; returns (H, W) uint8, at most ``ink``."""
    patches = blobs(rng, ink.shape, (4, 14)) + 0.7 * blobs(rng, ink.shape, (28, 130))
    loss = rng.uniform(0.2, 0.8) * np.clip(patches - rng.uniform(0, 1), 0, 1)
    return (ink * (1.0 - loss)).astype(np.uint8)


def add_dirt(rgb: Image, rng: Generator) -> None:
    """Add dust and splashes to an image, in place."""
    size = rgb.shape[:2]
    cover = 0.35 * blobs(rng, size, (3, 8)) + 0.25 * blobs(rng, size, (16, 60))
    lower = np.linspace(-0.3, 0.4, size[0], dtype=np.float32)[:, None] * rng.uniform(-0.3, 1)
    cover += lower + rng.uniform(-0.6, 0.35)
    colour = rng.uniform(45, 150) * np.array([1.0, rng.uniform(0.85, 1), rng.uniform(0.65, 1)])
    lay_over(rgb, np.clip(cover, 0, rng.uniform(0.2, 0.85)).astype(np.float32), colour)


def add_snow(rgb: Image, rng: Generator) -> None:
    """Add snow along the upper or the lower side, in place."""
    height, width = rgb.shape[:2]
    rows = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    if rng.random() < 0.5:
        rows = 1 - rows
    level = 0.25 * blobs(rng, (height, width), (6, 24)) + rows - rng.uniform(0.75, 1.1)
    cover = np.clip(level * 8, 0, 1).astype(np.float32)
    lay_over(rgb, cover, rng.uniform(200, 250) * np.array([0.98, 0.99, 1.0]))


def add_obstacle(rgb: Image, rng: Generator, line_px: float) -> None:
    """Hide small parts of one or two characters, in place; ``line_px`` is the height of a line."""
    height, width = rgb.shape[:2]
    cover = np.zeros((height, width), np.uint8)
    x, y = rng.uniform(0.05, 0.95) * width, rng.uniform(0.1, 0.9) * height
    colour = rng.uniform(5, 70) * rng.uniform(0.8, 1.1, 3)
    kind = rng.integers(4)
    if kind == 0:  # a tow bar and its ball, from below
        top = height - rng.uniform(0.12, 0.36) * line_px
        bar = round(rng.uniform(0.05, 0.1) * line_px)
        cv2.rectangle(cover, (round(x) - bar, round(top)), (round(x) + bar, height), (255,), -1)
        cv2.circle(cover, (round(x), round(top)), round(1.4 * bar), (255,), -1, cv2.LINE_AA)
    elif kind == 1:  # a cable that hangs over the plate
        ends = np.array([rng.uniform(-0.2, 1.2) * width, -2.0]), np.array([x, height + 2.0])
        bend = rng.normal(0, 0.3, 2) * height
        along = np.linspace(0, 1, 12)[:, None]
        line = ends[0] + along * (ends[1] - ends[0]) + along * (1 - along) * bend
        thick = max(1, round(rng.uniform(0.02, 0.06) * line_px))
        cv2.polylines(cover, [np.rint(line).astype(np.int32)], False, (255,), thick, cv2.LINE_AA)
    elif kind == 2:  # mud
        angles = np.arange(10) * 2 * np.pi / 10
        for _ in range(int(rng.integers(1, 5))):
            centre = rng.uniform(0, 1, 2) * (width, height)
            reach = rng.uniform(0.04, 0.13) * line_px * rng.uniform(0.5, 1.2, 10)[:, None]
            edge = centre + reach * np.column_stack((np.cos(angles), np.sin(angles)))
            cv2.fillPoly(cover, [np.rint(edge).astype(np.int32)], (255,), cv2.LINE_AA)
        colour = rng.uniform(40, 130) * np.array([1.0, 0.85, 0.65])
    else:  # stripes of snow left by a wiper or the wind
        tilt = round(rng.normal(0, 0.3) * width / 2)
        for _ in range(int(rng.integers(1, 3))):
            thick = max(1, round(rng.uniform(0.02, 0.05) * line_px))
            y = round(rng.uniform(0, 1) * height)
            cv2.line(cover, (0, y - tilt), (width, y + tilt), (255,), thick, cv2.LINE_AA)
        colour = rng.uniform(190, 250) * np.array([0.98, 0.99, 1.0])
    lay_over(rgb, cover, colour)
