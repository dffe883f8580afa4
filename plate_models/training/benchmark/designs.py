"""Clean flat plates: Russian ones from the glyphs that define them, foreign ones in other types.

The layouts of other countries follow photos as well as they could be recalled. Their typefaces are
those that matplotlib and Pillow carry, none of training's: a reader has to know letters, not fonts.
Lengths are in millimetres from the plate's left top corner.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import cast

import cv2
import matplotlib
import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw, ImageFont

from plate_models.training.imaging import Field
from plate_models.training.imaging import Image as Pixels
from plate_models.training.synthetic.glyphs import Point
from plate_models.training.synthetic.ink import draw_ink, loosen
from plate_models.training.synthetic.kinds import DRAWN, RGB, Layout, PlateKind, kind_named
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
    low, high = (np.array(end) for end in kind.sheet)
    shade = low + (high - low) * rng.beta(2, 2, 3).mean()
    plate, white = _printed(ink, shade, kind.light_ink, rng)
    if kind.flag and rng.random() < kind.flag_share * 0.8:
        x0, y0, x1, y1 = (round(side * px_per_mm) for side in layout.flag)
        cv2.rectangle(plate, (x0 - 1, y0 - 1), (x1, y1), (0.1, 0.1, 0.1), 1)
        count = len(kind.flag)
        for index, stripe in enumerate(kind.flag):
            rows = slice(y0 + (y1 - y0) * index // count, y0 + (y1 - y0) * (index + 1) // count)
            plate[rows, x0:x1] = _FLAG_TONES[stripe]
    return plate, white


def _printed(ink: Pixels, shade: Field, light: bool, rng: Generator) -> tuple[Field, float]:
    """A sheet of a colour, RGB in [0, 255], with black or light ink."""
    shade = shade + rng.normal(0, 3, 3)
    paper = ((np.clip(shade, 4, 250) / 255) ** 2.2 * rng.uniform(*_WHITE)).astype(np.float32)
    paint = np.full(3, rng.uniform(*(_WHITE if light else _BLACK)), np.float32)
    plate = paper + (ink.astype(np.float32) / 255)[..., None] * (paint - paper)
    return plate, float(max(paper.max(), paint.max()))


@dataclass(frozen=True)
class ForeignKind:
    """One kind of plate of another country."""

    size_mm: tuple[float, float]
    # "L" is a letter, "#" a digit, "/" begins the lower line, "*" is a gap with a seal, " " a gap,
    # "-" a dash that is no part of the text.
    patterns: tuple[str, ...]
    height_mm: float  # of the characters
    area_mm: tuple[float, float, float, float]  # x0, y0, x1, y1 where the text stands
    band: tuple[float, float] = (0, 0)  # width of a coloured band on the left, height of one above
    word: str = ""  # written in the band, or where there is none above the text
    letters: str = "ABCDEFGHIJKLMNOPRSTUVWXYZ"
    ground: RGB = (250, 250, 250)


FOREIGN = {
    "de.car": ForeignKind(
        (520, 112), ("L*LL####", "LL*LL###", "LLL*LL##", "LL*L####"), 75, (54, 18, 508, 93),
        (43, 0), "D",
    ),
    "sk.car": ForeignKind((520, 112), ("LL*###LL",), 78, (56, 17, 506, 95), (43, 0), "SK"),
    "cz.car": ForeignKind(
        (520, 112), ("#L# ####", "#L#*####"), 72, (58, 20, 504, 92), (43, 0), "CZ",
        "ABCEHJKLMNPSTUVXYZ",
    ),
    "pl.car": ForeignKind(
        (520, 112), ("LL *#####", "LLL *####", "LL *####L"), 80, (52, 16, 510, 96), (43, 0), "PL",
        "ABCEFGHIJKLMNOPRSTUVWXYZ",
    ),
    "br.car": ForeignKind(
        (400, 130), ("LLL-####",), 63, (16, 48, 384, 111), word="SP  CAMPINAS",
        ground=(172, 174, 178),
    ),
    "br.mercosul": ForeignKind(
        (400, 130), ("LLL#L##",), 65, (18, 48, 382, 113), (0, 34), "BRASIL"
    ),
    "kz.car": ForeignKind(
        (520, 112), ("### LLL ##",), 74, (52, 20, 508, 94), (40, 0), "KZ", "ABCEFHKLMNPRSTUXYZ"
    ),
    "by.car": ForeignKind(
        (520, 112), ("#### LL-#",), 76, (54, 18, 506, 94), (36, 0), "BY", "ABEIKMHOPCTX"
    ),
    "de.car.square": ForeignKind(
        (340, 200), ("LL*L/####", "L*LL/###"), 75, (56, 14, 326, 186), (43, 0), "D"
    ),
    "br.motorcycle": ForeignKind(
        (200, 170), ("LLL/#L##",), 53, (14, 42, 186, 160), (0, 32), "BRASIL"
    ),
}  # fmt: skip
_FONTS = ("DejaVuSans-Bold.ttf", "DejaVuSans.ttf", "STIXGeneralBol.ttf", "")
_FONT_ODDS = (0.45, 0.25, 0.05, 0.25)
_FONT_PX = 160
# Spaces between characters, at a seal, a gap, a dash: shares of a character's height.
_SPACING, _GAPS = 0.1, {"*": 0.55, " ": 0.3, "-": 0.4}
_BLUE = (0.01, 0.04, 0.3)


@cache
def _font(name: str) -> ImageFont.FreeTypeFont:
    """One of matplotlib's fonts by its file's name; Pillow's own without a name."""
    if name:
        folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
        return ImageFont.truetype(str(folder / name), _FONT_PX)
    return cast(ImageFont.FreeTypeFont, ImageFont.load_default(_FONT_PX))


def _print_foreign(
    pattern: str, kind: ForeignKind, px_per_mm: float, rng: Generator
) -> tuple[Field, float]:
    """Draw a plate from its pattern with letters and digits in place."""
    width, height = (round(side * px_per_mm) for side in kind.size_mm)
    ink = np.zeros((height, width), np.uint8)
    cv2.rectangle(ink, (0, 0), (width - 1, height - 1), 255, round(2 * px_per_mm))
    font, bold = _font(str(rng.choice(_FONTS, p=_FONT_ODDS))), int(rng.integers(0, 7))
    x0, y0, x1, y1 = (side * px_per_mm for side in kind.area_mm)
    rows, tall = pattern.split("/"), kind.height_mm * px_per_mm
    for number, row in enumerate(rows, 1):
        foot = y0 + (y1 - y0) * number / len(rows) - 2 * px_per_mm * (len(rows) - 1)
        _stamp(ink, _row_mask(row, font, bold), (x0, foot - tall, x1, foot))
    plate, white = _printed(ink, np.array(kind.ground), False, rng)
    left, above = (round(side * px_per_mm) for side in kind.band)
    plate[:, :left], plate[:above] = _BLUE, _BLUE
    area = 0.2 * width, 0.1 * height, 0.8 * width, 0.26 * height
    if left:
        area = 0.15 * left, 0.68 * height, 0.85 * left, 0.92 * height
    elif above:
        area = 0.3 * width, 0.2 * above, 0.7 * width, 0.8 * above
    word = np.zeros_like(ink)
    _stamp(word, _row_mask(kind.word, font, bold), area)
    colour = np.float32(0.75 if left or above else 0.04)
    plate += (word.astype(np.float32) / 255)[..., None] * (colour - plate)
    return plate, white


def _row_mask(row: str, font: ImageFont.FreeTypeFont, bold: int) -> Pixels:
    """A row of characters as (h, w) uint8 coverage, cropped to their height."""
    _, top, _, foot = font.getbbox("H", anchor="ls", stroke_width=bold)
    tall = foot - top
    widths = [tall * _GAPS[c] if c in _GAPS else font.getlength(c) + 2 * bold for c in row]
    size = round(sum(widths) + _SPACING * tall * len(row)), round(tall)
    image = Image.new("L", size)
    pen, x = ImageDraw.Draw(image), _SPACING * tall / 2
    for char, width in zip(row, widths, strict=True):
        middle = x + width / 2
        if char == "*":
            pen.ellipse((x + 4, 0.3 * tall, x + width - 4, 0.3 * tall + width - 8), 140)
        elif char == "-":
            pen.rectangle((x + 4, 0.45 * tall, x + width - 4, 0.55 * tall), 255)
        elif char != " ":
            pen.text((middle, -top), char, 255, font, "ms", stroke_width=bold)
        x += width + _SPACING * tall
    return np.asarray(image)


def _stamp(ink: Pixels, mask: Pixels, area: tuple[float, float, float, float]) -> None:
    """Print a mask into the middle of an area, as high as it is; squeezed if it is too wide."""
    x0, y0, x1, y1 = area
    height = round(y1 - y0)
    width = min(round(x1 - x0), round(mask.shape[1] * height / mask.shape[0]))
    if min(width, height) < 1:
        return
    left, top = round((x0 + x1 - width) / 2), round(y0)
    seen = cv2.resize(mask, (width, height), interpolation=cv2.INTER_AREA)
    part = ink[top : top + height, left : left + width]
    np.maximum(part, seen[: part.shape[0], : part.shape[1]], out=part)


def sample_design(kind: str, rng: Generator) -> Design:
    """A plate of a kind, a key of `DRAWN` or ``FOREIGN``, with a text of its own.

    Raises ValueError: There is no such kind.
    """
    if kind in DRAWN:
        text, its = sample_text(rng, kind), kind_named(kind)
        fitting = its.layouts_of(text)
        layout = loosen(fitting[rng.integers(len(fitting))], its, rng)
        about = text, its.lines, layout.size_mm, layout.region.digit_height, layout.screws
        return Design(*about, its.holder_share, partial(_print_russian, text, its, layout))
    if kind not in FOREIGN:
        expected = ", ".join((*DRAWN, *FOREIGN))
        raise ValueError(f"expected a kind of plate out of {expected}, got {kind!r}")
    foreign = FOREIGN[kind]
    pattern = foreign.patterns[rng.integers(len(foreign.patterns))]
    filled = re.sub("L", lambda _: foreign.letters[rng.integers(len(foreign.letters))], pattern)
    filled = re.sub("#", lambda _: str(rng.integers(10)), filled)
    width, height = foreign.size_mm
    screws = (0.25 * width, 9.0), (0.75 * width, 9.0), (0.25 * width, height - 9)
    text = "".join(filter(str.isalnum, filled))
    about = text, 1 + filled.count("/"), foreign.size_mm, foreign.height_mm, screws
    return Design(*about, 1.0, partial(_print_foreign, filled, foreign))
