"""The outlines of characters, and masks made of them.

A glyph is a few strokes in millimetres (x to the right, y down from the glyph's top), clipped to
the glyph's height; corners are rounded as the stamping tool rounds them. Outlines stand in the
countries' files.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from pydantic import ConfigDict

Point: TypeAlias = tuple[float, float]
Mask: TypeAlias = npt.NDArray[np.uint8]

# Master masks are drawn at this scale and shrunk, so that edges come out anti-aliased.
_MASTER_PX_PER_MM = 8.0
_CORNER_SIGMA_MM = 1.3


class Strict:
    """Tables of a file: other types and other keys are refused."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True)
class Stroke(Strict):
    """A pen line: joints are round, ends are cut square unless ``round_ends``."""

    pen: float  # its width
    # Points (x, y); arcs (centre x and y, radii x and y, start, stop), degrees clockwise from +x,
    # of a superellipse if a power follows; and Bezier curves (x and y of four control points).
    path: tuple[
        Point
        | tuple[float, float, float, float, float, float]
        | tuple[float, float, float, float, float, float, float]
        | tuple[float, float, float, float, float, float, float, float],
        ...,
    ]
    round_ends: bool = False

    @property
    def points(self) -> list[Point]:
        """Points along the path."""
        points: list[Point] = []
        for part in self.path:
            if len(part) == 2:
                points.append(part)
            elif len(part) == 8:
                points += _bezier(*part)
            else:
                points += _arc(*part)
        return points


# Compared by identity: masks are cached by glyph.
@dataclass(frozen=True, eq=False)
class Glyph(Strict):
    """One character, in millimetres."""

    width: float
    strokes: tuple[Stroke, ...]
    height: float = 58.0


def _arc(
    x: float, y: float, across: float, down: float, start: float, stop: float, power: float = 2.0
) -> list[Point]:
    angles = np.radians(np.linspace(start, stop, 2 + int(abs(stop - start) / 5)))
    cos, sin = np.cos(angles), np.sin(angles)
    xs = x + across * np.sign(cos) * np.abs(cos) ** (2 / power)
    ys = y + down * np.sign(sin) * np.abs(sin) ** (2 / power)
    return list(zip(xs.tolist(), ys.tolist(), strict=True))


def _bezier(*control: float) -> list[Point]:
    t = np.linspace(0, 1, 20)[:, None]
    a, b, c, d = np.array(control).reshape(4, 2)
    curve = (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t**2 * c + t**3 * d
    return [(float(x), float(y)) for x, y in curve]


@lru_cache(maxsize=512)
def _master(glyph: Glyph, bolder_mm: float) -> Mask:
    scale = _MASTER_PX_PER_MM
    pad = 4.0  # Room for the rounding blur and for bolder strokes.
    size_wh = round((glyph.width + 2 * pad) * scale), round((glyph.height + 2 * pad) * scale)
    picture = Image.new("L", size_wh)
    draw = ImageDraw.Draw(picture)
    for stroke in glyph.strokes:
        points = [((x + pad) * scale, (y + pad) * scale) for x, y in stroke.points]
        width = (stroke.pen + bolder_mm) * scale
        draw.line(points, 255, round(width), joint="curve")
        for end in (points[0], points[-1]) if stroke.round_ends else ():
            draw.circle(end, width / 2, 255)
    canvas = np.array(picture)
    grown = bolder_mm / 2
    canvas[: round((pad - grown) * scale)] = 0
    canvas[round((pad + glyph.height + grown) * scale) :] = 0
    # Blurring and thresholding rounds convex and concave corners alike.
    blurred = cv2.GaussianBlur(canvas, (0, 0), _CORNER_SIGMA_MM * scale)
    rounded: Mask = np.where(blurred > 127, 255, 0).astype(np.uint8)
    inner = round(pad * scale / 2)
    return rounded[inner:-inner, inner:-inner]


@lru_cache(maxsize=8192)
def glyph_mask(glyph: Glyph, px_per_mm: float, height_mm: float, bolder_mm: float = 0.0) -> Mask:
    """Rasterise a glyph, scaled to a height; the result is cached and must not be written to.

    Strokes are first made bolder, or thinner. Returns (H, W) uint8 coverage with the glyph's box in
    its middle and a margin of 2 mm (times the glyph's scaling) on each side.
    """
    master = _master(glyph, bolder_mm)
    factor = px_per_mm * height_mm / glyph.height / _MASTER_PX_PER_MM
    size_wh = max(1, round(master.shape[1] * factor)), max(1, round(master.shape[0] * factor))
    mask: Mask = np.asarray(cv2.resize(master, size_wh, interpolation=cv2.INTER_AREA))
    mask.setflags(write=False)
    return mask
