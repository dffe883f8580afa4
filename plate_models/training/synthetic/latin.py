"""Flat plates of any country with Latin letters: random layout, typeface and colours.

No plate follows one country's standard. Proportions, bands, seals and colours of many countries are
mixed at random, so that a recognizer learns letters and not layouts. Typefaces are free fonts from
a folder, and randomly generated block letters. Lengths are in millimetres from the plate's top left
corner.
"""

import os
import string
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from pathlib import Path

import cv2
import numpy as np
from numpy.random import Generator
from PIL import Image as Pictures
from PIL import ImageDraw, ImageFont

from plate_models.spec import RECOGNIZER
from plate_models.training.imaging import Floats, Image, Mask, lay_over
from plate_models.training.synthetic.ink import rounded_box, stamp
from plate_models.training.synthetic.kinds import RGB, Box, Point
from plate_models.training.tables import choose, pick, tables_of

LATIN = "latin"
# The folder of fonts that `make fonts` fills; other fonts in it are used, too.
FONTS = Path(os.environ.get("PLATES_FONTS", ".cache/fonts"))
_FILES = ("**/*-latin-[567]00-normal.woff", "**/*.ttf", "**/*.otf")
# Glyphs are drawn with capitals of this height and a margin of this width, then scaled down.
CAPITALS_PX, PAD_PX = 96, 12

_TABLES = tables_of(__file__)
_LETTERS = [char for char in string.ascii_uppercase if char in RECOGNIZER.alphabet] or string.digits
_REPEAT_SHARE = 0.1  # of texts with a single repeated digit
_TWO_LINES = 0.22  # share of two-line plates among texts of four characters or more
# Share of American plates: a word above low characters, which fill the plate's width.
_AMERICAN_SHARE = 0.25
# Share of generated typefaces; share of rows that draw 0 as O, or 1 as I.
_BLOCK_SHARE = 0.4
_SAME_SHAPE_SHARE = 0.15
_WIDEST_PEN = 0.19  # of a character's height
# Cumulative shares of rows whose gaps have dashes, seals; the others have dots or nothing.
_DASHED, _SEALED = 0.2, 0.7
_BAND, _WHITE = (25, 60, 155), (240, 240, 240)
_STAR = (235, 200, 30)


@dataclass(frozen=True)
class BlockLetters:
    """A typeface of pen strokes like embossed plates; lengths are shares of its height."""

    width: float  # between the middles of a character's outer strokes
    pen: float
    rounding: float  # of corners
    square: bool  # whether strokes end square, not round
    shape: int  # index of the shape of characters that have several


Typeface = Path | BlockLetters


@dataclass(frozen=True)
class LatinPlate:
    """A plate's appearance; the renderer draws what is None or empty at random."""

    rows: tuple[str, ...]  # one or two, of groups of characters separated by spaces
    size_mm: Point  # width and height
    band: str | None = None  # "left", "top", "word" or "none"
    colours: tuple[RGB, RGB] | None = None  # sheet and ink in full light, in [0, 255]
    typefaces: tuple[str, ...] = ()  # file names to draw one from


def sample_latin(rng: Generator) -> LatinPlate:
    """Draw a random text, its rows and a size."""
    american = rng.random() < _AMERICAN_SHARE
    pattern = pick(_TABLES["american_patterns" if american else "patterns"], rng)
    row = "".join(char if char == " " else _character(char, rng) for char in pattern)
    if rng.random() < _REPEAT_SHARE:
        digits = [char for char in row if char in string.digits]
        row = "".join(digits[0] if char in string.digits else char for char in row)
    if american:
        band = "word" if rng.random() < 0.8 else "top"
        return LatinPlate((row,), choose(_TABLES["american"], rng), band)
    bare = row.replace(" ", "")
    length = len(bare)
    if length < 4 or rng.random() >= _TWO_LINES:
        return LatinPlate((row,), choose(_TABLES["long"], rng))
    place = row.find(" ") if row.count(" ") == 1 else -1
    half = place if 2 <= place <= length - 2 else length // 2 + int(rng.integers(0, 1 + length % 2))
    return LatinPlate((bare[:half], bare[half:]), choose(_TABLES["high"], rng))


def _character(symbol: str, rng: Generator) -> str:
    if symbol == "#" or (symbol == "*" and rng.random() < 0.5):
        return pick(string.digits, rng)
    return pick(_LETTERS, rng)


def paint_latin(plate: LatinPlate, rng: Generator, px_per_mm: float) -> tuple[Image, Mask]:
    """Paint a plate, flat and evenly lit, in colours of full light.

    Returns (H, W, 3) uint8 RGB, and (H, W) uint8 coverage of the characters. Raises
    FileNotFoundError if ``FONTS`` has none of the typefaces.
    """
    faces = [f for f in fonts_in(FONTS) if not plate.typefaces or f.name in plate.typefaces]
    if not faces:
        raise FileNotFoundError(f"{FONTS}: expected one of {', '.join(plate.typefaces)}")
    face: Typeface = pick(faces, rng)
    if not plate.typefaces and rng.random() < _BLOCK_SHARE:
        face = make_up(rng)
    sheet, print_colour = plate.colours or choose(_TABLES["colours"], rng)
    painter = _Painter(face, plate.size_mm, px_per_mm, rng)
    painter.rgb[:] = np.clip(np.array(sheet) + rng.normal(0, 8, 3), 0, 255)
    if plate.band == "word" and rng.random() < 0.5:
        painter.scenery()
    left, top, right, bottom = painter.adorn(plate.band, print_colour)
    if rng.random() < 0.6:
        painter.frame()
    low = plate.band in ("top", "word")
    spans, (least, most) = [(top, bottom)], (0.5, 0.72) if low else (0.45, 0.86)
    if len(plate.rows) == 2:
        # The pipeline splits two-line plates at their middle: RectifierSpec.row_spans.
        middle = plate.size_mm[1] * painter.between(0.49, 0.51)
        spans, least, most = [(max(top, 0.03 * bottom), middle), (middle, bottom)], 0.66, 0.88
    for row, (start, end) in zip(plate.rows, spans, strict=True):
        tall = (end - start) * painter.between(least, most)
        y = start + (end - start - tall) * painter.between(0.37, 0.63)
        painter.row(row, left, right, y, tall)
    lay_over(painter.rgb, painter.ink, print_colour)
    return painter.rgb, painter.ink


class _Painter:
    """A plate while it is painted: the sheet in ``rgb``, the coverage of the print in ``ink``."""

    def __init__(self, face: Typeface, size_mm: Point, scale: float, rng: Generator) -> None:
        self.face, self.scale, self.rng = face, scale, rng
        self.width, self.height = size_mm
        self.ink = np.zeros((round(self.height * scale), round(self.width * scale)), np.uint8)
        self.rgb = np.empty((*self.ink.shape, 3), np.uint8)

    def between(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def scenery(self) -> None:
        """Paint a pale picture behind the characters, and small stickers in some corners."""
        fade = np.linspace(0, 1, len(self.rgb))[:, None, None] * self.rng.uniform(-70, 70, 3)
        self.rgb[:] = np.clip(self.rgb + fade, 0, 255)
        scene, colour, share = self.rgb.copy(), self.rgb.mean((0, 1)), self.between(0.2, 0.7)
        for _ in range(self.rng.integers(5)):
            x, y, radius = self.rng.random(3) * (self.width, self.height, 0.5 * self.height)
            self.dot(scene, x, y, radius, colour + self.rng.normal(0, 70, 3))
        cv2.addWeighted(scene, share, self.rgb, 1 - share, 0, self.rgb)
        wide, high = 0.1 * self.width, 0.14 * self.height
        for x, y in product((0.02 * self.width, 0.88 * self.width), (0.3 * high, 5.8 * high)):
            if self.rng.random() < 0.25:
                self.fill(self.rgb, (x, y, x + wide, y + high), self.rng.uniform(0, 255, 3))

    def adorn(self, band: str | None, colour: RGB) -> Box:
        """Paint bands at the sides or the top, or words; returns the box left for the rows."""
        left, top, right, bottom = 0.0, 0.0, self.width, self.height
        sides = {"left": 0.2, "top": 0.5, "word": 0.6, "none": 1.0}
        side = sides.get(band or "", self.rng.random())
        if side < 0.4:
            left = self.band(0.0, colour)
            right -= self.band(right, colour) if side < 0.08 else 0.0
        elif side < 0.72:
            x, tall = self.width * self.between(0.4, 0.6), bottom * self.between(0.1, 0.16)
            above, below, kind = 0.05 * bottom, 0.95 * bottom - tall, self.rng.random()
            if side < 0.55:
                ground = _BAND if self.rng.random() < 0.7 else colour
                self.fill(self.rgb, (0, 0, right, 1.4 * tall), ground)
                x, top, colour, starts = right / 2, 1.4 * tall, _WHITE, [0.15 * tall]
            else:
                starts = [above] if kind < 0.45 else [below] if kind < 0.7 else [above, below]
                top = above + tall if above in starts else top
                bottom = below if below in starts else bottom
            for y in starts:
                word = pick(_TABLES["words"], self.rng)
                self.write(word, x, y, tall, 1.8 * min(x, self.width - x), colour)
        return left, top, right, bottom

    def band(self, edge: float, ink: RGB) -> float:
        """Paint a band with stars or arms, and letters, along a side; returns its width."""
        wide = self.between(0.30, 0.44) * min(self.height, 130)
        x = abs(edge - wide / 2)
        if self.rng.random() < 0.25:
            self.coat_of_arms(x, 0.3 * self.height, 0.4 * wide)
        else:
            ink = _WHITE
            colour = np.clip(np.array(_BAND) + self.rng.normal(0, 15, 3), 0, 255)
            self.fill(self.rgb, (x - wide / 2, 0, x + wide / 2, self.height), colour)
            stars = 12 if self.rng.random() < 0.75 else 0
            for angle in np.linspace(0, 2 * np.pi, stars, endpoint=False):
                off_x, off_y = 0.3 * wide * np.cos(angle), 0.3 * wide * np.sin(angle)
                self.dot(self.rgb, x + off_x, 0.3 * self.height + off_y, 0.05 * wide, _STAR)
        letters = "".join(_character("L", self.rng) for _ in range(self.rng.integers(1, 4)))
        tall = min(0.24 * self.height, 0.5 * wide)
        self.write(letters, x, 0.66 * self.height, tall, 0.85 * wide, ink)
        return wide

    def write(self, text: str, x: float, y: float, tall: float, room: float, colour: RGB) -> None:
        """Write a small text, centred on x, with its top at y."""
        masks = [draw_glyph(self.face, char, 0) for char in text if char != " "]
        glyphs = np.hstack([mask[:, PAD_PX // 2 : -PAD_PX // 2] for mask in masks])
        unit, cover = tall / CAPITALS_PX, np.zeros_like(self.ink)
        wide, high = min(glyphs.shape[1] * unit, room), glyphs.shape[0] * unit
        self.stamp(cover, glyphs, x, y - PAD_PX * unit, wide, high)
        lay_over(self.rgb, cover, colour)

    def row(self, row: str, x0: float, x1: float, top: float, tall: float) -> None:
        """Print a row of characters, with dashes, seals or dots in its gaps."""
        rng, side = self.rng, (x1 - x0) * self.between(0.02, 0.06)
        unit, stretch = tall / CAPITALS_PX, self.between(0.75, 1.25)
        bolder = int(rng.choice((-3, -1, 0, 0, 2, 4)))
        shapes = {char: char for char in row if char != " "}
        for digit, letter in ("0O", "1I"):
            if rng.random() < _SAME_SHAPE_SHARE and digit in shapes:
                shapes[digit] = letter
        masks = {char: draw_glyph(self.face, shape, bolder) for char, shape in shapes.items()}
        widths = {
            char: max(mask.shape[1] - 2 * PAD_PX, 0.12 * CAPITALS_PX) * unit * stretch
            for char, mask in masks.items()
        }
        if rng.random() < 0.35:
            widths = dict.fromkeys(widths, max(widths.values()))
        mark = rng.random()
        sealed = _DASHED <= mark < _SEALED
        between = tall * self.between(0.08, 0.24)
        widths[" "] = tall * self.between(0.35 if sealed else 0.1, 0.75)
        total = sum(widths[char] + between for char in row) - between
        room = x1 - x0 - 2 * side
        fit = room / total
        if fit > 1:
            fit = self.between(1, min(fit, 1.45))
        # Characters that would have to be narrower than this share become lower instead.
        rise = min(1.0, fit / 0.6)
        top, tall = top + (1 - rise) * tall / 2, rise * tall
        x = x0 + side + (room - total * fit) * self.between(0.3, 0.7)
        dots = 0.9 if self.width < 4 * self.height else 0.8
        for char in row:
            step = widths[char] * fit
            middle = x + step / 2
            if char != " ":
                high, wide = np.array(masks[char].shape) * unit * (rise, stretch * fit)
                off_x, off_y = rng.normal(0, 0.6 * unit, 2) - (0, PAD_PX * unit * rise)
                self.stamp(self.ink, masks[char], middle + off_x, top + off_y, wide, high)
            elif mark < _DASHED:
                thick = tall * self.between(0.06, 0.13)
                long = thick if rng.random() < 0.5 else min(step, 0.35 * tall)
                y = top + (tall - thick) / 2
                self.fill(self.ink, (middle - long / 2, y, middle + long / 2, y + thick), 255)
            elif mark < 0.45:
                radius = min(0.48 * step, tall * self.between(0.16, 0.32))
                self.seal(middle, top + tall * self.between(0.25, 0.75), radius)
            elif mark < _SEALED:  # two seals, one above the other, often with a dash between
                radius = min(0.48 * step, tall * self.between(0.16, 0.27))
                for share in (0.22, 0.78):
                    self.seal(middle, top + share * tall, radius)
                if rng.random() < 0.5:
                    thick = 0.035 * tall
                    y = top + tall / 2
                    dash = middle - radius, y - thick, middle + radius, y + thick
                    self.fill(self.ink, dash, 255)
            elif mark < dots:  # in the characters' colour
                radius = min(0.45 * step, tall * self.between(0.08, 0.24))
                self.dot(self.ink, middle, top + tall / 2, radius, 255)
            x += step + between * fit

    def seal(self, x: float, y: float, radius: float) -> None:
        colour = pick(_TABLES["seals"], self.rng) + self.rng.normal(0, 20, 3)
        self.dot(self.rgb, x, y, radius, colour)
        if self.rng.random() < 0.6:
            inner = radius * self.between(0.4, 0.8)
            self.dot(self.rgb, x, y, inner, colour + self.rng.normal(0, 70, 3))
        # Print on a seal is too small to read; the recognizer must learn to ignore it.
        tone = np.clip(colour + self.rng.normal(0, 110, 3), 0, 255).tolist()
        ends = (x, y) + radius * self.rng.uniform(-0.6, 0.6, (self.rng.integers(0, 7), 2, 2))
        for start, end in np.rint(ends * self.scale * 16).astype(int).tolist():
            thick = max(1, round(0.15 * radius * self.scale))
            cv2.line(self.rgb, start, end, tone, thick, cv2.LINE_AA, 4)

    def coat_of_arms(self, x: float, y: float, half: float) -> None:
        corners = np.array(((-0.8, -1), (0.8, -1), (0.8, 0.2), (0, 1.1), (-0.8, 0.2)))
        for share in (1.0, 0.55):
            tone = pick(_TABLES["seals"], self.rng)
            points = np.rint((corners * half * share + (x, y)) * self.scale * 16).astype(np.int32)
            cv2.fillPoly(self.rgb, [points], tone, cv2.LINE_AA, 4)

    def frame(self) -> None:
        inset, radius = self.between(0, 5) * self.scale, self.between(2, 10) * self.scale
        thick = max(1.0, self.between(1.5, 4) * self.scale)
        size_wh = self.ink.shape[1], self.ink.shape[0]
        outer = rounded_box(size_wh, inset, radius)
        np.maximum(self.ink, outer - rounded_box(size_wh, inset + thick, radius), out=self.ink)

    def dot(
        self, picture: Image, x: float, y: float, radius: float, colour: RGB | Floats | int
    ) -> None:
        place = round(x * self.scale * 16), round(y * self.scale * 16)
        tone = np.atleast_1d(np.clip(colour, 0, 255)).tolist()
        size = max(4, round(radius * self.scale * 16))
        cv2.circle(picture, place, size, tone, -1, cv2.LINE_AA, 4)

    def fill(self, picture: Image, box: Box, colour: RGB | Floats | int) -> None:
        x0, y0, x1, y1 = (round(value * self.scale) for value in box)
        picture[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] = colour

    def stamp(self, cover: Mask, mask: Mask, x: float, y: float, wide: float, high: float) -> None:
        """Draw a mask, scaled to this size in mm, into a coverage: centred on x, its top at y."""
        size = max(1, round(wide * self.scale)), max(1, round(high * self.scale))
        small = np.asarray(cv2.resize(mask, size, interpolation=cv2.INTER_AREA), np.uint8)
        stamp(cover, small, x * self.scale, y * self.scale)


@cache
def fonts_in(folder: Path) -> tuple[Path, ...]:
    """The font files in a folder, sorted; raises FileNotFoundError if there are none."""
    found = {path for pattern in _FILES for path in folder.glob(pattern)}
    if not found:
        raise FileNotFoundError(
            f"{folder}: expected typefaces (.ttf, .otf or fontsource's .woff) to render plates "
            "with, found none; `make fonts` fetches free ones"
        )
    return tuple(sorted(found))


def make_up(rng: Generator) -> BlockLetters:
    """Generate a random typeface."""
    width = rng.uniform(0.32, 0.62)
    pen = min(width * rng.uniform(0.2, 0.42), _WIDEST_PEN)
    rounding = rng.choice((0.08, 0.2, 0.35)) * rng.uniform(0.6, 1.4)
    return BlockLetters(width, pen, rounding, rng.random() < 0.7, int(rng.integers(12)))


@lru_cache(maxsize=4096)
def draw_glyph(face: Typeface, char: str, bolder_px: int) -> Mask:
    """(H, W) uint8 coverage of a character, its baseline ``PAD_PX`` above the lower edge.

    A font's strokes get bolder by ``bolder_px`` on each side, or thinner if it is negative; those
    of block letters keep their pen's width.
    """
    if isinstance(face, BlockLetters):
        mask = _draw_block(face, char)
    else:
        mask = _draw_font(face, char)
        side = 2 * abs(bolder_px) + 1
        kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
        mask = np.asarray((cv2.dilate if bolder_px > 0 else cv2.erode)(mask, kernel), np.uint8)
    mask.setflags(write=False)
    return mask


@cache
def _font(path: Path) -> ImageFont.FreeTypeFont:
    """A font in the size at which capitals are ``CAPITALS_PX`` high."""
    _, top, _, _ = ImageFont.truetype(str(path), CAPITALS_PX).getbbox("H", anchor="ls")
    return ImageFont.truetype(str(path), round(CAPITALS_PX * CAPITALS_PX / max(-top, 1)))


def _draw_font(path: Path, char: str) -> Mask:
    font = _font(path)
    left, top, right, below = font.getbbox(char, anchor="ls")
    # Round letters reach a little below the baseline; J and Q reach far below it in many typefaces.
    # These are squeezed, because all characters of a plate have the same height.
    tall = CAPITALS_PX + (round(below) if below > PAD_PX / 2 else 0)
    size_wh = round(right - left) + 2 * PAD_PX, tall + 2 * PAD_PX
    picture, foot = Pictures.new("L", size_wh), (PAD_PX - left, PAD_PX + CAPITALS_PX)
    ImageDraw.Draw(picture).text(foot, char, 255, font, anchor="ls")
    mask = np.array(picture)
    if tall > CAPITALS_PX:
        inner, inner_wh = mask[foot[1] + round(top) : -PAD_PX], (size_wh[0], CAPITALS_PX)
        inner = cv2.resize(inner, inner_wh, interpolation=cv2.INTER_AREA)
        mask = np.pad(inner, ((PAD_PX, PAD_PX), (0, 0)))
    return mask


def _draw_block(face: BlockLetters, char: str) -> Mask:
    shapes = _TABLES["shapes"][char]
    strokes = [np.array(stroke, np.float64) for stroke in shapes[face.shape % len(shapes)]]
    pen = face.pen * CAPITALS_PX
    scale = np.array([face.width * CAPITALS_PX, CAPITALS_PX - pen])
    width = max(float(stroke[:, 0].max()) for stroke in strokes) * scale[0] + pen
    mask = np.zeros((CAPITALS_PX + 2 * PAD_PX, round(width) + 2 * PAD_PX), np.uint8)
    for stroke in strokes:
        points = _rounded(stroke * scale, face.rounding * CAPITALS_PX)
        for end, beside in ((0, 1), (-1, -2)) if face.square else ():
            along = points[end] - points[beside]
            longer = points[end] + 0.5 * pen * along / max(float(np.hypot(*along)), 1e-6)
            # The loop over the rims below clips strokes to the character's box.
            if (longer < -1).any() or longer[0] > width - pen + 1 or longer[1] > scale[1] + 1:
                points[end] = longer
        places = np.rint((points + pen / 2 + PAD_PX) * 16).astype(np.int32)
        cv2.polylines(mask, [places], False, [255.0], round(pen), cv2.LINE_AA, 4)
    for rim in (mask[:PAD_PX], mask[-PAD_PX:], mask[:, :PAD_PX], mask[:, -PAD_PX:]):
        rim[:] = 0
    return mask


def _rounded(points: Floats, radius: float) -> Floats:
    """Round the corners of a polyline (N, 2)."""
    t = np.linspace(0, 1, 8)[:, None]
    line = [points[:1].copy()]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        ends = []
        for other in (before, after):
            along = other - corner
            length = max(float(np.hypot(*along)), 1e-6)
            ends.append(corner + along * min(radius, length / 2) / length)
        first, last = ends
        line.append((1 - t) ** 2 * first + 2 * t * (1 - t) * corner + t**2 * last)
    return np.concatenate((*line, points[-1:]))
