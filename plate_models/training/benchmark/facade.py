"""A flat drawing board in millimetres, on which vehicles' faces are drawn."""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from plate_models.training.benchmark.camera import Floats
from plate_models.training.benchmark.textures import Colour, Image

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
