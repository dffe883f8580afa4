"""Draws a plate's print as coverage: frame, dividers, characters, country sign."""

from dataclasses import replace
from functools import lru_cache

import cv2
import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from plate_models.training.imaging import Mask
from plate_models.training.synthetic.kinds import Box, Glyph, Group, Layout, PlateKind
from plate_models.training.tables import pick

# Master masks are drawn at this scale and downscaled, which anti-aliases their edges.
_MASTER_PX_PER_MM = 8.0
_ROUNDING_MM = 1.3  # standard deviation of the blur that rounds a glyph's corners
CORNER_MM = 9.0
_FRAME_MM = (2.0, 2.6, 3.2)
_INSET_MM = 2.8
# Least distance of the upper and the lower line's strokes from the plate's middle.
_CLEAR_MM = 1.2
# Character heights are multiples of this, because glyphs are cached per height.
_HEIGHT_STEP_MM = 2.0


@lru_cache(maxsize=512)
def _master(glyph: Glyph, bolder_mm: float) -> Mask:
    scale = _MASTER_PX_PER_MM
    pad = 4.0  # room for the rounding blur and for bolder strokes
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
    # Blurring and thresholding rounds both convex and concave corners.
    blurred = cv2.GaussianBlur(canvas, (0, 0), _ROUNDING_MM * scale)
    rounded: Mask = np.where(blurred > 127, 255, 0).astype(np.uint8)
    inner = round(pad * scale / 2)
    return rounded[inner:-inner, inner:-inner]


@lru_cache(maxsize=8192)
def glyph_mask(glyph: Glyph, px_per_mm: float, height_mm: float, bolder_mm: float = 0.0) -> Mask:
    """Rasterise a glyph, scaled to a height; the result is cached and read-only.

    Strokes are first made bolder, or thinner if ``bolder_mm`` is negative. Returns (H, W) uint8
    coverage: the glyph's box with a margin of 2 mm (times the glyph's scaling) on each side.
    """
    master = _master(glyph, bolder_mm)
    factor = px_per_mm * height_mm / glyph.height / _MASTER_PX_PER_MM
    size_wh = max(1, round(master.shape[1] * factor)), max(1, round(master.shape[0] * factor))
    mask: Mask = np.asarray(cv2.resize(master, size_wh, interpolation=cv2.INTER_AREA))
    mask.setflags(write=False)
    return mask


def draw_ink(
    text: str,
    kind: PlateKind,
    layout: Layout,
    rng: Generator,
    px_per_mm: float,
    jitter_mm: float,
    bolder_mm: float,
) -> Mask:
    """Print a plate's text, frame, dividers and country sign.

    Returns (H, W) uint8 coverage in [0, 255].
    """
    thick = pick(_FRAME_MM, rng)
    ink = _frame(px_per_mm, layout.size_mm, thick).copy()
    for divider in layout.dividers:
        if kind.divider_share == 1 or rng.random() < kind.divider_share:
            _draw_line(ink, divider, thick, px_per_mm)
    jitter = rng.normal(0, 1.5 * jitter_mm, 2) + rng.normal(0, jitter_mm, (len(text), 2))
    done = 0
    for index, group in enumerate((*layout.serial, layout.region)):
        height, middle = layout.size_mm[1], layout.size_mm[1] / 2
        rows = 0.0, height
        if kind.format.lines == 2:
            rows = (0.0, middle - _CLEAR_MM) if index == 0 else (middle + _CLEAR_MM, height)
        for centre in group.centres:
            size = group.digit_height if text[done].isdigit() else group.letter_height
            glyph = kind.glyph_of(text[done])
            mask = glyph_mask(glyph, px_per_mm, size, bolder_mm)
            # The mask has a margin of 2 mm around the glyph; bolder strokes reach into it.
            shrink = size / glyph.height
            growth = max(bolder_mm, 0) / 2 * shrink
            foot = min(group.foot + jitter[done, 1], rows[1] - growth)
            top = max(foot - size, rows[0] + growth)
            x, y = centre + jitter[done, 0], top - 2.0 * shrink
            stamp(ink, mask, x * px_per_mm, y * px_per_mm)
            done += 1
    height = layout.sign_height
    for index, char in enumerate(kind.sign):
        mask = glyph_mask(kind.outlines[char], px_per_mm, height, bolder_mm - 0.5)
        x, y = layout.sign[0] + (0.325 + index) * height, layout.sign[1] - 0.035 * height
        stamp(ink, mask, x * px_per_mm, y * px_per_mm)
    return ink


def loosen(layout: Layout, kind: PlateKind, rng: Generator) -> Layout:
    """Vary the sizes and positions of a layout's groups by the kind's looseness.

    Groups of two-line plates stay in their half of the plate.
    """
    if not kind.looseness:
        return layout
    share, middle = kind.looseness, layout.size_mm[1] / 2
    serial = [_vary(group, share, rng) for group in layout.serial]
    region = _vary(layout.region, share, rng)
    if kind.format.lines == 2:
        serial[0] = _below(serial[0], 0.05 * middle, middle - 2)
        serial[1:] = [_below(group, middle + 2, 2 * middle - 6) for group in serial[1:]]
        region = _below(region, middle + 2, 2 * middle - 6)
    x, y = (float(shift) for shift in rng.normal(0, 40 * share, 2) * (1, 0.4))
    region = replace(region, centres=tuple(c + x for c in region.centres))
    right = layout.size_mm[0] - _INSET_MM
    dividers = tuple(
        (x0 + x, y0, min(x1 + x, right) if x1 < right else right, y1)
        for x0, y0, x1, y1 in layout.dividers
    )
    sign = layout.sign[0] + x, layout.sign[1] + y
    x0, y0, x1, y1 = layout.flag
    flag = x0 + x, y0 + y, x1 + x, y1 + y
    return replace(
        layout, serial=tuple(serial), region=region, dividers=dividers, sign=sign, flag=flag
    )


def _vary(group: Group, share: float, rng: Generator) -> Group:
    """Scale a group and its gaps about the group's middle, and shift it."""
    size = 1 + float(np.clip(rng.normal(0, share), -3 * share, 1.5 * share))
    spread = size * (1 + float(np.clip(rng.normal(0, share / 2), -share / 2, share / 2)))
    middle = sum(group.centres) / len(group.centres)
    shift, rise = (float(v) for v in rng.normal(0, 1, 2) * (40 * share, 0.5 * 76 * share))
    centres = tuple(middle + (centre - middle) * spread + shift for centre in group.centres)
    heights = (
        _HEIGHT_STEP_MM * round(height * size / _HEIGHT_STEP_MM)
        for height in (group.digit_height, group.letter_height)
    )
    return Group(centres, group.foot - abs(rise) * float(size < 1), *heights)


def _below(group: Group, top: float, foot: float) -> Group:
    """Lift and shrink a group so that it fits between the heights ``top`` and ``foot``."""
    foot = min(group.foot, foot)
    room = _HEIGHT_STEP_MM * ((foot - top) // _HEIGHT_STEP_MM)
    heights = min(group.digit_height, room), min(group.letter_height, room)
    return Group(group.centres, foot, *heights)


def stamp(ink: Mask, mask: Mask, centre_x: float, top_y: float) -> None:
    """Draw a glyph's coverage into the ink, in place, at a position in pixels, cut at its edges."""
    left = round(centre_x - mask.shape[1] / 2)
    top = round(top_y)
    x0, y0 = max(left, 0), max(top, 0)
    x1 = min(left + mask.shape[1], ink.shape[1])
    y1 = min(top + mask.shape[0], ink.shape[0])
    if x0 < x1 and y0 < y1:
        patch = ink[y0:y1, x0:x1]
        np.maximum(patch, mask[y0 - top : y1 - top, x0 - left : x1 - left], out=patch)


@lru_cache(maxsize=128)
def _frame(px_per_mm: float, size_mm: tuple[float, float], thick_mm: float) -> Mask:
    """Coverage of the line along the plate's edge."""
    scale = 4 * px_per_mm
    size_wh = round(size_mm[0] * scale), round(size_mm[1] * scale)
    outer, inner = (
        rounded_box(size_wh, inset * scale, (CORNER_MM - inset) * scale)
        for inset in (_INSET_MM, _INSET_MM + thick_mm)
    )
    small = round(size_mm[0] * px_per_mm), round(size_mm[1] * px_per_mm)
    return np.asarray(cv2.resize(outer - inner, small, interpolation=cv2.INTER_AREA), np.uint8)


def rounded_box(size_wh: tuple[int, int], inset: float, radius: float) -> Mask:
    """Coverage of a filled box with round corners, ``inset`` pixels from the image's sides."""
    picture, low = Image.new("L", size_wh), round(inset)
    corners = low, low, size_wh[0] - 1 - low, size_wh[1] - 1 - low
    ImageDraw.Draw(picture).rounded_rectangle(corners, max(1, round(radius)), 255)
    return np.array(picture)


def _draw_line(ink: Mask, line: Box, thick_mm: float, scale: float) -> None:
    x0, y0, x1, y1 = line
    half_x, half_y = (thick_mm / 2, 0.0) if x0 == x1 else (0.0, thick_mm / 2)
    sides = np.array([x0 - half_x, y0 - half_y, x1 + half_x, y1 + half_y]) * scale - 0.5
    left, top, right, bottom = np.rint(sides * 16).astype(int).tolist()
    cv2.rectangle(ink, (left, top), (right, bottom), (255,), -1, cv2.LINE_AA, 4)
