"""What is taken for a plate and is none: signs, lettering, cameras' clocks, windows, vents."""

import re

import cv2
import numpy as np
from numpy.random import Generator
from PIL import Image as Pictures
from PIL import ImageDraw

from plate_models.training.imaging import Floats, Image, Mask, box_corners, carried_font
from plate_models.training.synthetic.plates import PlateImage
from plate_models.training.tables import tables_of

# Pixels of a sheet per pixel of the photo: its details survive the warp.
FINER = 1.5
_MAX_SIDE = 700
# Free fonts (Bitstream Vera's licence) that come with matplotlib.
_FONTS = ("Sans-Bold", "Sans-Bold", "Sans", "SansMono-Bold", "SansMono", "Serif-Bold", "Serif")
_FONT_SIZE = 48
# Patterns of texts, and sounds that make words.
_TABLES = tables_of(__file__)


def draw_clutter(width_px: float, rng: Generator, boards: bool = True) -> PlateImage:
    """Draw something flat that is no plate.

    Args:
        width_px: Of a plate nearby. What is drawn is mostly of such a size, or made of such parts.
        rng: Source of all chance.
        boards: Lettering may stand on a board. One alone could be a plate.

    Returns:
        Its picture, with ``FINER`` pixels to each of the photo, and no lines of text.
    """
    if rng.random() < 0.6:
        rgb, alpha = _draw_sign(width_px * FINER, rng, boards)
    else:
        rgb, alpha = _draw_windows(width_px * FINER, rng)
    rgb, alpha = rgb[:_MAX_SIDE, :_MAX_SIDE], alpha[:_MAX_SIDE, :_MAX_SIDE]
    quad = box_corners(*alpha.shape[::-1]).astype(np.float32)
    return PlateImage(rgb, alpha, quad, lines=0)


def _draw_sign(width: float, rng: Generator, boards: bool) -> tuple[Image, Mask]:
    """Lines of text on a board, without one, or in outlined letters as cameras write them."""
    font = _FONTS[rng.integers(len(_FONTS))]
    rows = [_write(_make_text(rng), font) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    longest = max(rows, key=lambda row: row.shape[1]).shape
    # Short texts stand on small boards, and letters may be narrow.
    inner_w = max(width * float(np.exp(rng.uniform(-0.5, 0.5))), 8)
    row_h = max(inner_w * longest[0] / longest[1] * rng.uniform(0.8, 1.8), 4)
    row_h = min(row_h, width)
    pad_w, pad_h = (round(1 + row_h * share) for share in rng.uniform(0.05, 0.7, 2))
    pitch = row_h * rng.uniform(1.1, 1.6)
    ink = np.zeros((round(pitch * len(rows)) + 2 * pad_h, round(inner_w) + 2 * pad_w), np.uint8)
    for index, row in enumerate(rows):
        w = max(round(inner_w * min(row.shape[1] / longest[1], 1)), 2)
        scaled = cv2.resize(row, (w, round(row_h)), interpolation=cv2.INTER_AREA)
        y, x = pad_h + round(index * pitch), pad_w + (round(inner_w) - w) // 2
        ink[y : y + len(scaled), x : x + w] = scaled
    ground, letters = _draw_colours(rng)
    style, stroke = rng.uniform(0 if boards else 0.5, 1), max(round(0.08 * row_h), 1)
    if style < 0.5 and rng.random() < 0.5:
        inset = int(rng.integers(0, stroke + 1))
        corner = ink.shape[1] - 1 - inset, ink.shape[0] - 1 - inset
        cv2.rectangle(ink, (inset, inset), corner, 255, stroke)
    rgb = (ground + (letters - ground) * (ink[..., None] / 255)).astype(np.uint8)
    if style < 0.5:
        return rgb, np.full_like(ink, 255)
    if style < 0.75:
        return rgb, ink
    return rgb, np.asarray(cv2.dilate(ink, np.ones((2 * stroke + 1,) * 2, np.uint8)), np.uint8)


def _draw_windows(width: float, rng: Generator) -> tuple[Image, Mask]:
    """One pane with bars or slats, or a front of them: windows, shutters, vents, lamps."""
    single = rng.random() < 0.4
    # A front is as wide as a plate, and its windows stand as close as characters.
    columns, rows = (1, 1) if single else (int(n) for n in rng.integers((3, 1), (13, 8)))
    w = max(round(width * float(np.exp(rng.uniform(-0.6, 0.6))) / columns / 1.2), 3)
    h = max(round(w / float(np.exp(rng.uniform(*np.log((1.5, 7) if single else (0.5, 3)))))), 3)
    gaps = np.rint(rng.uniform(0.05, 0.25 if single else 0.6, 2) * min(h, w) / 2).astype(int) + 1
    wall, pane = _draw_colours(rng)
    tile = np.empty((h + 2 * gaps[1], w + 2 * gaps[0], 3), np.float32)
    tile[:] = wall
    glass = np.zeros(tile.shape[:2], np.float32)
    inside = slice(gaps[1], gaps[1] + h), slice(gaps[0], gaps[0] + w)
    glass[inside] = 1
    # Sky or a street is mirrored in panes, and lamps are rounded.
    shade = 1 + rng.normal(0, 0.25) * np.linspace(-1, 1, h, dtype=np.float32)[:, None, None]
    tile[inside] = pane * shade
    bar = rng.uniform(0.3, 1.6) * np.array(wall if rng.random() < 0.5 else pane)
    thick = max(round(min(h, w) * rng.uniform(0.02, 0.08)), 1)
    for axis, most in ((0, 8), (1, 4)):
        count = int(rng.integers(0, most)) if rng.random() < 0.5 else 0
        for place in np.linspace(0, (h, w)[axis], count + 2)[1:-1].astype(int) + gaps[1 - axis]:
            strip = tile[place : place + thick] if axis == 0 else tile[:, place : place + thick]
            strip[:] = bar
    corner = gaps[0] + w - 1, gaps[1] + h - 1
    if rng.random() < 0.6:
        cv2.rectangle(tile, gaps.tolist(), [int(v) for v in corner], bar.tolist(), thick)
    front, panes = np.tile(tile, (rows, columns, 1)), np.tile(glass, (rows, columns))
    gains = np.kron(rng.uniform(0.4, 1.4, (rows, columns)), np.ones(tile.shape[:2])) - 1
    front *= 1 + (panes * gains)[..., None]
    cover = panes if rng.random() < 0.4 else np.ones_like(panes)
    return np.clip(front, 0, 255).astype(np.uint8), (255 * cover).astype(np.uint8)


def _draw_colours(rng: Generator) -> tuple[Floats, Floats]:
    """Two colours, (3,) in [0, 255], of which one is clearly lighter."""
    pair = []
    for low, high in ((10, 110), (150, 255)):
        vivid = rng.uniform(0, 1) if rng.random() < 0.5 else 0.1
        colour = 1 - vivid * rng.random(3)
        pair.append(rng.uniform(low, high) * colour / colour.max())
    return (pair[0], pair[1]) if rng.random() < 0.5 else (pair[1], pair[0])


def _make_text(rng: Generator) -> str:
    patterns = _TABLES["words" if rng.random() < 0.5 else "patterns"]
    pattern = patterns[rng.integers(len(patterns))]
    sounds = _TABLES["sounds"][rng.integers(2)]
    case = (str.upper, str.title, str.lower)[rng.integers(3)]

    def fill(match: re.Match[str]) -> str:
        if match[0] == "#":
            return str(rng.integers(10))
        letters = (sounds[n % 2] for n in range(rng.integers(0, 2), rng.integers(4, 11)))
        return case("".join(sound[rng.integers(len(sound))] for sound in letters))

    return re.sub("[#@]", fill, pattern)


def _write(text: str, font_name: str) -> Mask:
    font = carried_font(f"DejaVu{font_name}.ttf", _FONT_SIZE)
    left, top, right, bottom = (int(side) for side in font.getbbox(text))
    picture = Pictures.new("L", (right - left, bottom - top))
    ImageDraw.Draw(picture).text((-left, -top), text, fill=255, font=font)
    return np.asarray(picture)
