"""Faces of vehicles around a plate: cars, trucks and trailers, tractors, motorcycles.

They are drawn on a flat board in millimetres, x to the right and y down from the middle of
the plate; `half` is half the plate's size.
"""

from collections.abc import Callable, Sequence

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from plate_models.training.benchmark.camera import Floats
from plate_models.training.benchmark.textures import Colour, Image, fractal

Points = Sequence[tuple[float, float]]

_SHIFT = 4


class Facade:
    """A vehicle's face: colours and coverage, x to the right and y down from its plate.

    Attributes:
        rgba: (H, W, 4) uint8; clear where nothing was drawn.
        glow: (H, W) float32, light of its own, such as that of lamps; 0 without.
        px_per_mm: Resolution.
        origin_mm: (x, y) of the left top corner.
        paint: The vehicle's colour.
    """

    paint: Colour = (60, 60, 62)

    def __init__(self, box_mm: tuple[float, float, float, float], px_per_mm: float) -> None:
        x0, y0, x1, y1 = box_mm
        height, width = round((y1 - y0) * px_per_mm), round((x1 - x0) * px_per_mm)
        self.rgba: Image = np.zeros((height, width, 4), np.uint8)
        self.glow = np.zeros((height, width), np.float32)
        self.px_per_mm = px_per_mm
        self.origin_mm = (x0, y0)

    @property
    def to_mm(self) -> Floats:
        """(3, 3) from the board's pixels to millimetres."""
        mm = 1 / self.px_per_mm
        return np.array([[mm, 0, self.origin_mm[0]], [0, mm, self.origin_mm[1]], [0, 0, 1]])

    def shape(self, points: Points, upper: Colour, lower: Colour | None = None) -> None:
        """Fill an outline with a colour, or with an upright gradient between two."""
        mask, rows, columns = self._mask(points)
        if not mask.size:
            return
        height = mask.shape[0]
        fall = np.linspace(0, 1, height, dtype=np.float32)[:, None]
        tone = np.array(upper, np.float32) * (1 - fall) + np.array(lower or upper) * fall
        patch = self.rgba[rows, columns]
        cover = (mask.astype(np.float32) / 255)[..., None]
        mixed = patch[..., :3] + cover * (np.clip(tone, 0, 255)[:, None] - patch[..., :3])
        patch[..., :3] = mixed
        np.maximum(patch[..., 3], mask, out=patch[..., 3])

    def light(self, points: Points, strength: float) -> None:
        """Let an outline shine."""
        mask, rows, columns = self._mask(points)
        self.glow[rows, columns] += mask.astype(np.float32) / 255 * strength

    def line(self, points: Points, colour: Colour, width_mm: float) -> None:
        """Draw a line over what is there."""
        width = max(1, round(width_mm * self.px_per_mm))
        path = self._pixels(points)
        cv2.polylines(self.rgba, [path], False, (*colour, 255), width, cv2.LINE_AA, _SHIFT)

    def mesh(self, points: Points, colour: Colour, step_mm: float, slope: float) -> None:
        """Cross an outline with lines: bars for a slope of 0, a net of diamonds otherwise."""
        mask, rows, columns = self._mask(points)
        if not mask.size:
            return
        y = np.arange(mask.shape[0])[:, None] / (step_mm * self.px_per_mm)
        x = np.arange(mask.shape[1])[None] / (step_mm * self.px_per_mm)
        lines = ((y + slope * x) % 1 < 0.3) | ((y - slope * x) % 1 < 0.3)
        patch = self.rgba[rows, columns]
        patch[lines & (mask > 127), :3] = np.array(colour)

    def reflect(self, profile: NDArray[np.float32]) -> None:
        """Multiply all rows by what the paint mirrors at their height; (H,) factors."""
        factors = cv2.resize(profile[:, None], (1, len(self.rgba)), interpolation=cv2.INTER_CUBIC)
        lit = self.rgba[..., :3] * factors[:, :, None]
        self.rgba[..., :3] = np.clip(lit, 0, 255)

    def _pixels(self, points: Points) -> NDArray[np.int32]:
        scaled = (np.array(points) - self.origin_mm) * self.px_per_mm * (1 << _SHIFT)
        return np.asarray(np.rint(scaled), np.int32)

    def _mask(self, points: Points) -> tuple[Image, slice, slice]:
        """Coverage of an outline within its box, and the box's rows and columns."""
        path = self._pixels(points)
        limit = np.array(self.rgba.shape[1::-1])
        x0, y0 = np.clip(path.min(axis=0) >> _SHIFT, 0, limit).tolist()
        x1, y1 = np.clip((path.max(axis=0) >> _SHIFT) + 2, 0, limit).tolist()
        mask = np.zeros((y1 - y0, x1 - x0), np.uint8)
        if mask.size:
            moved = path - (np.array([x0, y0], np.int32) << _SHIFT)
            cv2.fillPoly(mask, [moved.astype(np.int32)], (255,), cv2.LINE_AA, _SHIFT)
        return mask, slice(y0, y1), slice(x0, x1)


def box(x0: float, y0: float, x1: float, y1: float, cut: float = 0.0) -> list[tuple[float, float]]:
    """A box whose corners are cut off by so many millimetres."""
    corners = [(x0 + cut, y0), (x1 - cut, y0), (x1, y0 + cut), (x1, y1 - cut)]
    return [*corners, (x1 - cut, y1), (x0 + cut, y1), (x0, y1 - cut), (x0, y0 + cut)]


def disc(x: float, y: float, rx: float, ry: float) -> list[tuple[float, float]]:
    """An ellipse's outline."""
    angles = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    outline = np.column_stack((x + rx * np.cos(angles), y + ry * np.sin(angles)))
    return [(px, py) for px, py in outline.tolist()]


def mirrored(points: Points) -> list[tuple[float, float]]:
    """The right half's outline, from top to bottom, closed by its mirror image."""
    return [*points, *((-x, y) for x, y in reversed(points))]


def times(colour: Colour, factor: float) -> Colour:
    """A colour made brighter or darker."""
    r, g, b = colour
    return min(255.0, r * factor), min(255.0, g * factor), min(255.0, b * factor)


Half = tuple[float, float]

_PAINTS: tuple[Colour, ...] = (
    (232, 232, 230), (24, 25, 28), (128, 132, 138), (196, 198, 200), (62, 66, 72),
    (136, 20, 28), (26, 44, 92), (52, 92, 140), (206, 176, 120), (60, 74, 52),
    (228, 190, 40), (110, 66, 40), (44, 110, 96),
)  # fmt: skip
_PLASTIC: Colour = (30, 31, 33)
_DARK: Colour = (13, 13, 15)
_STEEL: Colour = (150, 152, 156)


def car_rear(face: Facade, half: Half, rng: Generator) -> None:
    """A boot lid with lamps, and the plate in its niche or on the bumper."""
    face.paint = paint = _PAINTS[rng.integers(len(_PAINTS))]
    low = rng.random() < 0.35
    lid = -half[1] - float(rng.uniform(60, 180))
    seam = half[1] + float(rng.uniform(40, 160)) if not low else lid + 30
    face.shape(mirrored([(620, lid - 420), (760, lid), (880, 460), (0, 480)]), paint)
    glass = mirrored([(560, lid - 400), (680, lid - 90), (0, lid - 70)])
    face.shape(glass, (70, 80, 90), (14, 16, 20))
    face.shape(mirrored([(800, seam), (900, seam + 90), (860, 430), (0, 440)]), times(paint, 0.9))
    face.line(mirrored([(800, seam)]), times(paint, 0.25), 9)
    inner = float(rng.uniform(half[0] + 110, half[0] + 240))
    for side in (-1, 1):
        lamp = [(side * inner, lid + 20), (side * 800, lid), (side * 850, lid + 190)]
        lamp.append((side * (inner + 40), lid + float(rng.uniform(120, 200))))
        face.shape(lamp, (196, 26, 30), (92, 8, 12))
        if rng.random() < 0.4:
            face.light(lamp, float(rng.uniform(0.2, 1.2)))
        x, y = side * (inner + 130), lid + 70
        face.shape(box(x - 60, y - 16, x + 60, y + 16, 10), (226, 214, 208))
    _niche(face, half, rng, times(paint, 0.55))
    face.shape(mirrored([(700, 330), (640, 420), (0, 440)]), _PLASTIC, _DARK)


def car_front(face: Facade, half: Half, rng: Generator) -> None:
    """A bonnet, headlamps, a grille above the plate and an intake below it."""
    face.paint = paint = _PAINTS[rng.integers(len(_PAINTS))]
    top = -half[1] - float(rng.uniform(200, 330))
    outline = [(560, top - 160), (760, top - 20), (880, 150), (840, 330), (0, 350)]
    face.shape(mirrored(outline), times(paint, 1.05), times(paint, 0.6))
    grille = mirrored([(430, top + 20), (380, -half[1] - 40), (0, -half[1] - 30)])
    face.shape(grille, _PLASTIC, _DARK)
    step = float(rng.uniform(22, 60))
    face.mesh(grille, _STEEL if rng.random() < 0.5 else (50, 51, 54), step, rng.choice((0.0, 0.7)))
    face.shape(disc(0, top + 70, 62, 44), (210, 212, 214), (96, 98, 104))
    intake = mirrored([(620, half[1] + 40), (560, 270), (0, 280)])
    face.shape(intake, (22, 22, 24), _DARK)
    face.mesh(intake, (46, 47, 50), float(rng.uniform(26, 48)), 0.6)
    lit = rng.random() < 0.35
    for side in (-1, 1):
        lamp = [(side * 470, top + 40), (side * 800, top), (side * 840, top + 110)]
        lamp.append((side * 500, top + 150))
        face.shape(lamp, (186, 192, 198), (70, 74, 80))
        for x in (570, 700):
            face.shape(disc(side * x, top + 80, 46, 40), (238, 240, 240), (150, 156, 160))
            if lit:
                face.light(disc(side * x, top + 80, 40, 34), 1.6)
        face.shape(disc(side * 700, half[1] + 110, 48, 40), (150, 152, 150), (60, 60, 62))
    if rng.random() < 0.5:
        _niche(face, half, rng, _PLASTIC)


def truck_rear(face: Facade, half: Half, rng: Generator) -> None:
    """A trailer's or a van's rear wall, its beam with lamps, and warning stripes."""
    face.paint = wall = ((214, 216, 214), (70, 92, 130), (150, 60, 40), (168, 170, 172))[
        rng.integers(4)
    ]
    edge = -half[1] - float(rng.uniform(60, 220))
    face.shape(box(-1000, -900, 1000, edge), times(wall, 1.05), times(wall, 0.8))
    for x in (-700, -350, 0, 350, 700):
        face.line([(x + 30, -900), (x + 30, edge)], times(wall, 0.7), 12)
    beam = ((40, 42, 44), (120, 30, 28), (90, 94, 98))[rng.integers(3)]
    face.shape(box(-1000, edge, 1000, half[1] + 90), beam, times(beam, 0.6))
    for side in (-1, 1):
        near = half[0] + float(rng.uniform(150, 260))
        for index, colour in enumerate(((190, 24, 24), (214, 120, 20), (188, 20, 26))):
            middle = side * (near + 105 * index)
            lens = box(middle - 48, -48, middle + 48, 48, 8)
            face.shape(lens, colour, times(colour, 0.5))
            if rng.random() < 0.2:
                face.light(lens, 0.8)
        tip = side * (near + 90)
        triangle = [(tip, half[1] + 30), (tip + 70, half[1] + 150), (tip - 70, half[1] + 150)]
        face.shape(triangle, (214, 60, 56))
    if rng.random() < 0.5:
        stripes = box(-1000, half[1] + 160, 1000, half[1] + 240)
        face.shape(stripes, (222, 220, 214))
        face.mesh(stripes, (196, 32, 32), 160, 0.5)
    _niche(face, half, rng, times(beam, 0.7))


def tractor(face: Facade, half: Half, rng: Generator) -> None:
    """A cab's rear window, wings, wheels and hoses."""
    paint = ((178, 34, 26), (30, 74, 150), (222, 170, 30), (40, 104, 52))[rng.integers(4)]
    for side in (-1, 1):
        face.shape(box(side * 760 - 220, -260, side * 760 + 220, 800, 60), (32, 32, 34), _DARK)
        tread = box(side * 760 - 210, -240, side * 760 + 210, 780)
        face.mesh(tread, (58, 57, 56), 90, 0.35)
        wing = [(side * 980, -300), (side * 480, -330), (side * 470, -130), (side * 980, -220)]
        face.shape(wing, times(paint, 1.1), times(paint, 0.6))
        lamp = box(side * 620 - 60, -290, side * 620 + 60, -230, 10)
        face.shape(lamp, (200, 40, 30), (120, 14, 14))
    face.shape(box(-520, -800, 520, -half[1] - 60), paint, times(paint, 0.8))
    face.shape(box(-450, -780, 450, -half[1] - 200, 30), (96, 108, 116), (26, 30, 34))
    face.shape(box(-430, -half[1] - 70, 430, 260), (58, 58, 60), (24, 24, 26))
    for _ in range(5):
        x, y = rng.uniform(-420, 420), half[1] + 60
        bend = float(rng.uniform(-140, 140))
        face.line([(x, y), (x + bend, y + 120), (x + 0.4 * bend, y + 300)], (18, 18, 20), 26)
    _niche(face, half, rng, _DARK)


def motorcycle(face: Facade, half: Half, rng: Generator) -> None:
    """A rear wheel below the plate, a wing, a lamp and indicators; air all around."""
    face.paint = paint = _PAINTS[rng.integers(len(_PAINTS))]
    face.shape(box(-85, -60, 85, 560, 50), (36, 36, 38), _DARK)
    face.mesh(box(-80, -40, 80, 540), (60, 60, 60), 46, 0.5)
    lift = -half[1] - float(rng.uniform(40, 90))
    seat = mirrored([(130, lift - 300), (190, lift - 150), (130, lift), (0, lift + 10)])
    face.shape(seat, times(paint, 1.05), times(paint, 0.55))
    lamp = box(-80, lift - 75, 80, lift - 15, 24)
    face.shape(lamp, (204, 30, 30), (110, 8, 10))
    if rng.random() < 0.4:
        face.light(lamp, float(rng.uniform(0.3, 1.2)))
    for side in (-1, 1):
        face.line([(side * 60, lift + 10), (side * 230, lift)], _PLASTIC, 18)
        face.shape(disc(side * 245, lift, 38, 28), (226, 130, 30), (150, 70, 12))
    pipe = float(rng.choice((-1, 1)))
    face.shape(disc(pipe * 250, 220, 74, 70), _STEEL, (60, 60, 62))
    face.shape(disc(pipe * 250, 220, 46, 44), _DARK)
    mount = mirrored([(half[0] * 0.7, -half[1] - 25), (half[0] * 0.8, half[1] * 0.6), (0, half[1])])
    face.shape(mount, _PLASTIC, _DARK)


def _niche(face: Facade, half: Half, rng: Generator, tone: Colour) -> None:
    """What the plate is fixed in or on, now and then with a lamp above it."""
    wide, high = (float(side * rng.uniform(1.04, 1.35) + rng.uniform(8, 40)) for side in half)
    sink = float(rng.uniform(-0.1, 0.5)) * (high - half[1])
    slant = float(rng.uniform(0.86, 1.0))
    outline = [(-wide * slant, -high + sink), (wide * slant, -high + sink)]
    outline += [(wide, high + sink), (-wide, high + sink)]
    face.shape(outline, times(tone, 0.6), times(tone, 1.1))
    if rng.random() < 0.3:
        for side in (-1, 1):
            x, y = side * wide * 0.5, -high + sink + 6
            face.shape(box(x - 28, y - 9, x + 28, y + 7, 4), (216, 214, 196))


Draw = Callable[[Facade, Half, Generator], None]
_CARS: tuple[Draw, ...] = (car_rear, car_front)
# Faces that carry the plates of a kind; all others are on cars.
_FACES: dict[str, tuple[Draw, ...]] = {
    "ru.car.square": (car_rear, truck_rear),
    "ru.motorcycle": (motorcycle,),
    "ru.tractor": (tractor,),
    "ru.trailer": (truck_rear,),
    "ru.taxi": (*_CARS, truck_rear),
    "ru.military": (*_CARS, truck_rear),
}
# Half the width of a face, and the height of a plate above the ground.
REACH_MM: dict[Draw, tuple[float, tuple[float, float]]] = {
    car_rear: (900, (460, 900)),
    car_front: (880, (360, 520)),
    truck_rear: (1000, (520, 800)),
    tractor: (980, (800, 1000)),
    motorcycle: (330, (560, 650)),
}
# Those with a hull behind them, and where its top is, from the plate.
HULL_TOP_MM: dict[Draw, float] = {car_rear: -430, car_front: -430, truck_rear: -740}


def draw_face(draw: Draw, half: Half, px_per_mm: float, rng: Generator) -> Facade:
    """Draw a vehicle's face; its paint mirrors what is around."""
    reach, _ = REACH_MM[draw]
    face = Facade((-reach, -750, reach, 560), px_per_mm)
    draw(face, half, rng)
    mirror = 1 + float(rng.uniform(0.02, 0.14)) * fractal(rng, (48, 2), 2, 1.6)[:, 0]
    face.reflect(mirror.astype("float32"))
    return face


def faces_of(kind: str) -> tuple[Draw, ...]:
    """The faces that carry plates of a kind."""
    return _FACES.get(kind, _CARS)
