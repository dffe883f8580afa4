"""Parts of a contact sheet: photo views, rectified plates, letters with the wrong ones marked.

A sheet is a column of strips, each an image of the sheet's width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from plate_models.images import decode
from plate_models.training.evaluation.results import Box, Pixels
from plate_models.training.figures import align

WIDTH = 1240
MARGIN = 24
PAPER, INK, GREY, RULE = (255, 255, 255), (20, 20, 20), (110, 110, 110), (215, 215, 215)
RED, PALE_RED = (200, 0, 0), (255, 215, 215)
LABEL_RGB, FOUND_RGB = (0, 200, 80), (255, 140, 0)
# Of a view's width, what the boxes to be seen take.
_VIEW_SHARE = 0.6
_LETTER_WH = (24, 34)
_COLUMNS, _PITCH = 4, 298
_CELL_VIEW_WH, _CELL_PLATE_WH, _CELL_HEIGHT = (282, 160), (282, 72), 344

Colour = tuple[int, int, int]
# From a photo's name to its pixels, (H, W, 3) uint8 RGB.
LoadPhoto = Callable[[str], Pixels]


@dataclass(frozen=True)
class Cell:
    """One plate of a grid.

    Attributes:
        photo: File name.
        boxes: What is drawn into the view: boxes in the photo's pixels with their colours.
        crop: The rectified plate.
        text: What was read.
        facts: One line about it.
    """

    photo: str
    boxes: Sequence[tuple[Box, Colour]]
    crop: Pixels | None
    text: str
    facts: str


@lru_cache
def font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    """Pillow's own typeface: there on every machine."""
    return ImageFont.load_default(size)


def strip(height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """An empty strip of the sheet's width, and the pen for it."""
    image = Image.new("RGB", (WIDTH, height), PAPER)
    return image, ImageDraw.Draw(image)


def stack(strips: Sequence[Image.Image]) -> Image.Image:
    """Put strips one below the other."""
    sheet = Image.new("RGB", (WIDTH, sum(one.height for one in strips) + MARGIN), PAPER)
    top = 0
    for one in strips:
        sheet.paste(one, (0, top))
        top += one.height
    return sheet


def heading(title: str, lines: Sequence[str]) -> Image.Image:
    """The sheet's or a section's head: a title and what one should know, line by line."""
    image, pen = strip(64 + 22 * len(lines))
    pen.text((MARGIN, 20), title, INK, font(24))
    for number, line in enumerate(lines):
        pen.text((MARGIN, 58 + 22 * number), line, GREY, font(15))
    return image


def view(
    photo: Pixels, size_wh: tuple[int, int], boxes: Sequence[tuple[Box, Colour]]
) -> Image.Image:
    """A part of a photo, as close to its boxes as possible, with the boxes drawn in.

    Args:
        photo: (H, W, 3) uint8 RGB.
        size_wh: Of the view, in pixels.
        boxes: x0, y0, x1, y1 in the photo's pixels, each with its colour; at least one.

    Returns:
        The view; grey where it reaches beyond the photo.
    """
    corners = np.array([box for box, _ in boxes])
    x0, y0 = corners[:, :2].min(axis=0)
    x1, y1 = corners[:, 2:].max(axis=0)
    width, height = size_wh
    scale = _VIEW_SHARE * min(width / max(x1 - x0, 1), height / max(y1 - y0, 1))
    left, top = (x0 + x1) / 2 - width / 2 / scale, (y0 + y1) / 2 - height / 2 / scale
    seen = Image.fromarray(photo).transform(
        size_wh,
        Image.Transform.AFFINE,
        (1 / scale, 0, left, 0, 1 / scale, top),
        Image.Resampling.BICUBIC,
        fillcolor=GREY,
    )
    pen = ImageDraw.Draw(seen)
    for box, colour in boxes:
        on_view = [(side - start) * scale for side, start in zip(box, (left, top) * 2, strict=True)]
        pen.rectangle(on_view, outline=colour, width=2)
    return seen


def rectified(crop: Pixels | None, size_wh: tuple[int, int]) -> Image.Image:
    """A rectified plate, enlarged to a size; a grey field where there is none."""
    if crop is None:
        return Image.new("RGB", size_wh, RULE)
    return Image.fromarray(crop).resize(size_wh, Image.Resampling.BICUBIC)


def letters(
    pen: ImageDraw.ImageDraw, place: tuple[int, int], found: str, right: str | None
) -> None:
    """Write a text in cells, one per character, the wrong ones red.

    Args:
        pen: Draws.
        place: Where the first cell's top left corner lies.
        found: What was read.
        right: What stands there: a missing character is a red bar, one too many is red.
            None marks nothing.
    """
    pairs = align(found, right) if right is not None else [(char, char) for char in found]
    width, height = _LETTER_WH
    x, y = place
    for char, expected in pairs:
        wrong = char != expected
        if wrong:
            pen.rectangle((x, y, x + width - 3, y + height - 2), PALE_RED)
        middle = (x + width / 2 - 1, y + height / 2)
        pen.text(middle, char or "_", RED if wrong else INK, font(26), anchor="mm")
        x += width


def photos_in(folder: Path) -> LoadPhoto:
    """Photos that lie in a folder; a FileNotFoundError for one that is gone."""
    return lambda name: decode((folder / name).read_bytes())


def grid(cells: Sequence[Cell], load: LoadPhoto) -> list[Image.Image]:
    """Plates side by side: the photo around each, the rectified plate, the text, the facts.

    Args:
        cells: The plates.
        load: Gives the photos.

    Returns:
        One strip for each four.
    """
    strips = []
    for start in range(0, len(cells), _COLUMNS):
        image, pen = strip(_CELL_HEIGHT)
        for column, cell in enumerate(cells[start : start + _COLUMNS]):
            x = MARGIN + column * _PITCH
            image.paste(view(load(cell.photo), _CELL_VIEW_WH, cell.boxes), (x, 10))
            image.paste(rectified(cell.crop, _CELL_PLATE_WH), (x, 176))
            letters(pen, (x, 252), cell.text, None)
            pen.text((x, 292), cell.facts, INK, font(14))
            pen.text((x, 311), cell.photo[:40], GREY, font(13))
        strips.append(image)
    return strips
