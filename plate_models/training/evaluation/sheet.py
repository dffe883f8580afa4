"""Contact sheets for a person: each failure as the photo shows it, and in words."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from plate_models.training.evaluation.scoreboard import Answer, PlateResult, Scoreboard

_COLUMNS = 4
# Cells of each sort.
_MOST = 60
# In pixels: a cell's part of the photo, and the words below it.
_VIEW_WH, _WORDS_HEIGHT, _LINE_HEIGHT = (304, 171), 110, 15
_MARGIN = 6


def failure_sheet(board: Scoreboard, title: str, about: Sequence[str]) -> Image.Image:
    """Draw every failure: the photo, what is right, and what was read.

    After them come boxes where no plate is labelled, those with a readable text first. The title
    names the photos; ``about`` are lines for the sheet's head, such as the weights and the date.
    """
    others = sorted(board.elsewhere, key=lambda answer: (not answer.text, -answer.detection_score))
    counts = Counter(plate.failure for plate in board.failures)
    note = "no plate is there" if board.complete else "plates or not, no label says it"
    head = [
        *(title, *about, ""),
        *(f"{count}  {failure}" for failure, count in counts.items()),
        f"{len(others)}  other boxes: {note}",
        f"Green box: the label. Orange box: what was found. Of a sort, {_MOST} at most are shown.",
    ]
    shown: list[PlateResult | Answer]
    shown = [*board.failures[:_MOST], *others[:_MOST]]
    top = _LINE_HEIGHT * (len(head) + 2)
    width, height = _VIEW_WH[0] + _MARGIN, _VIEW_WH[1] + _WORDS_HEIGHT
    size = _COLUMNS * width + _MARGIN, top + height * -(-len(shown) // _COLUMNS)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    draw.multiline_text((_MARGIN, _MARGIN), "\n".join(head), "black")
    for place, one in enumerate(shown):
        row, column = divmod(place, _COLUMNS)
        x, y = _MARGIN + column * width, top + row * height
        sheet.paste(_view(one, Image.fromarray(board.loads[one.photo]())), (x, y))
        draw.multiline_text((x, y + _VIEW_WH[1]), "\n".join(_words(one)), "black")
    return sheet


def _view(shown: PlateResult | Answer, photo: Image.Image) -> Image.Image:
    """The part of the photo around a failure, or around an answer without a label."""
    if isinstance(shown, PlateResult):
        boxes = [(shown.label.box, "lime"), *((a.box, "orange") for a in shown.answers[:1])]
    else:
        boxes = [(shown.box, "orange")]
    corners = np.array([box for box, _ in boxes]).reshape(-1, 2)
    low, high = corners.min(axis=0), corners.max(axis=0)
    half = max(*((high - low) * (1, 16 / 9)), 1.0) / 1.2 * np.array((1, 9 / 16))
    corner = (low + high) / 2 - half
    view = photo.crop((*corner, *(corner + 2 * half))).resize(_VIEW_WH)
    draw, scale = ImageDraw.Draw(view), _VIEW_WH / (2 * half)
    for box, colour in boxes:
        moved = (np.reshape(box, (2, 2)) - corner) * scale
        draw.rectangle(moved.ravel().tolist(), outline=colour, width=2)
    return view


def _words(shown: PlateResult | Answer) -> list[str]:
    if isinstance(shown, PlateResult):
        box = shown.label.box
        about = f"{box[2] - box[0]:.0f} px wide, {shown.label.light or 'light unknown'}"
        return [*shown.words, about, shown.photo]
    read = shown.text or f"not readable: {shown.guess or '-'}"
    return [read, f"{shown.format}, {shown.score:.3f}", shown.photo]
