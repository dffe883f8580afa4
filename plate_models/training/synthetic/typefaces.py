"""Typefaces of foreign plates: free fonts from a folder, and block letters made up by chance."""

import os
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import cv2
import numpy as np
from PIL import Image as Pictures
from PIL import ImageDraw, ImageFont

from plate_models.training.imaging import Floats, Mask
from plate_models.training.tables import tables_of

# Typefaces as `make fonts` fetches them, or any others that lie there.
FONTS = Path(os.environ.get("PLATES_FONTS", ".cache/fonts"))
_FILES = ("**/*-latin-[567]00-normal.woff", "**/*.ttf", "**/*.otf")
# Glyphs are drawn with capitals so high and scaled down, with so much room around them.
CAPITALS_PX, PAD_PX = 96, 12
# Of block letters, by character.
_SHAPES = tables_of(__file__)


class FontsMissingError(Exception):
    """There is no typeface to render with; the message says where one was expected."""


@dataclass(frozen=True)
class BlockLetters:
    """A typeface of pen strokes, as plates are stamped; lengths are shares of its height."""

    width: float  # between the middles of a character's outer strokes
    pen: float
    rounding: float  # of corners
    square: bool  # ends of strokes are cut, not round
    shape: int  # of the characters that have several


Typeface = Path | BlockLetters


@cache
def fonts_in(folder: Path) -> tuple[Path, ...]:
    """The fonts in a folder, sorted; a FontsMissingError where there is none."""
    found = {path for pattern in _FILES for path in folder.glob(pattern)}
    if not found:
        raise FontsMissingError(
            f"{folder}: expected typefaces (.ttf, .otf or fontsource's .woff) to render plates "
            "with, found none; `make fonts` fetches free ones"
        )
    return tuple(sorted(found))


def make_up(rng: np.random.Generator) -> BlockLetters:
    """Make up a typeface."""
    width = rng.uniform(0.32, 0.62)
    pen = width * rng.uniform(0.2, 0.36)
    rounding = rng.choice((0.08, 0.2, 0.35)) * rng.uniform(0.6, 1.4)
    return BlockLetters(width, pen, rounding, rng.random() < 0.7, int(rng.integers(12)))


@lru_cache(maxsize=4096)
def draw_glyph(face: Typeface, char: str, bolder_px: int) -> Mask:
    """(H, W) uint8 coverage of a character, its foot ``PAD_PX`` above the lower edge.

    A font's strokes are made bolder on either side, or thinner; made-up ones have their pen.
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
    """A font in the size in which its capitals are ``CAPITALS_PX`` high."""
    font = ImageFont.truetype(str(path), CAPITALS_PX)
    _, top, _, _ = font.getbbox("H", anchor="ls")
    return ImageFont.truetype(str(path), round(CAPITALS_PX * CAPITALS_PX / max(-top, 1)))


def _draw_font(path: Path, char: str) -> Mask:
    font = _font(path)
    left, _, right, _ = font.getbbox(char, anchor="ls")
    size_wh = round(right - left) + 2 * PAD_PX, CAPITALS_PX + 2 * PAD_PX
    picture, foot = Pictures.new("L", size_wh), (PAD_PX - left, PAD_PX + CAPITALS_PX)
    ImageDraw.Draw(picture).text(foot, char, 255, font, anchor="ls")
    return np.array(picture)


def _draw_block(face: BlockLetters, char: str) -> Mask:
    shapes = _SHAPES[char]
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
            # What leaves the character's box is cut at its rim below.
            if (longer < -1).any() or longer[0] > width - pen + 1 or longer[1] > scale[1] + 1:
                points[end] = longer
        places = np.rint((points + pen / 2 + PAD_PX) * 16).astype(np.int32)
        cv2.polylines(mask, [places], False, [255.0], round(pen), cv2.LINE_AA, 4)
    for rim in (mask[:PAD_PX], mask[-PAD_PX:], mask[:, :PAD_PX], mask[:, -PAD_PX:]):
        rim[:] = 0
    return mask


def _rounded(points: Floats, radius: float) -> Floats:
    """Round the inner corners of a line (N, 2)."""
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
