"""The characters of a Russian plate, drawn from centre lines and stroke widths.

GOST R 50577 prescribes an upright, condensed, nearly monoline type: digits 76 mm
high with strokes of about 11 mm, letters 58 mm high with strokes of about 9 mm, both
on one baseline. The outlines here are our own description of that look: each glyph is
a few strokes in millimetres (x to the right, y down from the glyph's top), clipped to
the glyph's height; corners are rounded as the stamping tool rounds them. Widths were
checked against straightened photos: E is wider there, and T and H are narrower, than in
some typefaces made after the standard.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

Point: TypeAlias = tuple[float, float]
Mask: TypeAlias = npt.NDArray[np.uint8]

DIGIT_HEIGHT = 76.0
LETTER_HEIGHT = 58.0
# Master masks are drawn at this scale and shrunk, so that edges come out anti-aliased.
_MASTER_PX_PER_MM = 8.0
_CORNER_SIGMA_MM = 1.3


@dataclass(frozen=True)
class Stroke:
    """A pen line: joints are round, ends are cut square unless ``round_ends``."""

    points: tuple[Point, ...]
    width: float
    round_ends: bool = False


@dataclass(frozen=True)
class Glyph:
    """One character, in millimetres."""

    width: float
    height: float
    strokes: tuple[Stroke, ...]


def _arc(
    centre: Point, radii: Point, start: float, stop: float, power: float = 2.0
) -> tuple[Point, ...]:
    """Points on a superellipse from ``start`` to ``stop``, degrees clockwise from +x."""
    angles = np.radians(np.linspace(start, stop, 2 + int(abs(stop - start) / 5)))
    cos, sin = np.cos(angles), np.sin(angles)
    x = centre[0] + radii[0] * np.sign(cos) * np.abs(cos) ** (2 / power)
    y = centre[1] + radii[1] * np.sign(sin) * np.abs(sin) ** (2 / power)
    return tuple(zip(x.tolist(), y.tolist(), strict=True))


def _bezier(*control: Point) -> tuple[Point, ...]:
    """Points on the cubic Bezier curve with four control points."""
    t = np.linspace(0, 1, 20)[:, None]
    a, b, c, d = (np.array(p) for p in control)
    curve = (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t**2 * c + t**3 * d
    return tuple((float(x), float(y)) for x, y in curve)


def _digit(width: float, *strokes: Stroke) -> Glyph:
    return Glyph(width, DIGIT_HEIGHT, strokes)


def _letter(width: float, *strokes: Stroke) -> Glyph:
    return Glyph(width, LETTER_HEIGHT, strokes)


def _pen(width: float, *points: Point) -> Stroke:
    return Stroke(points, width)


def _turned(glyph: Glyph) -> Glyph:
    """The glyph rotated by half a turn (a 9 is a 6 upside down)."""
    return Glyph(
        glyph.width,
        glyph.height,
        tuple(
            Stroke(tuple((glyph.width - x, glyph.height - y) for x, y in s.points), s.width)
            for s in glyph.strokes
        ),
    )


_SIX = _digit(
    46.0,
    Stroke(_arc((23, 52.8), (17.4, 17.4), 0, 360), 11.4),
    Stroke(_bezier((32, -3), (18, 14), (5.6, 34), (5.6, 53)), 10.8),
)

DIGITS: dict[str, Glyph] = {
    "0": _digit(46.0, Stroke(_arc((23, 38), (17.6, 32.4), 0, 360, 2.25), 11.0)),
    "1": _digit(36.0, _pen(11.0, (30.5, -5), (30.5, 81)), _pen(11.2, (33, 0), (4, 28.5))),
    "2": _digit(
        44.0,
        Stroke(_arc((21.8, 22), (16.4, 16.5), 180, 370), 10.9),
        Stroke(_bezier((38, 23), (38, 31), (32, 36), (19, 50.5)), 10.9),
        _pen(10.9, (19, 50.5), (5.2, 66.5)),
        _pen(11.2, (0, 70.4), (43.8, 70.4)),
    ),
    "3": _digit(
        44.2,
        _pen(10.6, (1.3, 5.3), (43.3, 5.3)),
        _pen(10.6, (38.4, 5), (20.7, 32.5)),
        _pen(11.0, (15, 37), (23, 37)),
        _pen(6.0, (18, 40), (18, 30)),
        Stroke(_arc((22, 53.6), (16.7, 16.8), -90, 180), 11.0),
    ),
    "4": _digit(
        42.8,
        _pen(10.5, (31.8, -4), (5.2, 45)),
        _pen(10.6, (0, 48.2), (42.8, 48.2)),
        _pen(10.2, (37.7, 32.5), (37.7, 76)),
    ),
    "5": _digit(
        46.0,
        _pen(11.2, (4, 5.6), (44, 5.6)),
        _pen(10.9, (9.4, 0), (9.4, 38.8)),
        _pen(10.8, (4, 33.3), (22.4, 33.3)),
        Stroke(_arc((22.4, 51.8), (18.1, 18.5), -90, 160), 11.2),
    ),
    "6": _SIX,
    "7": _digit(44.4, _pen(11.0, (0, 5.5), (44.4, 5.5)), _pen(12.1, (38.6, 8), (14.5, 80))),
    "8": _digit(
        47.8,
        Stroke(_arc((23.9, 20.6), (15.2, 15.0), 0, 360), 11.2),
        Stroke(_arc((23.9, 52.9), (17.9, 17.6), 0, 360), 11.6),
    ),
    "9": _turned(_SIX),
}

LETTERS: dict[str, Glyph] = {
    "A": _letter(
        45.6,
        _pen(9.7, (22.6, -2), (4.5, 60)),
        _pen(9.7, (23.0, -2), (41.1, 60)),
        _pen(9.0, (11, 41.7), (35, 41.7)),
    ),
    "B": _letter(
        40.8,
        _pen(9.2, (4.6, 0), (4.6, 59)),
        _pen(9.2, (0, 4.6), (26, 4.6), *_arc((25.5, 16.8), (10.2, 12.2), -90, 90), (0, 29)),
        _pen(9.4, (0, 29), (26, 29), *_arc((25.5, 41.3), (10.6, 12.2), -90, 90), (0, 53.4)),
    ),
    "E": _letter(
        40.8,
        _pen(9.6, (4.8, 0), (4.8, 58)),
        _pen(9.0, (0, 4.5), (40.8, 4.5)),
        _pen(8.8, (0, 28.4), (40.2, 28.4)),
        _pen(9.0, (0, 53.5), (40.8, 53.5)),
    ),
    "K": _letter(
        40.0,
        _pen(8.9, (4.4, 0), (4.4, 58)),
        _pen(9.6, (35.5, -3), (6, 32.5)),
        _pen(9.6, (16.5, 22), (38.0, 63)),
    ),
    "M": _letter(
        47.8,
        _pen(8.8, (4.4, 0), (4.4, 58)),
        _pen(9.0, (43.2, 0), (43.2, 58)),
        _pen(8.8, (4.6, -3), (26.2, 34.0)),
        _pen(8.8, (43.2, -3), (21.6, 34.0)),
    ),
    "H": _letter(
        42.4,
        _pen(9.5, (4.75, 0), (4.75, 58)),
        _pen(9.5, (37.65, 0), (37.65, 58)),
        _pen(9.5, (4, 28.2), (40, 28.2)),
    ),
    "O": _letter(47.6, Stroke(_arc((23.8, 29), (19.1, 24.4), 0, 360), 9.4)),
    "P": _letter(
        39.4,
        _pen(9.2, (4.6, 0), (4.6, 58)),
        _pen(9.3, (0, 4.7), (25, 4.7), *_arc((24.2, 16), (10.5, 11.3), -90, 90), (0, 27.3)),
    ),
    "C": _letter(41.2, Stroke(_arc((24.2, 29), (19.5, 24.3), -50, -310), 9.4, round_ends=True)),
    "T": _letter(41.4, _pen(9.6, (0, 4.8), (41.4, 4.8)), _pen(9.8, (20.7, 0), (20.7, 58))),
    "Y": _letter(42.4, _pen(9.2, (39.0, -3), (11.0, 63)), _pen(9.4, (3.6, -3), (19.5, 37))),
    "X": _letter(44.0, _pen(9.5, (2.9, -3), (41.3, 63)), _pen(9.5, (41.1, -3), (2.7, 63))),
    "D": _letter(
        43.0,
        _pen(9.2, (4.6, 0), (4.6, 58)),
        _pen(9.3, (0, 4.7), (20, 4.7), *_arc((19, 29), (19.3, 24.3), -90, 90, 2.3), (0, 53.3)),
    ),
    # A trapezoid on a bar with two short feet.
    "Д": _letter(
        50.0,
        _pen(9.0, (14.5, 4.5), (42.5, 4.5)),
        _pen(8.6, (17, 0), (9.5, 46)),
        _pen(9.2, (38, 0), (38, 47)),
        _pen(8.6, (1, 46), (49, 46)),
        _pen(8.4, (5.2, 42), (5.2, 58)),
        _pen(8.4, (44.8, 42), (44.8, 58)),
    ),
}

# The country sign's letters, in the same proportions as the digits' and drawn small.
COUNTRY: dict[str, Glyph] = {
    "R": _letter(
        40.0,
        _pen(8.0, (4, 0), (4, 58)),
        _pen(8.0, (0, 4), (25, 4), *_arc((24, 16.5), (11.5, 12.5), -90, 90), (0, 29)),
        _pen(8.4, (20, 28), (36, 60)),
    ),
    "U": _letter(41.0, _pen(8.0, (4, 0), *_arc((20.5, 37), (16.5, 17), 180, 0), (37, 0))),
    "S": _letter(
        39.0,
        Stroke(_arc((19.5, 16.5), (14.5, 12.5), -25, -270), 8.0),
        Stroke(_arc((19.5, 41.5), (15.0, 12.5), -90, 155), 8.0),
    ),
}

# By Latin letter, or by the country's own where that looks different.
GLYPHS: dict[str, Glyph] = DIGITS | LETTERS | COUNTRY


@lru_cache(maxsize=512)
def _master(char: str, bolder_mm: float) -> Mask:
    glyph = GLYPHS[char]
    scale = _MASTER_PX_PER_MM
    pad = 4.0  # Room for the rounding blur and for bolder strokes.
    size_hw = (
        round((glyph.height + 2 * pad) * scale),
        round((glyph.width + 2 * pad) * scale),
    )
    picture = Image.new("L", size_hw[::-1])
    draw = ImageDraw.Draw(picture)
    for stroke in glyph.strokes:
        points = [((x + pad) * scale, (y + pad) * scale) for x, y in stroke.points]
        width = (stroke.width + bolder_mm) * scale
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
def glyph_mask(char: str, px_per_mm: float, height_mm: float, bolder_mm: float = 0.0) -> Mask:
    """Rasterise a glyph; the result is cached and must not be written to.

    Args:
        char: A key of ``GLYPHS``.
        px_per_mm: Resolution of the result.
        height_mm: Height that the glyph is scaled to, width in proportion.
        bolder_mm: Added to every stroke's width before scaling; may be negative.

    Returns:
        (H, W) uint8 coverage in [0, 255]. The glyph's box is centred in it with a
        margin of 2 mm (times the glyph's scaling) on each side.
    """
    master = _master(char, bolder_mm)
    factor = px_per_mm * height_mm / GLYPHS[char].height / _MASTER_PX_PER_MM
    size_wh = (
        max(1, round(master.shape[1] * factor)),
        max(1, round(master.shape[0] * factor)),
    )
    mask: Mask = np.asarray(cv2.resize(master, size_wh, interpolation=cv2.INTER_AREA))
    mask.setflags(write=False)
    return mask
