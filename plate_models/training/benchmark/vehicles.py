"""What carries a plate: cars, trucks and trailers, tractors, motorcycles, drawn as polygons.

Places are in millimetres from the middle of the plate: x to the right, y down, z away, which
is 0 on the face that carries the plate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training.benchmark.camera import Camera, Frame
from plate_models.training.benchmark.textures import Colour
from plate_models.training.imaging import Field, Image

Points = Sequence[Sequence[float]]

_SHIFT = 4
_NEAREST_MM = 200


@dataclass(frozen=True)
class Brush:
    """Fills polygons of a vehicle, what is near after what is far."""

    albedo: Image  # (H, W, 3) uint8 RGB, what the surfaces are
    lit: Field  # (H, W) float32, the share of directed light that they get
    camera: Camera
    frame: Frame  # of the vehicle
    share: float  # of directed light on its face

    @property
    def eye(self) -> tuple[float, float]:
        """The camera's (x, y) in the vehicle's frame."""
        x, y, _ = (-self.frame.origin @ self.frame.turn).tolist()
        return x, y

    def __call__(self, points: Points, colour: Colour, lit: float | None = None) -> None:
        """Fill a polygon of (x, y) on the face or of (x, y, z), unless it is behind the camera."""
        corners = np.zeros((len(points), 3))
        corners[:, : len(points[0])] = points
        placed = self.frame.at(corners)
        if placed[:, 2].min() < _NEAREST_MM:
            return
        path = np.rint(self.camera.project(placed) * (1 << _SHIFT)).astype(np.int32)
        cv2.fillPoly(self.albedo, [path], colour, cv2.LINE_AA, _SHIFT)
        light = self.share if lit is None else lit
        cv2.fillPoly(self.lit, [path], (light,), cv2.LINE_8, _SHIFT)


_PAINTS: tuple[Colour, ...] = (
    (232, 232, 230), (24, 25, 28), (128, 132, 138), (196, 198, 200), (62, 66, 72),
    (136, 20, 28), (26, 44, 92), (52, 92, 140), (206, 176, 120), (60, 74, 52),
    (228, 190, 40), (110, 66, 40), (44, 110, 96),
)  # fmt: skip
_PLASTIC: Colour = (26, 27, 29)
_STEEL: Colour = (150, 152, 156)
_PALE: Colour = (222, 220, 214)
_RED: Colour = (196, 26, 30)
_ORANGE: Colour = (220, 125, 25)
_GLASS: Colour = (44, 50, 58)
# Lamps that are on are brighter than what is lit.
_GLOWING = 3.0
LENGTH_MM = 3900.0


@dataclass(frozen=True)
class Body:
    """Proportions of a vehicle, in millimetres."""

    reach: float  # half its width
    ground: tuple[float, float]  # height of the plate above the ground
    roof: float  # upper end of the face above the plate
    glass: float  # half the width of the window below the roof; 0 without
    wheel: float  # half the width of a wheel
    axle: float  # where the wheels are to the left and right; 0 for one in the middle
    hull: bool = True  # whether there is something behind the face


_CAR = Body(860, (360, 900), 430, 600, 110, 680)
_TRUCK = Body(1000, (520, 800), 740, 0, 140, 800)
_TRACTOR = Body(520, (800, 1000), 760, 440, 220, 760, hull=False)
_MOTORCYCLE = Body(150, (560, 650), 330, 0, 85, 0, hull=False)
# Bodies that carry the plates of a kind; all others are on cars.
_BODIES: dict[str, tuple[Body, ...]] = {
    "ru.car.square": (_CAR, _TRUCK),
    "ru.motorcycle": (_MOTORCYCLE,),
    "ru.tractor": (_TRACTOR,),
    "ru.trailer": (_TRUCK,),
    "ru.taxi": (_CAR, _CAR, _TRUCK),
    "ru.military": (_CAR, _CAR, _TRUCK),
}


def bodies_of(kind: str) -> tuple[Body, ...]:
    """The bodies that carry plates of a kind."""
    return _BODIES.get(kind, (_CAR,))


def draw_vehicle(
    brush: Brush, body: Body, size_mm: tuple[float, float], ground: float, rng: Generator
) -> None:
    """Draw a vehicle around a plate of a size that hangs so high above the ground."""
    half_w, half_h = size_mm[0] / 2, size_mm[1] / 2
    paint = _PAINTS[rng.integers(len(_PAINTS))]
    if body.hull:
        _draw_hull(brush, body, ground, paint)
    for x in (-body.axle, body.axle):
        brush(_box(x - body.wheel, ground - 600, x + body.wheel, ground), _PLASTIC)
        _draw_bars(brush, (x - 0.9 * body.wheel, ground - 580, x + 0.9 * body.wheel, ground), 60)
    shoulder = -half_h - float(rng.uniform(60, 160))
    sill = 0.6 * ground
    shell = (0.8 * body.reach, -body.roof), (body.reach, shoulder), (0.95 * body.reach, sill)
    brush(_mirrored(*shell), paint)
    if body.glass:
        pane = (0.9 * body.glass, 25 - body.roof), (body.glass, min(shoulder - 40, 140 - body.roof))
        brush(_mirrored(*pane), _GLASS)
    # A seam, and a bumper or a beam below it; a grille or an intake.
    seam = half_h + float(rng.uniform(20, 120))
    lower = _PLASTIC if rng.random() < 0.5 else _times(paint, 0.8)
    brush(_mirrored((0.93 * body.reach, seam), (0.97 * body.reach, sill)), lower)
    if rng.random() < 0.5:
        wide, step = float(rng.uniform(0.4, 0.65)) * body.reach, float(rng.uniform(22, 60))
        _draw_bars(brush, (-wide, seam + 30, wide, seam + 150), step)
    _draw_lamps(brush, body, half_w, shoulder, rng)
    wide, high = (
        float(side * rng.uniform(1.04, 1.35) + rng.uniform(8, 40)) for side in (half_w, half_h)
    )
    sink = float(rng.uniform(-0.1, 0.5)) * (high - half_h)
    niche = _mirrored((wide * rng.uniform(0.86, 1), sink - high), (wide, high + sink))
    brush(niche, _times(paint, 0.5) if rng.random() < 0.6 else _PLASTIC)


def _draw_hull(brush: Brush, body: Body, ground: float, paint: Colour) -> None:
    """The top, a flank and its wheels behind a face, and the dark ground below."""
    inner, far, top = 0.97 * body.reach, LENGTH_MM, -body.roof
    floor = [(-inner, ground, 0), (inner, ground, 0), (inner, ground, far), (-inner, ground, far)]
    brush(floor, (34, 34, 36), 0.0)
    eye_x, eye_y = brush.eye
    if eye_y < top:
        brush([(x, top, z) for x, _, z in floor], _times(paint, 0.9), 0.7)
    if abs(eye_x) > inner:
        x, sill = np.copysign(inner, eye_x), 0.65 * ground
        flank = [(x, top, 0), (x, sill, 0), (x, sill, far), (x, top, far)]
        brush(flank, _times(paint, 0.8), 0.35)
        for z in (750, 3200):
            wheel = [(x, ground - 320 + y, z + dz) for dz, y in _disc(0, 0, 320)]
            brush(wheel, _PLASTIC, 0.35)


def _draw_lamps(brush: Brush, body: Body, inner: float, y: float, rng: Generator) -> None:
    """One to three lamps on either side: a front's, round and pale, or a rear's, boxes in red."""
    radius, count, front = float(rng.uniform(35, 70)), int(rng.integers(1, 4)), rng.random() < 0.4
    step = max(2.1 * radius, (body.reach - inner) / 4)
    lit = _GLOWING if rng.random() < 0.35 else None
    for index in range(count):
        x = min(inner + 120 + step * index, body.reach - radius + 60)
        for side in (-x, x):
            if front:
                brush(_disc(side, y + radius, 1.2 * radius), _STEEL)
                brush(_disc(side, y + radius, radius), _PALE, lit)
            else:
                lens = _box(side - radius, y, side + radius, y + 2 * radius)
                brush(lens, _ORANGE if index == 1 else _RED, lit)


def _draw_bars(brush: Brush, area: tuple[float, float, float, float], step: float) -> None:
    """Level bars over an area x0, y0, x1, y1: a grille, or the tread of a tyre."""
    x0, y0, x1, y1 = area
    for y in np.arange(y0, y1 - 0.4 * step, step):
        brush(_box(x0, y, x1, y + 0.3 * step), _times(_STEEL, 0.4))


def _box(x0: float, y0: float, x1: float, y1: float) -> Points:
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def _disc(x: float, y: float, radius: float) -> Points:
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    return [(x + radius * float(np.cos(a)), y + radius * float(np.sin(a))) for a in angles]


def _mirrored(*points: tuple[float, float]) -> Points:
    """The right half's outline, from top to bottom, closed by its mirror image."""
    return [*points, *((-x, y) for x, y in reversed(points))]


def _times(colour: Colour, factor: float) -> Colour:
    r, g, b = colour
    return r * factor, g * factor, b * factor
