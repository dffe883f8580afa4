"""Clean flat plates: Russian ones from the glyphs that define them, foreign ones in other types.

The typefaces of other countries are those that matplotlib and Pillow carry, none of training's: a
reader has to know letters, not fonts. Lengths are in millimetres from the plate's left top corner.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import cv2
import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw, ImageFont

from plate_models.training.imaging import Field, carried_font
from plate_models.training.imaging import Image as Pixels
from plate_models.training.synthetic.glyphs import Point
from plate_models.training.synthetic.ink import draw_ink, loosen
from plate_models.training.synthetic.kinds import KINDS, RGB, Layout, PlateKind, kind_named
from plate_models.training.synthetic.texts import sample_text

_BOLDER_MM = (-1.2, -0.6, 0.0, 0.6)
_JITTER_MM = 0.5
# Of white sheets and white print; of black print.
_WHITE, _BLACK = (0.62, 0.88), (0.015, 0.06)
_FLAG_TONES: dict[str, RGB] = {
    "white": (0.8, 0.8, 0.8), "blue": (0.03, 0.07, 0.4), "red": (0.5, 0.03, 0.03),
    "black": (0.02, 0.02, 0.02), "yellow": (0.75, 0.5, 0.04), "green": (0.02, 0.2, 0.05),
}  # fmt: skip


# From pixels per millimetre and a source of chance: (H, W, 3) float32 linear reflectance, and that
# of the plate's white.
Print = Callable[[float, Generator], tuple[Field, float]]


@dataclass(frozen=True)
class Design:
    """What a plate is, before it is soiled and screwed on."""

    text: str  # in Latin letters, the upper line first
    lines: int  # of text, 1 or 2
    size_mm: tuple[float, float]  # width and height
    character_mm: float  # height of the smallest characters
    screws: tuple[Point, ...]  # where it is screwed on
    holder_share: float  # factor on the chance of a frame around it
    print: Print


def _print_russian(
    text: str, kind: PlateKind, layout: Layout, px_per_mm: float, rng: Generator
) -> tuple[Field, float]:
    bolder = _BOLDER_MM[rng.integers(len(_BOLDER_MM))]
    ink = draw_ink(text, kind, layout, rng, px_per_mm, _JITTER_MM, bolder)
    plate, white = _printed(ink, kind, rng)
    if kind.flag and rng.random() < kind.flag_share * 0.8:
        x0, y0, x1, y1 = (round(side * px_per_mm) for side in layout.flag)
        cv2.rectangle(plate, (x0 - 1, y0 - 1), (x1, y1), (0.1, 0.1, 0.1), 1)
        count = len(kind.flag)
        for index, stripe in enumerate(kind.flag):
            rows = slice(y0 + (y1 - y0) * index // count, y0 + (y1 - y0) * (index + 1) // count)
            plate[rows, x0:x1] = _FLAG_TONES[stripe]
    return plate, white


def _printed(ink: Pixels, kind: PlateKind, rng: Generator) -> tuple[Field, float]:
    """A sheet of the kind's colour with its ink."""
    low, high = (np.array(end) for end in kind.sheet)
    shade = low + (high - low) * rng.beta(2, 2, 3).mean() + rng.normal(0, 3, 3)
    paper = ((np.clip(shade, 4, 250) / 255) ** 2.2 * rng.uniform(*_WHITE)).astype(np.float32)
    paint = np.full(3, rng.uniform(*(_WHITE if kind.light_ink else _BLACK)), np.float32)
    plate = paper + (ink.astype(np.float32) / 255)[..., None] * (paint - paper)
    return plate, float(max(paper.max(), paint.max()))


FOREIGN = tuple(name for name, kind in KINDS.items() if kind.sizes_mm)
_FONTS = ("DejaVuSans-Bold.ttf", "DejaVuSans.ttf", "STIXGeneralBol.ttf", "")
_FONT_ODDS, _FONT_PX = (0.45, 0.25, 0.05, 0.25), 160
_SPACING = 0.1  # of a character's height
_BETWEEN = (" ", "-", "\N{BULLET}")  # groups: a gap, a dash, a seal
# Of a row's height, what its characters take where there are one or two.
_TALL = (0.67, 0.76)
_BAND_MM, _ABOVE_MM, _MARGIN_MM = 42.0, 33.0, 12.0
_BLUE = (0.01, 0.04, 0.3)


def _places(kind: PlateKind, height_mm: float) -> tuple[float, float, float]:
    """Width of the band on the left, height of what is above the text, and of a character."""
    left, above = _BAND_MM * (kind.band == "left"), _ABOVE_MM * (kind.band != "left")
    return left, above, (height_mm - above) / kind.lines * _TALL[kind.lines - 1]


def _print_foreign(
    text: str, kind: PlateKind, size_mm: Point, px_per_mm: float, rng: Generator
) -> tuple[Field, float]:
    width, height = (round(side * px_per_mm) for side in size_mm)
    left, above, tall = (round(mm * px_per_mm) for mm in _places(kind, size_mm[1]))
    margin, slot = _MARGIN_MM * px_per_mm, (height - above) / kind.lines
    ink, sign = np.zeros((2, height, width), np.uint8)
    cv2.rectangle(ink, (0, 0), (width - 1, height - 1), 255, round(2 * px_per_mm))
    name, bold = str(rng.choice(_FONTS, p=_FONT_ODDS)), int(rng.integers(0, 7))
    pillows = cast(Callable[[int], ImageFont.FreeTypeFont], ImageFont.load_default)
    font = carried_font(name, _FONT_PX) if name else pillows(_FONT_PX)
    between = _BETWEEN[rng.integers(len(_BETWEEN))]
    for number, row in enumerate(kind.rows(text)):
        top = above + slot * (number + 0.5) - tall / 2
        row = row.replace(" ", between)
        _stamp(ink, row, font, bold, (left + margin, top, width - margin, top + tall))
    plate, white = _printed(ink, kind, rng)
    above_text = 0.2 * width, 0.2 * above, 0.8 * width, 0.8 * above
    on_left = 0.15 * left, 0.68 * height, 0.85 * left, 0.92 * height
    tone = 0.04 if kind.band == "none" else 0.75
    if kind.band != "none":
        plate[:, :left], plate[:above] = _BLUE, _BLUE
    _stamp(sign, kind.sign, font, bold, on_left if kind.band == "left" else above_text)
    plate += (sign.astype(np.float32) / 255)[..., None] * (np.float32(tone) - plate)
    return plate, white


def _stamp(
    ink: Pixels, row: str, font: ImageFont.FreeTypeFont, bold: int, area: tuple[float, ...]
) -> None:
    """Print a row into the middle of an area, as high as it is; squeezed if it is too wide."""
    # J and Q reach below the foot line.
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
    seen = cv2.resize(np.asarray(image), (width, height), interpolation=cv2.INTER_AREA)
    ink[y : y + height, x : x + width] = seen


def sample_design(kind: str, rng: Generator) -> Design:
    """A plate of a kind, a key of `KINDS`, with a text of its own; ValueError for another kind."""
    return design_with(kind, sample_text(rng, kind), rng)


def design_with(kind: str, text: str, rng: Generator) -> Design:
    """As `sample_design`, with a given text in the kind's format."""
    its = kind_named(kind)
    if its.sizes_mm:
        width, height = size = its.sizes_mm[rng.integers(len(its.sizes_mm))]
        screws = (0.25 * width, 9.0), (0.75 * width, 9.0), (0.25 * width, height - 9)
        tall = _places(its, height)[2]
        printed = partial(_print_foreign, text, its, size)
        return Design(text, its.lines, size, tall, screws, its.holder_share, printed)
    fitting = its.layouts_of(text)
    layout = loosen(fitting[rng.integers(len(fitting))], its, rng)
    about = text, its.lines, layout.size_mm, layout.region.digit_height, layout.screws
    return Design(*about, its.holder_share, partial(_print_russian, text, its, layout))
