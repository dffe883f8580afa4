"""Cars from behind and from the front, made of shapes: enough for a plate to sit on.

A car is drawn in its own units: x from -1 to 1 over its width, y upwards from the
ground, in half widths too.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from plate_models.training.synthetic.drawing import (
    Canvas,
    Colour,
    Points,
    colour,
    ellipse,
    fill,
    glow,
    rounded,
    stroke,
)

# A plate of 520 mm on a car of 1800 mm.
PLATE_SHARE = 0.29
PAINTS = (
    colour(225, 226, 228),
    colour(180, 184, 190),
    colour(112, 116, 122),
    colour(38, 40, 44),
    colour(20, 21, 24),
    colour(150, 24, 26),
    colour(28, 52, 110),
    colour(44, 76, 62),
    colour(176, 158, 120),
    colour(86, 30, 40),
)


@dataclass(frozen=True)
class Vehicle:
    """A car and its place in the picture.

    Attributes:
        centre_x, ground_y: Middle of its wheels' line, in canvas pixels.
        width: In canvas pixels.
        height: Of the roof, in half widths: 1.5 a saloon, 1.9 an off-roader.
        rear: Seen from behind.
        paint: (3,) RGB.
        lit: Its lamps are on.
    """

    centre_x: float
    ground_y: float
    width: float
    height: float
    rear: bool
    paint: Colour
    lit: bool

    def place(self, points: list[tuple[float, float]]) -> Points:
        """Car units to canvas pixels."""
        local = np.array(points, np.float64) * self.width / 2
        placed: Points = np.array([self.centre_x, self.ground_y]) + local * (1, -1)
        return placed

    def mirrored(self, points: list[tuple[float, float]]) -> Points:
        """The right half's outline, from top to bottom, closed by its mirror image."""
        return self.place(points + [(-x, y) for x, y in reversed(points)])

    @property
    def plate_centre(self) -> tuple[float, float]:
        """Where the plate's middle goes, in canvas pixels."""
        height = 0.40 * self.height if self.rear else 0.26 * self.height
        x, y = self.place([(0.0, height)])[0]
        return float(x), float(y)


def sample_vehicle(
    centre_x: float, ground_y: float, width: float, night: bool, rng: Generator
) -> Vehicle:
    """A car of random shape and paint at a place."""
    paint = PAINTS[rng.integers(len(PAINTS))] * rng.uniform(0.85, 1.1)
    return Vehicle(
        centre_x,
        ground_y,
        width,
        height=float(rng.uniform(1.45, 1.9)),
        rear=bool(rng.random() < 0.65),
        paint=np.clip(paint, 8, 245),
        lit=night or bool(rng.random() < 0.35),
    )


def draw_vehicle(canvas: Canvas, car: Vehicle, rng: Generator) -> None:
    """Draw a car, in place, without its plate."""
    _draw_shadow_and_wheels(canvas, car)
    _draw_cabin(canvas, car, rng)
    _draw_body(canvas, car)
    if car.rear:
        _draw_rear(canvas, car, rng)
    else:
        _draw_front(canvas, car, rng)
    _draw_recess(canvas, car)


def _draw_shadow_and_wheels(canvas: Canvas, car: Vehicle) -> None:
    x, y = car.place([(0, 0.02)])[0]
    radii = (0.56 * car.width, 0.05 * car.width)
    for share in (1.0, 0.93, 0.86):
        shadow = ellipse((x, y), (radii[0] * share, radii[1] * share))
        fill(canvas, shadow, colour(12, 12, 14), None, 0.4)
    for side in (-1, 1):
        tyre = [(0.62, 0.36), (0.9, 0.36), (0.9, 0.0), (0.62, 0.0)]
        points = car.place([(side * x, y) for x, y in tyre])
        fill(canvas, rounded(points, 2), colour(34, 34, 36), colour(14, 14, 15))


def _draw_cabin(canvas: Canvas, car: Vehicle, rng: Generator) -> None:
    """Roof, pillars and the window with what it mirrors."""
    h = car.height
    shell = [(0.0, h), (0.45, h), (0.66, 0.965 * h), (0.78, 0.66 * h), (0.86, 0.55 * h)]
    fill(canvas, rounded(car.mirrored(shell), 3), car.paint * 1.08 + 6, car.paint * 0.85)
    pane = [(0.0, 0.945 * h), (0.5, 0.94 * h), (0.6, 0.9 * h), (0.74, 0.625 * h), (0.0, 0.61 * h)]
    glass = rounded(car.mirrored(pane), 2)
    fill(canvas, glass, colour(92, 104, 116) * rng.uniform(0.5, 1.0), colour(20, 23, 27))
    shift = float(rng.uniform(-0.3, 0.3))
    gleam = [(shift, 0.93 * h), (shift + 0.12, 0.93 * h), (shift + 0.02, 0.63 * h)]
    gleam.append((shift - 0.16, 0.63 * h))
    fill(canvas, car.place(gleam), colour(190, 200, 210), None, 0.12)
    for x in (-0.36, 0.36):  # head restraints
        seat = [(x - 0.1, 0.61 * h), (x - 0.1, 0.73 * h), (x + 0.1, 0.73 * h), (x + 0.1, 0.61 * h)]
        fill(canvas, rounded(car.place(seat), 2), colour(14, 14, 16), None, 0.55)
    if not car.rear:
        for side in (-1, 1):
            mirror = [(0.8, 0.66 * h), (1.02, 0.68 * h), (1.04, 0.6 * h), (0.82, 0.585 * h)]
            points = car.place([(side * x, y) for x, y in mirror])
            fill(canvas, rounded(points, 2), car.paint * 0.95, car.paint * 0.6)


def _draw_body(canvas: Canvas, car: Vehicle) -> None:
    """The body below the windows, its creases and its bumper."""
    h = car.height
    outline = [(0.0, 0.63 * h), (0.74, 0.625 * h), (0.93, 0.55 * h), (1.0, 0.42 * h)]
    outline += [(0.985, 0.2 * h), (0.93, 0.13 * h), (0.0, 0.12 * h)]
    fill(canvas, rounded(car.mirrored(outline), 3), car.paint * 1.06 + 10, car.paint * 0.55)
    shoulder = [(-0.86, 0.555 * h), (-0.4, 0.58 * h), (0.4, 0.58 * h), (0.86, 0.555 * h)]
    stroke(canvas, car.place(shoulder), car.paint * 1.1 + 40, 0.008 * car.width, 0.6)
    seam = [(-0.9, 0.285 * h), (-0.5, 0.275 * h), (0.5, 0.275 * h), (0.9, 0.285 * h)]
    stroke(canvas, car.place(seam), car.paint * 0.35, 0.006 * car.width, 0.9)
    sill = [(0.0, 0.16 * h), (0.9, 0.17 * h), (0.92, 0.1 * h), (0.8, 0.075 * h), (0.0, 0.075 * h)]
    fill(canvas, rounded(car.mirrored(sill), 2), colour(44, 45, 48), colour(16, 16, 18))


def _draw_rear(canvas: Canvas, car: Vehicle, rng: Generator) -> None:
    h = car.height
    slant = float(rng.uniform(-0.02, 0.04))
    inner = float(rng.uniform(0.55, 0.68))
    lamp = [(0.95, (0.53 + slant) * h), (0.985, 0.41 * h), (inner, 0.43 * h)]
    lamp += [(inner + 0.05, (0.52 + slant) * h)]
    red = colour(235, 48, 44) if car.lit else colour(150, 22, 24)
    for side in (-1, 1):
        points = car.place([(side * x, y) for x, y in lamp])
        fill(canvas, rounded(points, 2), red, red * 0.55)
        middle = points.mean(axis=0)
        core = middle + (points - middle) * 0.45
        fill(canvas, rounded(core, 2), red * 0.6 + 95, red * 0.9 + 10, 0.9)
        reflector = [(0.68, 0.225 * h), (0.86, 0.23 * h), (0.86, 0.205 * h), (0.68, 0.2 * h)]
        fill(canvas, car.place([(side * x, y) for x, y in reflector]), red * 0.7)
    _draw_badge(canvas, car, 0.515 * h)
    if rng.random() < 0.6:
        side = rng.choice((-1, 1))
        pipe = car.place([(side * 0.6, 0.085 * h)])[0]
        fill(
            canvas,
            ellipse(tuple(pipe), (0.04 * car.width, 0.018 * car.width)),
            colour(120, 120, 124),
        )
        fill(
            canvas, ellipse(tuple(pipe), (0.03 * car.width, 0.012 * car.width)), colour(12, 12, 12)
        )


def _draw_front(canvas: Canvas, car: Vehicle, rng: Generator) -> None:
    h = car.height
    inner = float(rng.uniform(0.5, 0.6))
    lamp = [(0.93, 0.5 * h), (0.97, 0.43 * h), (inner + 0.06, 0.40 * h), (inner, 0.46 * h)]
    white = colour(250, 248, 236) if car.lit else colour(178, 184, 190)
    for side in (-1, 1):
        points = car.place([(side * x, y) for x, y in lamp])
        fill(canvas, rounded(points, 2), white * 0.8, white * 0.5)
        x, y = points.mean(axis=0)
        fill(canvas, ellipse((x, y), (0.055 * car.width, 0.032 * car.width)), white)
    grille = [
        (0.0, 0.475 * h),
        (inner - 0.08, 0.465 * h),
        (inner - 0.13, 0.36 * h),
        (0.0, 0.35 * h),
    ]
    fill(canvas, rounded(car.mirrored(grille), 2), colour(26, 27, 29), colour(12, 12, 13))
    for share in np.linspace(0.37, 0.455, int(rng.integers(3, 6))):
        bar = [(-inner + 0.16, share * h), (inner - 0.16, share * h)]
        stroke(canvas, car.place(bar), colour(112, 116, 120), 0.005 * car.width, 0.8)
    _draw_badge(canvas, car, 0.42 * h)


def _draw_badge(canvas: Canvas, car: Vehicle, height: float) -> None:
    centre = car.place([(0, height)])[0]
    ring = ellipse(tuple(centre), (0.032 * car.width, 0.02 * car.width))
    fill(canvas, ring, colour(214, 218, 222), colour(120, 124, 128))


def _draw_recess(canvas: Canvas, car: Vehicle) -> None:
    """A shaded hollow behind the plate."""
    x, y = car.plate_centre
    half = (0.62 * PLATE_SHARE * car.width, 0.62 * PLATE_SHARE * car.width / 3.4)
    corners = np.array([(-1.06, -1), (1.06, -1), (0.97, 1), (-0.97, 1)]) * half + (x, y)
    fill(canvas, rounded(corners, 2), car.paint * 0.45, car.paint * 0.8, 0.9)


def light_vehicle(canvas: Canvas, car: Vehicle, strength: float) -> None:
    """Add the light of a car's lamps to the picture, in place."""
    shade = colour(255, 60, 44) if car.rear else colour(255, 246, 220)
    for side in (-0.8, 0.8):
        x, y = car.place([(side, 0.46 * car.height)])[0]
        glow(canvas, (float(x), float(y)), 0.07 * car.width, shade, strength)
