"""Plates as reflecting surfaces: sheet, print, flag, bolts, frame, dirt.

Glyphs, layouts and ranges of sheet colours, which define a Russian plate, come from the renderer of
training. Other countries' plates use fonts that matplotlib and Pillow include, none of training's:
a recognizer has to know letters, not fonts. Dirt is thin enough for every character to stay
legible. Lengths are in millimetres from the plate's top left corner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import cv2
import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw, ImageFont

from plate_models.training.benchmark.textures import fractal
from plate_models.training.imaging import Field, Floats, Mask, carried_font, lay_over, shift_by
from plate_models.training.synthetic import kinds
from plate_models.training.synthetic.ink import CORNER_MM, draw_ink, loosen, rounded_box
from plate_models.training.synthetic.kinds import Layout, PlateKind, Point
from plate_models.training.tables import pick, tables_of

FOREIGN = tuple(name for name, kind in kinds.KINDS.items() if kind.table.sizes_mm)
_BOLDER_MM = (-1.2, -0.6, 0.0, 0.6)
_JITTER_MM = 0.5
# Reflectance of white sheets and white print; of black print.
_WHITE, _BLACK = (0.62, 0.88), (0.015, 0.06)
_FONTS = ("DejaVuSans-Bold.ttf", "DejaVuSans.ttf", "STIXGeneralBol.ttf", "")
_FONT_ODDS, _FONT_PX = (0.45, 0.25, 0.05, 0.25), 160
_SPACING = 0.1  # of a character's height
_BETWEEN = (" ", "-", "\N{BULLET}")  # groups: a gap, a dash, a seal
# Height of characters as a share of a row's height, on plates of one and of two lines.
_TALL = (0.67, 0.76)
_BAND_MM, _ABOVE_MM, _MARGIN_MM = 42.0, 33.0, 12.0
_BLUE = (0.01, 0.04, 0.3)

# Share of plates with each kind of wear, and its highest opacity.
_DUST_SHARE, _SPRAY_SHARE, _RUN_SHARE, _SCRATCH_SHARE = 0.45, 0.3, 0.25, 0.25
_DUST_COVER, _SPRAY_COVER, _RUN_COVER = 0.4, 0.8, 0.4

_PAD_MM = 30.0
_FRAME_SHARE, _BOLT_SHARE = 0.55, 0.4
# Plates are drawn at one of these resolutions: at twice that of the photo or more, if possible.
_PX_PER_MM = (0.75, 1.5, 3.0)
_TABLES = tables_of(__file__)


@dataclass(frozen=True)
class Design:
    """A plate's text, kind and dimensions, before it is printed."""

    text: str  # in Latin letters, the upper line first
    kind: PlateKind
    size_mm: tuple[float, float]  # width and height
    character_mm: float  # height of the smallest characters
    screws: tuple[Point, ...]
    layout: Layout | None = None  # None for a typeset plate


def sample_design(kind: str, rng: Generator, text: str = "") -> Design:
    """Design a plate of a kind out of `KINDS`, with a given text or a random one of its format.

    Raises ValueError: There is no such kind.
    """
    own, text = kinds.kind_named(kind), text or kinds.sample_text(rng, kind)
    if own.table.sizes_mm:
        width, height = size = pick(own.table.sizes_mm, rng)
        screws = (0.25 * width, 9.0), (0.75 * width, 9.0), (0.25 * width, height - 9)
        return Design(text, own, size, _places(own, height)[2], screws)
    layout = loosen(pick(own.layouts_of(text), rng), own, rng)
    return Design(text, own, layout.size_mm, layout.region.digit_height, layout.screws, layout)


def _places(kind: PlateKind, height_mm: float) -> tuple[float, float, float]:
    """Width of the band on the left, height of the band above the text, and of a character."""
    left, above = _BAND_MM * (kind.table.band == "left"), _ABOVE_MM * (kind.table.band != "left")
    return left, above, (height_mm - above) / kind.format.lines * _TALL[kind.format.lines - 1]


@dataclass(frozen=True)
class Sheet:
    """A flat plate with bolts and frame."""

    reflectance: Field  # (H, W, 3) float32 RGB, linear, in [0, 1]
    cover: Field  # (H, W) float32 coverage; 0 outside the plate and its frame
    to_mm: Floats  # (3, 3) from pixels to millimetres relative to the plate's middle
    white: float  # reflectance of the brighter one of sheet and print, in its brightest channel


def draw_sheet(design: Design, seen_px_per_mm: float, rng: Generator) -> Sheet:
    """Draw a plate, fine enough for a photo of the given resolution."""
    px_per_mm = next((p for p in _PX_PER_MM if p >= 2 * seen_px_per_mm), _PX_PER_MM[-1])
    kind = design.kind
    if design.layout:
        plate, white = _print_measured(design.text, kind, design.layout, px_per_mm, rng)
    else:
        plate, white = _print_typeset(design, px_per_mm, rng)
    height, width = plate.shape[:2]
    _soil(plate, rng, px_per_mm)
    _bolt(plate, design.screws, rng, px_per_mm)
    pad = round(_PAD_MM * px_per_mm)
    reflectance = np.pad(plate, ((pad, pad), (pad, pad), (0, 0)), "edge")
    cover = np.pad(rounded_box((width, height), 0, CORNER_MM * px_per_mm), pad)
    if rng.random() < _FRAME_SHARE * kind.holder_share:
        _frame(reflectance, cover, px_per_mm, rng)
    mm, (wide, tall) = 1 / px_per_mm, design.size_mm
    to_mm = shift_by(-wide / 2 - pad * mm, -tall / 2 - pad * mm) @ np.diag((mm, mm, 1))
    return Sheet(reflectance, cover.astype(np.float32) / 255, to_mm, white)


def _print_measured(
    text: str, kind: PlateKind, layout: Layout, px_per_mm: float, rng: Generator
) -> tuple[Field, float]:
    ink = draw_ink(text, kind, layout, rng, px_per_mm, _JITTER_MM, pick(_BOLDER_MM, rng))
    plate, white = _printed(ink, kind, rng)
    if kind.flag and rng.random() < kind.flag_share * 0.8:
        x0, y0, x1, y1 = (round(side * px_per_mm) for side in layout.flag)
        cv2.rectangle(plate, (x0 - 1, y0 - 1), (x1, y1), (0.1, 0.1, 0.1), 1)
        count = len(kind.flag)
        for index, stripe in enumerate(kind.flag):
            rows = slice(y0 + (y1 - y0) * index // count, y0 + (y1 - y0) * (index + 1) // count)
            plate[rows, x0:x1] = _TABLES["flag"][stripe]
    return plate, white


def _printed(ink: Mask, kind: PlateKind, rng: Generator) -> tuple[Field, float]:
    """Print ink on a sheet of the kind's colour; returns the plate and `Sheet.white`."""
    low, high = (np.array(end) for end in kind.sheet)
    shade = low + (high - low) * rng.beta(2, 2, 3).mean() + rng.normal(0, 3, 3)
    paper = ((np.clip(shade, 4, 250) / 255) ** 2.2 * rng.uniform(*_WHITE)).astype(np.float32)
    paint = np.full(3, rng.uniform(*(_WHITE if kind.light_ink else _BLACK)), np.float32)
    plate = paper + (ink.astype(np.float32) / 255)[..., None] * (paint - paper)
    return plate, float(max(paper.max(), paint.max()))


def _print_typeset(design: Design, px_per_mm: float, rng: Generator) -> tuple[Field, float]:
    kind, size_mm = design.kind, design.size_mm
    width, height = (round(side * px_per_mm) for side in size_mm)
    left, above, tall = (round(mm * px_per_mm) for mm in _places(kind, size_mm[1]))
    margin, slot = _MARGIN_MM * px_per_mm, (height - above) / kind.format.lines
    ink, sign = np.zeros((2, height, width), np.uint8)
    cv2.rectangle(ink, (0, 0), (width - 1, height - 1), 255, round(2 * px_per_mm))
    name, bold = str(rng.choice(_FONTS, p=_FONT_ODDS)), int(rng.integers(0, 7))
    pillows = cast(ImageFont.FreeTypeFont, ImageFont.load_default(_FONT_PX))
    font = carried_font(name, _FONT_PX) if name else pillows
    between = pick(_BETWEEN, rng)
    if font is pillows:  # has no bullet, and draws a box with a cross instead, like an 8
        between = between.replace("\N{BULLET}", "\N{MIDDLE DOT}")
    for number, row in enumerate(kind.rows(design.text)):
        top = above + slot * (number + 0.5) - tall / 2
        row = row.replace(" ", between)
        _stamp(ink, row, font, bold, (left + margin, top, width - margin, top + tall))
    plate, white = _printed(ink, kind, rng)
    above_text = 0.2 * width, 0.2 * above, 0.8 * width, 0.8 * above
    on_left = 0.15 * left, 0.68 * height, 0.85 * left, 0.92 * height
    tone = 0.04 if kind.table.band == "none" else 0.75
    if kind.table.band != "none":
        plate[:, :left], plate[:above] = _BLUE, _BLUE
    _stamp(sign, kind.sign, font, bold, on_left if kind.table.band == "left" else above_text)
    lay_over(plate, sign, tone)
    return plate, white


def _stamp(
    ink: Mask, row: str, font: ImageFont.FreeTypeFont, bold: int, area: tuple[float, ...]
) -> None:
    """Print a row in the middle of an area, at the area's height; squeeze it if it is too wide."""
    # J and Q reach below the baseline.
    _, top, _, foot = font.getbbox("H" + row, anchor="ls", stroke_width=bold)
    space = 2 * bold + _SPACING * (foot - top)
    ends = np.cumsum([font.getlength(char) + space for char in row])
    image = Image.new("L", (round(ends[-1]), round(foot - top)))
    for char, end in zip(row, ends - space / 2, strict=True):
        ImageDraw.Draw(image).text((end, -top), char, 255, font, "rs", stroke_width=bold)
    x0, y0, x1, y1 = area
    height = round(y1 - y0)
    width = min(round(x1 - x0), round(image.width * height / image.height))
    x, y = round((x0 + x1 - width) / 2), round(y0)
    scaled = cv2.resize(np.asarray(image), (width, height), interpolation=cv2.INTER_AREA)
    ink[y : y + height, x : x + width] = scaled


def _soil(sheet: Field, rng: Generator, px_per_mm: float) -> None:
    """Age a plate, in place: dust, drops of mud, streaks of rain, scratches."""
    mud = pick(_TABLES["mud"], rng)
    size = height, width = sheet.shape[0], sheet.shape[1]
    fall = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    if rng.random() < _DUST_SHARE:
        drift = 0.5 + 0.25 * fractal(rng, size, 3 * px_per_mm, 1.4)
        lay_over(sheet, np.clip(drift, 0, 1) * rng.uniform(0.05, _DUST_COVER), mud)
    if rng.random() < _SPRAY_SHARE:
        # Drops are hardly larger than the width of a stroke.
        drops = fractal(rng, size, rng.uniform(0.8, 1.8) * px_per_mm, 0.4)
        level = rng.uniform(2.2, 3.2) - rng.uniform(0, 1.0) * fall
        lay_over(sheet, np.clip(3 * (drops - level), 0, rng.uniform(0.3, _SPRAY_COVER)), mud)
    if rng.random() < _RUN_SHARE:
        columns = fractal(rng, (2, width), 2 * px_per_mm, 0.6)[:1]
        below = np.maximum(fall, rng.uniform(0, 0.6))
        lay_over(sheet, np.clip(columns - 0.4, 0, 1) * below * rng.uniform(0.1, _RUN_COVER), mud)
    if rng.random() < _SCRATCH_SHARE:
        tone = float(rng.choice((0.08, 0.45, 0.7)))
        for _ in range(int(rng.integers(1, 7))):
            start = rng.uniform(0, 1, 2) * (width, height)
            stop = start + rng.normal(0, 40, 2) * px_per_mm
            ends = [np.rint(point).astype(int).tolist() for point in (start, stop)]
            cv2.line(sheet, ends[0], ends[1], (tone, tone, tone), max(1, round(0.8 * px_per_mm)))


def _bolt(plate: Field, screws: Sequence[Point], rng: Generator, px_per_mm: float) -> None:
    """Draw round bolt heads at the plate's screw positions, in place, on some plates."""
    if rng.random() >= _BOLT_SHARE:
        return
    radius = rng.uniform(3.5, 6.5) * px_per_mm
    tone = np.array(pick(_TABLES["bolts"], rng))
    for place in np.rint(np.array(screws) * px_per_mm).astype(int).tolist():
        cv2.circle(plate, place, round(radius * 1.25), (tone * 0.45).tolist(), -1)
        cv2.circle(plate, place, round(radius), tone.tolist(), -1)


def _frame(image: Field, cover: Mask, px_per_mm: float, rng: Generator) -> None:
    """Add a dark, light or metal frame, in place; its lower edge may bear a dealer's name."""
    pad, lap = round(_PAD_MM * px_per_mm), round(rng.uniform(0, 2.2) * px_per_mm)
    rail, lip = (float(mm) for mm in rng.uniform((4, 4), (9, 22)))
    height, width = (side - 2 * pad for side in cover.shape)
    x0, x1 = round(pad - rail * px_per_mm), round(pad + width + rail * px_per_mm)
    y0, y1 = round(pad - rail * px_per_mm), round(pad + height + lip * px_per_mm)
    tone = pick((0.015, 0.03, 0.3, 0.55, 0.7), rng)
    whole = np.zeros(cover.shape, np.uint8)
    whole[y0:y1, x0:x1] = rounded_box((x1 - x0, y1 - y0), 0, 4 * px_per_mm)
    rails = whole > 127
    rails[pad + lap : pad + height - lap, pad + lap : pad + width - lap] = False
    # The frame's rails are round: light from above falls on their upper half.
    rows = np.linspace(1.5, 0.6, image.shape[0], dtype=np.float32)[:, None, None]
    image[:] = np.where(rails[..., None], tone * rows, image)
    np.maximum(cover, whole, out=cover)
    if lip > 13 and rng.random() < 0.8:
        word = pick(_TABLES["words"], rng)
        letters = (0.7, 0.7, 0.65) if tone < 0.2 else (0.03, 0.03, 0.1)
        place = round(x0 + rng.uniform(0.1, 0.6) * width), round(y1 - 0.3 * lip * px_per_mm)
        font = cv2.FONT_HERSHEY_COMPLEX | cv2.FONT_ITALIC
        cv2.putText(image, word, place, font, lip * px_per_mm / 45, letters, 1, cv2.LINE_AA)
