"""Soft shapes on a float canvas: what streets and vehicles are made of.

A canvas is (H, W, 3) float32 RGB in [0, 255]; points are (K, 2) x, y in its pixels.
Everything draws in place.
"""

from itertools import pairwise

import cv2
import numpy as np
import numpy.typing as npt

Canvas = npt.NDArray[np.float32]
Points = npt.NDArray[np.float64]
Colour = npt.NDArray[np.float64]

# OpenCV takes fixed-point coordinates: 1/16 of a pixel.
_SHIFT = 4


def colour(red: float, green: float, blue: float) -> Colour:
    """(3,) float64 RGB."""
    return np.array([red, green, blue], np.float64)


def rounded(points: Points, rounds: int = 3) -> Points:
    """Cut the corners of a closed polygon until it is a curve (Chaikin 1974)."""
    for _ in range(rounds):
        following = np.roll(points, -1, axis=0)
        near, far = 0.75 * points + 0.25 * following, 0.25 * points + 0.75 * following
        points = np.stack((near, far), axis=1).reshape(-1, 2)
    return points


def fill(
    canvas: Canvas, points: Points, top: Colour, bottom: Colour | None = None, alpha: float = 1.0
) -> None:
    """Fill a polygon, with a vertical gradient if a colour for its bottom is given."""
    low = np.floor(points.min(axis=0)).astype(int) - 1
    high = np.ceil(points.max(axis=0)).astype(int) + 2
    x0, y0 = np.maximum(low, 0)
    x1, y1 = np.minimum(high, canvas.shape[1::-1])
    if x1 <= x0 or y1 <= y0:
        return
    mask = np.zeros((y1 - y0, x1 - x0), np.uint8)
    fixed = np.rint((points - (x0, y0)) * (1 << _SHIFT)).astype(np.int32)
    cv2.fillPoly(mask, [fixed], (255,), cv2.LINE_AA, _SHIFT)
    share = np.linspace(0, 1, high[1] - low[1])[y0 - low[1] : y1 - low[1], None, None]
    shade = top + ((top if bottom is None else bottom) - top) * share
    weight = mask[..., None].astype(np.float32) * (alpha / 255)
    region = canvas[y0:y1, x0:x1]
    region += weight * (shade.astype(np.float32) - region)


def stroke(canvas: Canvas, points: Points, shade: Colour, width: float, alpha: float = 1.0) -> None:
    """Draw an open line of a width in pixels."""
    for start, end in pairwise(points):
        direction = end - start
        length = float(np.hypot(*direction))
        if length > 0:
            side = np.array([-direction[1], direction[0]]) / length * width / 2
            fill(
                canvas,
                np.array([start + side, end + side, end - side, start - side]),
                shade,
                None,
                alpha,
            )


def ellipse(centre: tuple[float, float], radii: tuple[float, float]) -> Points:
    """A polygon that looks like an ellipse."""
    angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    outline: Points = np.stack((np.cos(angles), np.sin(angles)), axis=1) * radii + centre
    return outline


def glow(
    canvas: Canvas, centre: tuple[float, float], radius: float, shade: Colour, strength: float
) -> None:
    """Add light around a lamp: bright in the middle, with a long tail."""
    reach = int(radius * 4)
    x, y = round(centre[0]), round(centre[1])
    x0, y0 = max(x - reach, 0), max(y - reach, 0)
    x1, y1 = min(x + reach, canvas.shape[1]), min(y + reach, canvas.shape[0])
    if x1 <= x0 or y1 <= y0:
        return
    rows, columns = np.mgrid[y0:y1, x0:x1]
    squared = ((rows - y) ** 2 + (columns - x) ** 2) / radius**2
    fade = np.clip(1 - squared / 16, 0, 1)
    light = strength * fade * (np.exp(-squared) + 0.25 / (1 + squared))
    canvas[y0:y1, x0:x1] += (light[..., None] * shade).astype(np.float32)
