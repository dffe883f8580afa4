"""A street to put cars on: sky, houses, trees, road, snow."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training.synthetic.drawing import Canvas, colour, fill, glow, rounded, stroke


@dataclass(frozen=True)
class Weather:
    """Light and season.

    Attributes:
        night: Lamps are the only light.
        winter: Snow lies on the roadside.
        gain: Exposure of everything that has no light of its own.
        tint: (3,) colour of that light, as factors.
    """

    night: bool
    winter: bool
    gain: float
    tint: tuple[float, float, float]


def sample_weather(rng: Generator) -> Weather:
    """Day or night, summer or winter."""
    winter = bool(rng.random() < 0.5)
    if rng.random() < 0.3:
        return Weather(True, winter, float(rng.uniform(0.32, 0.5)), (1.1, 0.95, 0.72))
    warmth = float(rng.uniform(-0.05, 0.06))
    return Weather(False, winter, float(rng.uniform(0.85, 1.05)), (1 + warmth, 1.0, 1 - warmth))


def _texture(shape_hw: tuple[int, int], cells: tuple[int, int], rng: Generator) -> Canvas:
    """Smooth noise, (H, W, 1) float32 with unit deviation."""
    coarse = rng.normal(0, 1, cells).astype(np.float32)
    size_wh = (shape_hw[1], shape_hw[0])
    smooth = cv2.resize(coarse, size_wh, interpolation=cv2.INTER_CUBIC)
    return smooth[..., None].astype(np.float32, copy=False)


def paint_street(canvas: Canvas, horizon: int, weather: Weather, rng: Generator) -> None:
    """Fill the canvas, in place; the road vanishes at the horizon's middle."""
    _paint_sky(canvas[:horizon], weather, rng)
    _paint_houses(canvas, horizon, weather, rng)
    _paint_trees(canvas, horizon, weather, rng)
    _paint_road(canvas, horizon, weather, rng)


def _paint_sky(sky: Canvas, weather: Weather, rng: Generator) -> None:
    h, w = sky.shape[:2]
    top, bottom = colour(150, 176, 206), colour(214, 222, 228)
    if weather.winter:
        top, bottom = colour(176, 182, 190), colour(212, 214, 216)
    if weather.night:
        top, bottom = colour(30, 34, 50), colour(96, 80, 66)
    share = np.linspace(0, 1, h)[:, None, None]
    sky[:] = top * (1 - share) + bottom * share
    clouds = _texture((h, w), (5, 9), rng) + 0.5 * _texture((h, w), (11, 21), rng)
    sky += clouds * (3 if weather.night else 9)


def _paint_houses(canvas: Canvas, horizon: int, weather: Weather, rng: Generator) -> None:
    width = canvas.shape[1]
    x = -int(rng.integers(0, 120))
    while x < width:
        span, height = int(rng.uniform(0.1, 0.24) * width), int(rng.uniform(0.3, 0.9) * horizon)
        wall = colour(*(rng.uniform(110, 190) + rng.normal(0, 8, 3)))
        corners = np.array([(x, horizon), (x, horizon - height), (x + span, horizon - height)])
        corners = np.vstack((corners, [(x + span, horizon)])).astype(np.float64)
        fill(canvas, corners, wall, wall * 0.82)
        _paint_windows(canvas, (x, horizon - height, span, height), weather, rng)
        x += span + int(rng.integers(0, 40))


def _paint_windows(
    canvas: Canvas, wall_xywh: tuple[int, int, int, int], weather: Weather, rng: Generator
) -> None:
    x0, y0, span, height = wall_xywh
    step = max(height // int(rng.integers(5, 10)), 22)
    size = np.array([0.45, 0.55]) * step
    for y in np.arange(y0 + 0.4 * step, y0 + height - 0.8 * step, step):
        for x in np.arange(x0 + 0.3 * step, x0 + span - 0.7 * step, 0.9 * step):
            lit = weather.night and rng.random() < 0.35
            # Lit windows are brightened now, because night darkens the whole street.
            pane = colour(700, 560, 330) if lit else colour(84, 94, 106) * rng.uniform(0.7, 1.2)
            corners = np.array([(0, 0), (1, 0), (1, 1), (0, 1)]) * size + (x, y)
            fill(canvas, corners, pane, pane * 0.8)


def _paint_trees(canvas: Canvas, horizon: int, weather: Weather, rng: Generator) -> None:
    leaf = colour(96, 92, 88) if weather.winter else colour(58, 84, 44)
    for x in rng.uniform(0, canvas.shape[1], int(rng.integers(3, 9))):
        height = rng.uniform(0.3, 0.75) * horizon
        trunk = np.array([(x, horizon + 4), (x + rng.normal(0, 4), horizon - 0.5 * height)])
        stroke(canvas, trunk, colour(58, 50, 44), 0.045 * height)
        for _ in range(26):
            centre = (x, horizon - 0.68 * height) + rng.normal(0, 1, 2) * (0.2, 0.15) * height
            corners = rng.normal(0, 0.09 * height, (9, 2))
            order = np.argsort(np.arctan2(corners[:, 1], corners[:, 0]))
            shade = leaf * rng.uniform(0.7, 1.2)
            alpha = 0.3 if weather.winter else 0.8
            fill(canvas, rounded(corners[order] + centre, 2), shade, None, alpha)


def _paint_road(canvas: Canvas, horizon: int, weather: Weather, rng: Generator) -> None:
    h, w = canvas.shape[:2]
    verge = colour(216, 220, 226) if weather.winter else colour(96, 112, 70)
    ground = canvas[horizon:]
    ground[:] = verge
    ground += _texture((h - horizon, w), (14, 40), rng) * 7
    vanish = np.array([w * rng.uniform(0.4, 0.6), float(horizon)])
    left, right = w * rng.uniform(-0.7, -0.3), w * rng.uniform(1.3, 1.7)
    asphalt = colour(104, 105, 108) * rng.uniform(0.75, 1.05)
    far = np.array([12.0, 0.0])
    kerb = np.array([vanish - 1.4 * far, vanish + 1.4 * far, (right + 60, h), (left - 60, h)])
    fill(canvas, kerb, colour(150, 150, 150) if not weather.winter else colour(186, 188, 192))
    road = np.array([vanish - far, vanish + far, (right, h), (left, h)])
    fill(canvas, road, asphalt * 1.12, asphalt * 0.86)
    for share in (1 / 3, 2 / 3):
        foot = np.array([left + (right - left) * share, float(h)])
        for start in (0.1, 0.2, 0.36, 0.62):
            near, distant = (vanish + (foot - vanish) * t for t in (start * 1.45, start))
            half = np.array([0.007 * w * start, 0.0])
            wide = 1.45 * half
            mark = np.array([distant - half, distant + half, near + wide, near - wide])
            fill(canvas, mark, colour(214, 214, 210), None, 0.75)
    grain = _texture((h - horizon, w), ((h - horizon) // 2, w // 2), rng)
    ground += grain * np.linspace(1, 5, h - horizon, dtype=np.float32)[:, None, None]


def light_street(canvas: Canvas, horizon: int, strength: float) -> None:
    """Add street lamps in two rows towards the horizon, in place; cars come before them."""
    w = canvas.shape[1]
    for side in (-1, 1):
        for distance in (1.0, 0.55, 0.3, 0.16):
            x = w / 2 + side * distance * w * 0.46
            y = horizon * (1 - 0.85 * distance)
            glow(canvas, (x, y), 26 * distance + 5, colour(255, 196, 110), strength)
