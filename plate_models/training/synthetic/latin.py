"""Flat plates of any country with Latin letters: layout, typeface and colours by chance.

Nothing here is one country's standard. Proportions, bands, seals and colours are those that many
countries have, mixed at random, so that a recognizer learns letters and not layouts. Lengths are
in millimetres from the plate's left top corner.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeVar

import cv2
import numpy as np
from PIL import Image as Pictures
from PIL import ImageDraw, ImageFont

from plate_models.training.imaging import Floats, Image
from plate_models.training.synthetic.glyphs import Mask
from plate_models.training.synthetic.ink import rounded_box, stamp
from plate_models.training.synthetic.kinds import RGB

LATIN = "latin"
# Typefaces as `make fonts` fetches them, or any others that lie there.
FONTS = Path(os.environ.get("PLATES_FONTS", ".cache/fonts"))
_FILES = ("**/*-latin-[567]00-normal.woff", "**/*.ttf", "**/*.otf")
# Glyphs are drawn with capitals so high and scaled down, with so much room around them.
_MASTER_PX, _PAD_PX = 96, 12

# Layouts of many countries: "L" a letter, "#" a digit, "*" either; a space parts groups.
_PATTERNS = (
    *("LL ###LL", "LL ###LL", "LL ### LL", "LL### LL", "LLL ####", "LLL ####", "LLL#L##"),
    *("#L# ####", "#LL ####", "LL #####", "LL ####L", "LLL #####", "LLL ##LL", "LLL ###L"),
    *("L L ####", "LL L ###", "LL LL ####", "LLL LL ##", "L LL ###", "LLL L ###", "LL## LLL"),
    *("#### LLL", "## LL ##", "LL ## LL", "##LL##", "## LLL #", "#LLL###", "LLL ###", "### LLL"),
    *("#### LL #", "### LLL ##", "LL #### LL", "LL ####", "L #### LL", "LL ## ####", "######"),
    *("LLLLLL", "LLL", "LLLLL", "LLLLLLL", "LLLL #", "LLL LLL", "L ###", "LL ##", "L #####"),
    *("****", "*****", "******", "*** ***", "*******", "*** ****", "********", "*** **** **"),
)
_DIGITS = "0123456789"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Many countries leave out what looks like a digit.
_LETTER_ODDS = np.array([0.35 if char in "IOQ" else 1.0 for char in _LETTERS])
_LETTER_SHARES = _LETTER_ODDS / _LETTER_ODDS.sum()
_REPEAT_SHARE = 0.1

# Width and height with their odds; two-line plates below.
_LONG = (
    ((520, 112), 9), ((520, 110), 3), ((400, 130), 6), ((440, 120), 2), ((460, 110), 1),
    ((372, 135), 1), ((305, 152), 2), ((300, 150), 2), ((340, 110), 1), ((360, 130), 1),
)  # fmt: skip
_HIGH = (
    ((340, 200), 3), ((280, 200), 3), ((250, 200), 2), ((300, 150), 2), ((190, 145), 2),
    ((200, 170), 3), ((220, 220), 1), ((330, 160), 1), ((305, 165), 1),
)  # fmt: skip
_TWO_LINES = 0.22

# Sheet and ink, RGB in full light, with their odds.
_COLOURS = (
    (((250, 250, 250), (15, 15, 18)), 56),
    (((240, 195, 20), (15, 15, 18)), 8),
    (((190, 192, 195), (20, 20, 22)), 9),
    (((250, 250, 250), (20, 45, 140)), 4),
    (((250, 250, 250), (160, 20, 30)), 3),
    (((250, 250, 250), (20, 100, 50)), 3),
    (((20, 20, 24), (245, 245, 245)), 5),
    (((20, 60, 160), (245, 245, 245)), 3),
    (((170, 20, 30), (245, 245, 245)), 3),
    (((20, 100, 60), (245, 245, 245)), 2),
    (((120, 190, 120), (20, 20, 22)), 1),
    (((150, 190, 230), (20, 20, 60)), 1),
    (((20, 20, 24), (230, 190, 40)), 1),
)
_BAND = (25, 60, 155)
_STAR = (235, 200, 30)
_SEALS = ((200, 160, 40), (60, 120, 190), (190, 60, 60), (70, 140, 80), (150, 150, 155))
_WORDS = (
    "BRASIL", "NORTH", "RIVER STATE", "SP-CAMPO", "MG LAGOA", "REPUBLICA", "SUNSHINE", "LAKES",
    "CD", "EST 1905", "GARDEN", "ISLAND", "VALLE VERDE", "PORTO", "NOVA", "COAST",
)  # fmt: skip

Option = TypeVar("Option")


class FontsMissingError(Exception):
    """There is no typeface to render with; the message says where one was expected."""


@dataclass(frozen=True)
class LatinPlate:
    """What a plate is to look like."""

    rows: tuple[str, ...]  # one or two, of groups of characters with spaces between
    size_mm: tuple[float, float]  # width and height
    band: str | None = None  # "left", "top" or "none"; None leaves it to chance, as what follows
    colours: tuple[RGB, RGB] | None = None  # sheet and ink in full light, in [0, 255]
    typefaces: tuple[str, ...] = ()  # names of files, one of which is taken

    @property
    def text(self) -> tuple[str, ...]:
        """The rows as they are read, without spaces."""
        return tuple(row.replace(" ", "") for row in self.rows)


@cache
def typefaces(folder: Path) -> tuple[Path, ...]:
    """The typefaces in a folder, sorted.

    Raises:
        FontsMissingError: There is none.
    """
    found = {path for pattern in _FILES for path in folder.glob(pattern)}
    if not found:
        raise FontsMissingError(
            f"{folder}: expected typefaces (.ttf, .otf or fontsource's .woff) to render plates "
            "with, found none; `make fonts` fetches free ones"
        )
    return tuple(sorted(found))


def sample_latin(rng: np.random.Generator) -> LatinPlate:
    """Draw a text, its rows and a size."""
    pattern = _PATTERNS[rng.integers(len(_PATTERNS))]
    row = "".join(char if char == " " else _character(char, rng) for char in pattern)
    if rng.random() < _REPEAT_SHARE:
        digits = [char for char in row if char in _DIGITS]
        row = "".join(digits[0] if char in _DIGITS else char for char in row)
    length = len(row.replace(" ", ""))
    if length < 4 or rng.random() >= _TWO_LINES:
        return LatinPlate((row,), _choose(_LONG, rng))
    place = row.find(" ") if row.count(" ") == 1 else -1
    bare = row.replace(" ", "")
    half = place if 2 <= place <= length - 2 else length // 2 + int(rng.integers(0, 1 + length % 2))
    return LatinPlate((bare[:half], bare[half:]), _choose(_HIGH, rng))


def _character(symbol: str, rng: np.random.Generator) -> str:
    if symbol == "#" or (symbol == "*" and rng.random() < 0.5):
        return _DIGITS[rng.integers(10)]
    return _LETTERS[rng.choice(26, p=_LETTER_SHARES)]


def _choose(options: Sequence[tuple[Option, int]], rng: np.random.Generator) -> Option:
    """Draw one of the options by their odds."""
    odds = np.array([odds for _, odds in options], np.float64)
    return options[rng.choice(len(options), p=odds / odds.sum())][0]


def paint_latin(
    plate: LatinPlate, rng: np.random.Generator, px_per_mm: float, fonts: Path
) -> tuple[Image, Mask]:
    """Paint a plate, flat and evenly lit, in colours of full light.

    Returns:
        (H, W, 3) uint8 RGB, and (H, W) uint8 coverage of its characters.

    Raises:
        FontsMissingError: There is no typeface in ``fonts``.
    """
    faces = [f for f in typefaces(fonts) if not plate.typefaces or f.name in plate.typefaces]
    if not faces:
        raise FontsMissingError(f"{fonts}: expected one of {', '.join(plate.typefaces)}")
    face = faces[rng.integers(len(faces))]
    sheet, ink_colour = plate.colours or _choose(_COLOURS, rng)
    width, height = plate.size_mm
    size_wh = round(width * px_per_mm), round(height * px_per_mm)
    rgb = np.empty((size_wh[1], size_wh[0], 3), np.uint8)
    rgb[:] = np.clip(np.array(sheet) + rng.normal(0, 8, 3), 0, 255)
    left, top, right, bottom = 0.0, 0.0, width, height
    side = {"left": 0.2, "top": 0.5, "none": 1.0}.get(plate.band or "", rng.random())
    if side < 0.4:
        left = _draw_band(rgb, face, rng, px_per_mm, plate.size_mm, right_side=False)
        if side < 0.08:
            right = _draw_band(rgb, face, rng, px_per_mm, plate.size_mm, right_side=True)
    elif side < 0.55:
        top = height * float(rng.uniform(0.14, 0.24 if len(plate.rows) == 1 else 0.18))
        _fill(rgb, (0, 0, width, top), _BAND if rng.random() < 0.7 else ink_colour, px_per_mm)
        _write_word(rgb, face, rng, px_per_mm, (width / 2, 0.12 * top), 0.75 * top, (240,) * 3)
    elif side < 0.72:
        tall = height * float(rng.uniform(0.09, 0.16))
        at_top = rng.random() < 0.6
        y = 0.05 * height if at_top else 0.95 * height - tall
        middle = width * float(rng.uniform(0.4, 0.6))
        _write_word(rgb, face, rng, px_per_mm, (middle, y), tall, ink_colour)
        top, bottom = (y + tall, bottom) if at_top else (top, y)
    ink = np.zeros(rgb.shape[:2], np.uint8)
    if rng.random() < 0.6:
        _draw_frame(ink, rng, px_per_mm)
    for row, (low, high) in zip(plate.rows, _row_places(plate, top, bottom, rng), strict=True):
        seals = _set_row(ink, row, face, (left, low, right, high), px_per_mm, rng)
        for seal in seals:
            _draw_seal(rgb, seal, px_per_mm, rng)
    cover = ink[..., None].astype(np.float32) / 255
    mixed = rgb + cover * (np.array(ink_colour, np.float32) - rgb)
    return mixed.astype(np.uint8), ink


def _row_places(
    plate: LatinPlate, top: float, bottom: float, rng: np.random.Generator
) -> list[tuple[float, float]]:
    """Top and foot of each row's characters."""
    room = bottom - top
    if len(plate.rows) == 1:
        tall = room * float(rng.uniform(0.55, 0.86))
        low = top + (room - tall) * float(rng.uniform(0.4, 0.6))
        return [(low, low + tall)]
    # The rows of a plate are cut at its middle: RectifierSpec.row_spans.
    middle = plate.size_mm[1] / 2 + 0.01 * plate.size_mm[1] * float(rng.uniform(-1, 1))
    places = []
    for start, end in ((max(top, 0.03 * bottom), middle), (middle, bottom)):
        tall = (end - start) * float(rng.uniform(0.66, 0.88))
        low = start + (end - start - tall) * float(rng.uniform(0.35, 0.65))
        places.append((low, low + tall))
    return places


@cache
def _font(face: Path) -> ImageFont.FreeTypeFont:
    """A typeface whose capitals are so high as glyphs are drawn."""
    font = ImageFont.truetype(str(face), _MASTER_PX)
    _, top, _, _ = font.getbbox("H", anchor="ls")
    return ImageFont.truetype(str(face), round(_MASTER_PX * _MASTER_PX / max(-top, 1)))


@lru_cache(maxsize=4096)
def _glyph(face: Path, char: str, bolder_px: int) -> Mask:
    """(H, W) uint8 coverage of a character, its foot ``_PAD_PX`` above the lower edge."""
    font = _font(face)
    left, _, right, _ = font.getbbox(char, anchor="ls")
    size_wh = round(right - left) + 2 * _PAD_PX, _MASTER_PX + 2 * _PAD_PX
    picture = Pictures.new("L", size_wh)
    ImageDraw.Draw(picture).text(
        (_PAD_PX - left, _PAD_PX + _MASTER_PX), char, 255, font, anchor="ls"
    )
    mask = np.array(picture)
    if bolder_px:
        side = 2 * abs(bolder_px) + 1
        kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
        mask = np.asarray((cv2.dilate if bolder_px > 0 else cv2.erode)(mask, kernel), np.uint8)
    mask.setflags(write=False)
    return mask


def _set_row(
    ink: Mask,
    row: str,
    face: Path,
    room: tuple[float, float, float, float],
    scale: float,
    rng: np.random.Generator,
) -> list[tuple[float, float, float]]:
    """Print a row inside x0, top, x1, foot; returns (x, y, radius) of seals in its gaps."""
    x0, top, x1, foot = room
    unit, side = (foot - top) / _MASTER_PX, (x1 - x0) * float(rng.uniform(0.02, 0.06))
    x0, x1 = x0 + side, x1 - side
    bolder = int(rng.choice((-3, -1, 0, 0, 2, 4)))
    masks = {char: _glyph(face, char, bolder) for char in row if char != " "}
    stretch = float(rng.uniform(0.75, 1.25))
    pitch = max(mask.shape[1] for mask in masks.values()) - 2 * _PAD_PX
    fixed = rng.random() < 0.35
    between = (foot - top) * float(rng.uniform(0.08, 0.24))
    apart = (foot - top) * float(rng.uniform(0.2, 0.9))

    def advance(char: str) -> float:
        if char == " ":
            return apart
        width = pitch if fixed else masks[char].shape[1] - 2 * _PAD_PX
        return max(width, 0.12 * _MASTER_PX) * unit * stretch + between

    total = sum(map(advance, row)) - between
    fit = (x1 - x0) / total
    if fit > 1:
        fit = float(rng.uniform(1, min(fit, 1.45)))
    # Characters that would be narrower than this are lower instead.
    rise = unit * min(1.0, fit / 0.6)
    foot -= (unit - rise) * _MASTER_PX / 2
    x = x0 + (x1 - x0 - total * fit) * float(rng.uniform(0.3, 0.7))
    seals = []
    mark = rng.random()
    for char in row:
        step = advance(char) * fit
        if char == " ":
            middle, tall = x + (step - between * fit) / 2, rise * _MASTER_PX
            if mark < 0.2:
                _draw_dash(ink, middle, foot - tall / 2, min(step, 0.35 * tall), tall, scale, rng)
            elif mark < 0.55:
                radius = 0.42 * min(step, 0.5 * tall)
                seals.append((middle, foot - tall * float(rng.uniform(0.25, 0.75)), radius))
        else:
            wide, high = masks[char].shape[1] * unit * stretch * fit, masks[char].shape[0] * rise
            size = max(1, round(wide * scale)), max(1, round(high * scale))
            resized = cv2.resize(masks[char], size, interpolation=cv2.INTER_AREA)
            glyph = np.asarray(resized, np.uint8)
            wobble = rng.normal(0, 0.6 * unit, 2)
            centre = x + (step - between * fit) / 2 + wobble[0]
            stamp(ink, glyph, centre * scale, (foot + _PAD_PX * rise - high + wobble[1]) * scale)
        x += step
    return seals


def _draw_dash(
    ink: Mask, x: float, y: float, long: float, tall: float, scale: float, rng: np.random.Generator
) -> None:
    thick = tall * float(rng.uniform(0.06, 0.13))
    if rng.random() < 0.3:
        long = thick
    box = np.rint(np.array([x - long / 2, y - thick / 2, x + long / 2, y + thick / 2]) * scale)
    x0, y0, x1, y1 = box.astype(int).tolist()
    cv2.rectangle(ink, (x0, y0), (max(x0, x1 - 1), max(y0, y1 - 1)), (255,), -1)


def _draw_seal(
    rgb: Image, seal: tuple[float, float, float], scale: float, rng: np.random.Generator
) -> None:
    """A round sticker, or a coat of arms."""
    colour = np.clip(_SEALS[rng.integers(len(_SEALS))] + rng.normal(0, 20, 3), 0, 255)
    x, y, radius = (round(value * scale * 16) for value in seal)
    cv2.circle(rgb, (x, y), max(radius, 8), colour.tolist(), -1, cv2.LINE_AA, 4)
    if rng.random() < 0.6:
        inner = np.clip(colour + rng.normal(0, 70, 3), 0, 255).tolist()
        cv2.circle(rgb, (x, y), max(radius // 2, 4), inner, -1, cv2.LINE_AA, 4)


def _draw_frame(ink: Mask, rng: np.random.Generator, scale: float) -> None:
    """The line along the rim."""
    inset, thick = float(rng.uniform(0, 5)) * scale, max(1.0, float(rng.uniform(1.5, 4)) * scale)
    size_wh = ink.shape[1], ink.shape[0]
    radius = float(rng.uniform(2, 10)) * scale
    outer = rounded_box(size_wh, inset, radius)
    np.maximum(ink, outer - rounded_box(size_wh, inset + thick, radius), out=ink)


def _fill(rgb: Image, box: tuple[float, float, float, float], colour: RGB, scale: float) -> None:
    x0, y0, x1, y1 = (round(value * scale) for value in box)
    rgb[y0:y1, x0:x1] = colour


def _draw_band(
    rgb: Image,
    face: Path,
    rng: np.random.Generator,
    scale: float,
    size_mm: tuple[float, float],
    right_side: bool,
) -> float:
    """A coloured band with stars and a country's letters; returns its inner edge."""
    width, height = size_mm
    wide = float(rng.uniform(0.30, 0.44)) * min(height, 130)
    x0 = width - wide if right_side else 0.0
    colour = np.clip(np.array(_BAND) + rng.normal(0, 15, 3), 0, 255).tolist()
    _fill(rgb, (x0, 0, x0 + wide, height), (colour[0], colour[1], colour[2]), scale)
    centre = np.array([x0 + wide / 2, 0.3 * height])
    if rng.random() < 0.75:
        for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False):
            place = centre + 0.3 * wide * np.array([np.cos(angle), np.sin(angle)])
            at = tuple(np.rint(place * scale * 16).astype(int).tolist())
            cv2.circle(rgb, at, max(4, round(0.05 * wide * scale * 16)), _STAR, -1, cv2.LINE_AA, 4)
    letters = "".join(_character("L", rng) for _ in range(int(rng.integers(1, 4))))
    tall = min(0.24 * height, 0.5 * wide)
    _write(rgb, letters, face, (x0 + wide / 2, 0.66 * height), tall, 0.85 * wide, (240,) * 3, scale)
    return x0 if right_side else x0 + wide


def _write_word(
    rgb: Image,
    face: Path,
    rng: np.random.Generator,
    scale: float,
    place: tuple[float, float],
    tall: float,
    colour: RGB,
) -> None:
    word = _WORDS[rng.integers(len(_WORDS))]
    room = 1.8 * min(place[0], rgb.shape[1] / scale - place[0])
    _write(rgb, word, face, place, tall, room, colour, scale)


def _write(
    rgb: Image,
    text: str,
    face: Path,
    place: tuple[float, float],
    tall: float,
    room: float,
    colour: RGB,
    scale: float,
) -> None:
    """Write a small text around x and below y."""
    masks = [_glyph(face, char, 0) for char in text if char != " "]
    glyphs = np.hstack([mask[:, _PAD_PX // 2 : -_PAD_PX // 2] for mask in masks])
    unit = tall / _MASTER_PX
    wide = min(glyphs.shape[1] * unit, room)
    size = max(1, round(wide * scale)), max(1, round(glyphs.shape[0] * unit * scale))
    cover = np.zeros(rgb.shape[:2], np.uint8)
    small = np.asarray(cv2.resize(glyphs, size, interpolation=cv2.INTER_AREA), np.uint8)
    stamp(cover, small, place[0] * scale, (place[1] - _PAD_PX * unit) * scale)
    share = cover[..., None].astype(np.float32) / 255
    rgb[:] = rgb + share * (np.array(colour, np.float32) - rgb)


def full_light(rgb: Image, rng: np.random.Generator, paper: tuple[float, float]) -> Image:
    """Make a sheet as bright as others are, in grey levels of white paper."""
    level = rng.uniform(*paper) / 250.0
    gain: Floats = level * (1 + rng.normal(0, 0.015, 3))
    return np.clip(rgb * gain + rng.uniform(0, 25), 0, 255).astype(np.uint8)
