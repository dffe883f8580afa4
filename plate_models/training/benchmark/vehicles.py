"""What carries a plate: cars, trucks and trailers, tractors, motorcycles, drawn as polygons.

Places are in millimetres from the middle of the plate: x to the right, y down, z away, which
is 0 on the face that carries the plate. `half` is half the plate's size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training.benchmark.camera import Camera, Frame
from plate_models.training.benchmark.textures import Colour
from plate_models.training.imaging import Field, Image

Points = Sequence[Sequence[float]]
Half = tuple[float, float]

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
_DARK: Colour = (13, 13, 15)
_PLASTIC: Colour = (30, 31, 33)
_STEEL: Colour = (150, 152, 156)
_PALE: Colour = (222, 220, 214)
_RED: Colour = (196, 26, 30)
_ORANGE: Colour = (220, 125, 25)
_GLASS: Colour = (44, 50, 58)
# Lamps that are on are brighter than what is lit.
_GLOWING = 3.0
LENGTH_MM = 3900.0


def box(x0: float, y0: float, x1: float, y1: float) -> Points:
    """A box's corners."""
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def disc(x: float, y: float, radius: float) -> Points:
    """A circle's outline."""
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    return [(x + radius * float(np.cos(a)), y + radius * float(np.sin(a))) for a in angles]


def mirrored(*points: tuple[float, float]) -> Points:
    """The right half's outline, from top to bottom, closed by its mirror image."""
    return [*points, *((-x, y) for x, y in reversed(points))]


def _times(colour: Colour, factor: float) -> Colour:
    r, g, b = colour
    return r * factor, g * factor, b * factor


def _glow(rng: Generator, share: float) -> float | None:
    return _GLOWING if rng.random() < share else None


def _bars(brush: Brush, area: tuple[float, float, float, float], step: float, tone: Colour) -> None:
    """Level bars over an area x0, y0, x1, y1: a grille, or the tread of a tyre."""
    x0, y0, x1, y1 = area
    for y in np.arange(y0, y1 - 0.4 * step, step):
        brush(box(x0, y, x1, y + 0.3 * step), tone)


def _niche(brush: Brush, half: Half, rng: Generator, tone: Colour) -> None:
    """What the plate is fixed in or on, now and then with lamps above it."""
    wide, high = (float(side * rng.uniform(1.04, 1.35) + rng.uniform(8, 40)) for side in half)
    sink = float(rng.uniform(-0.1, 0.5)) * (high - half[1])
    brush(mirrored((wide * rng.uniform(0.86, 1), sink - high), (wide, high + sink)), tone)
    if rng.random() < 0.3:
        for x in (-wide / 2, wide / 2):
            brush(box(x - 28, sink - high, x + 28, sink - high + 14), _PALE)


def _hull(brush: Brush, reach: float, top: float, ground: float, paint: Colour) -> None:
    """The top, a flank and its wheels behind a face, and the dark ground below."""
    inner, far = 0.97 * reach, LENGTH_MM
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
            wheel = [(x, ground - 320 + y, z + dz) for dz, y in disc(0, 0, 320)]
            brush(wheel, _PLASTIC, 0.35)


def car_rear(brush: Brush, half: Half, ground: float, rng: Generator) -> None:
    """A boot lid with lamps, and the plate in its niche or on the bumper."""
    paint, lid = _PAINTS[rng.integers(len(_PAINTS))], -half[1] - float(rng.uniform(60, 180))
    _hull(brush, 880, -430, ground, paint)
    brush(mirrored((620, lid - 420), (760, lid), (880, 460)), paint)
    brush(mirrored((560, lid - 400), (680, lid - 90)), _GLASS)
    seam = lid + 30 if rng.random() < 0.35 else half[1] + float(rng.uniform(40, 160))
    brush(mirrored((800, seam), (900, seam + 90), (860, 430)), _times(paint, 0.85))
    inner, low = half[0] + float(rng.uniform(110, 240)), lid + float(rng.uniform(120, 200))
    for side in (-1, 1):
        outer = [(side * 800, lid), (side * 850, lid + 190)]
        brush([(side * inner, lid + 20), *outer, (side * (inner + 40), low)], _RED, _glow(rng, 0.4))
        x = side * (inner + 130)
        brush(box(x - 60, lid + 54, x + 60, lid + 86), _PALE)
    _niche(brush, half, rng, _times(paint, 0.55))
    brush(mirrored((700, 330), (640, 420)), _PLASTIC)


def car_front(brush: Brush, half: Half, ground: float, rng: Generator) -> None:
    """A bonnet, headlamps, a grille above the plate and an intake below it."""
    paint, top = _PAINTS[rng.integers(len(_PAINTS))], -half[1] - float(rng.uniform(200, 330))
    _hull(brush, 860, -430, ground, paint)
    brush(mirrored((560, top - 160), (760, top - 20), (880, 150), (840, 330)), paint)
    tone = _STEEL if rng.random() < 0.5 else _times(_STEEL, 0.35)
    step = float(rng.uniform(22, 60))
    for upper, lower, wide in ((top + 20, -half[1] - 35, 410), (half[1] + 40, 275, 580)):
        brush(mirrored((wide, upper), (wide - 50, lower)), _DARK)
        _bars(brush, (50 - wide, upper, wide - 50, lower), step, tone)
    brush(disc(0, top + 70, 55), _STEEL)
    on = _glow(rng, 0.35)
    for side in (-1, 1):
        outer = [(side * 800, top), (side * 840, top + 110)]
        brush([(side * 470, top + 40), *outer, (side * 500, top + 150)], _STEEL)
        for x in (570, 700):
            brush(disc(side * x, top + 80, 42), _PALE, on)
    if rng.random() < 0.5:
        _niche(brush, half, rng, _PLASTIC)


def truck_rear(brush: Brush, half: Half, ground: float, rng: Generator) -> None:
    """A trailer's or a van's rear wall, its beam with lamps, and warning stripes."""
    wall = ((214, 216, 214), (70, 92, 130), (150, 60, 40), (168, 170, 172))[rng.integers(4)]
    edge = -half[1] - float(rng.uniform(60, 220))
    _hull(brush, 1000, -740, ground, wall)
    brush(box(-1000, -900, 1000, edge), wall)
    for x in (-670.0, -320.0, 30.0, 380.0, 730.0):
        brush(box(x - 6, -900, x + 6, edge), _times(wall, 0.7))
    beam = ((40, 42, 44), (120, 30, 28), (90, 94, 98))[rng.integers(3)]
    brush(box(-1000, edge, 1000, half[1] + 90), beam)
    near = half[0] + float(rng.uniform(150, 260))
    for side in (-1, 1):
        for index, colour in enumerate((_RED, _ORANGE, _RED)):
            x = side * (near + 105 * index)
            brush(box(x - 48, -48, x + 48, 48), colour, _glow(rng, 0.2))
        x, y = side * (near + 90), half[1] + 30
        brush([(x, y), (x + 70, y + 120), (x - 70, y + 120)], _RED)
    if rng.random() < 0.5:
        y = half[1] + 160
        brush(box(-1000, y, 1000, y + 80), _PALE)
        for left in np.arange(-1000, 900, 160):
            stripe = [(left, y), (left + 80, y), (left + 160, y + 80), (left + 80, y + 80)]
            brush(stripe, _RED)
    _niche(brush, half, rng, _times(beam, 0.7))


def tractor(brush: Brush, half: Half, ground: float, rng: Generator) -> None:
    """A cab's rear window, wings, wheels and hoses."""
    paint = ((178, 34, 26), (30, 74, 150), (222, 170, 30), (40, 104, 52))[rng.integers(4)]
    for x in (-760.0, 760.0):
        brush(box(x - 220, -260, x + 220, ground), _PLASTIC)
        _bars(brush, (x - 200, -240, x + 200, ground), 90, _times(_STEEL, 0.35))
        brush([(x * 1.3, -300), (x * 0.63, -330), (x * 0.62, -130), (x * 1.3, -220)], paint)
        brush(box(x * 0.82 - 60, -290, x * 0.82 + 60, -230), _RED)
    brush(box(-520, -800, 520, -half[1] - 60), _times(paint, 0.9))
    brush(box(-450, -780, 450, -half[1] - 200), _GLASS)
    brush(box(-430, -half[1] - 70, 430, 260), _times(_STEEL, 0.3))
    for x in rng.uniform(-420, 420, 5):
        brush(box(x, half[1] + 60, x + 26, half[1] + rng.uniform(150, 360)), _DARK)
    _niche(brush, half, rng, _DARK)


def motorcycle(brush: Brush, half: Half, ground: float, rng: Generator) -> None:
    """A rear wheel below the plate, a wing, a lamp and indicators; air all around."""
    brush(box(-85, -60, 85, ground), _PLASTIC)
    _bars(brush, (-80, -40, 80, ground), 46, _times(_STEEL, 0.4))
    lift = -half[1] - float(rng.uniform(40, 90))
    seat = mirrored((130, lift - 300), (190, lift - 150), (130, lift))
    brush(seat, _PAINTS[rng.integers(len(_PAINTS))])
    brush(box(-80, lift - 75, 80, lift - 15), _RED, _glow(rng, 0.4))
    brush(box(-230, lift - 9, 230, lift + 9), _PLASTIC)
    for x in (-245, 245):
        brush(disc(x, lift, 32), _ORANGE)
    pipe = float(rng.choice((-250, 250)))
    brush(disc(pipe, 220, 72), _STEEL)
    brush(disc(pipe, 220, 45), _DARK)
    brush(mirrored((half[0] * 0.7, -half[1] - 25), (half[0] * 0.8, half[1] * 0.6)), _PLASTIC)


Draw = Callable[[Brush, Half, float, Generator], None]
# Vehicles that carry the plates of a kind; all others are on cars.
_CARRIERS: dict[str, tuple[Draw, ...]] = {
    "ru.car.square": (car_rear, truck_rear),
    "ru.motorcycle": (motorcycle,),
    "ru.tractor": (tractor,),
    "ru.trailer": (truck_rear,),
    "ru.taxi": (car_rear, car_front, truck_rear),
    "ru.military": (car_rear, car_front, truck_rear),
}
# Half the width of a face, and the height of a plate above the ground.
REACH_MM: dict[Draw, tuple[float, tuple[float, float]]] = {
    car_rear: (900, (460, 900)),
    car_front: (880, (360, 520)),
    truck_rear: (1000, (520, 800)),
    tractor: (980, (800, 1000)),
    motorcycle: (330, (560, 650)),
}


def carriers_of(kind: str) -> tuple[Draw, ...]:
    """The vehicles that carry plates of a kind."""
    return _CARRIERS.get(kind, (car_rear, car_front))
