"""Contact sheets for a person: photo views, rectified plates, letters with the wrong ones red."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw
from PIL.ImageFont import load_default

from plate_models.training.evaluation.scoreboard import (
    FAILURES,
    Answer,
    Pixels,
    PlateResult,
    Scoreboard,
)
from plate_models.training.figures import align
from plate_models.training.labels import Box

WIDTH = 1240
_MARGIN = 24
_PAPER, _INK, _GREY, _RULE = (255, 255, 255), (20, 20, 20), (110, 110, 110), (215, 215, 215)
_RED, _PALE_RED = (200, 0, 0), (255, 215, 215)
_LABEL_RGB, _FOUND_RGB = (0, 200, 80), (255, 140, 0)
# Of a view's width, what the boxes to be seen take.
_VIEW_SHARE = 0.6
_LETTER_WH = (24, 34)
_COLUMNS = 4
_VIEW_WH, _PLATE_WH, _CELL_WH = (282, 160), (282, 72), (298, 440)
_MOST = 60


def failure_sheet(board: Scoreboard, title: str, about: Sequence[str]) -> Image.Image:
    """Draw every failure: the photo, the rectified plate, what is right, and what was read.

    After them come boxes where no plate is labelled, those with a readable text first. The title
    names the photos; ``about`` are lines for the sheet's head, such as the weights and the date.
    """
    failures = [plate for plate in board.failures if plate.failure != "loose box"]
    loose = [plate for plate in board.failures if plate.failure == "loose box"]
    counts = Counter(plate.failure for plate in board.failures)
    legend = (
        "Green box: the label. Orange box: what was found. Letters: what is right, what was read "
        "from the box found, and from the labelled box; wrong ones are red, a bar is a missing one."
    )
    meanings = [f"{counts[name]}  {name}: {text}" for name, text in FAILURES.items()]
    others = sorted(board.elsewhere, key=lambda answer: (not answer.text, -answer.detection_score))
    unclear = [
        a for plate in board.plates if not plate.label.legible for a in plate.answers if a.text
    ]
    note = "No plate is there." if board.complete else "Is it a plate? No label says so."
    rows = [[_heading(title, [*about, "", *meanings, "", legend])]]
    sections: tuple[tuple[str, Sequence[PlateResult | Answer]], ...] = (
        (f"Not found or not read right: {len(failures)}", failures),
        (f"Read right, but loosely boxed: {len(loose)}", loose),
        (f"Readable, though labelled as illegible: {len(unclear)}", unclear),
        (f"Other boxes: {len(others)}. {note}", others),
    )
    for heading, shown in sections:
        if not shown:
            continue
        more = f", of which {_MOST} are shown" if len(shown) > _MOST else ""
        rows.append([_heading(heading + more)])
        cells = [_draw(one, board.loads[one.photo]()) for one in shown[:_MOST]]
        rows += [cells[start : start + _COLUMNS] for start in range(0, len(cells), _COLUMNS)]
    tops = np.cumsum([0, *(row[0].height for row in rows)]).tolist()
    sheet = Image.new("RGB", (WIDTH, tops[-1] + _MARGIN), _PAPER)
    for top, row in zip(tops, rows, strict=False):
        for column, image in enumerate(row):
            sheet.paste(image, (_MARGIN + column * _CELL_WH[0], top))
    return sheet


def _heading(title: str, lines: Sequence[str] = ()) -> Image.Image:
    image = Image.new("RGB", (WIDTH, 64 + 22 * len(lines)), _PAPER)
    pen = ImageDraw.Draw(image)
    pen.text((0, 20), title, _INK, load_default(24))
    pen.multiline_text((0, 58), "\n".join(lines), _GREY, load_default(14), spacing=8)
    return image


def _draw(shown: PlateResult | Answer, photo: Pixels) -> Image.Image:
    """A cell for a failure, or for an answer without a label: views, texts, facts."""
    answer: Answer | None
    if isinstance(shown, Answer):
        answer, boxes, failure = shown, [], ""
        texts: list[tuple[str, str | None]] = [(shown.guess, None)]
        facts = [f"box {shown.detection_score:.2f}", "readable" if shown.text else "not readable"]
    else:
        answer, label, failure = next(iter(shown.answers), None), shown.label, shown.failure
        boxes, right = [(label.box, _LABEL_RGB)], label.text if label.legible else None
        texts = [(right or "?", None)]
        texts += [(one.guess if one else "", right) for one in (answer, shown.in_label)]
        light = label.light or "light unknown"
        facts = [f"{shown.width:.0f} px wide, {light}, {label.lines} in a plate"]
        facts.append(f"IoU {shown.iou:.2f}")
    image = Image.new("RGB", _CELL_WH, _PAPER)
    pen = ImageDraw.Draw(image)
    if answer:
        facts.append(f"score {answer.score:.3f}, {answer.format}")
        boxes.append((answer.box, _FOUND_RGB))
    image.paste(_view(photo, _VIEW_WH, boxes), (0, 10))
    plate = Image.new("RGB", _PLATE_WH, _RULE)
    if answer and answer.crop is not None:
        plate = Image.fromarray(answer.crop).resize(_PLATE_WH, Image.Resampling.BICUBIC)
    image.paste(plate, (0, 176))
    for number, (found, expected) in enumerate(texts):
        _letters(pen, 252 + 36 * number, found, expected)
    y = 256 + 36 * len(texts)
    pen.text((0, y), failure, _RED, load_default(14))
    lines = "\n".join([*facts, shown.photo[:40]])
    pen.multiline_text((0, y + 19), lines, _INK, load_default(14), spacing=4)
    return image


def _view(
    photo: Pixels, size_wh: tuple[int, int], boxes: Sequence[tuple[Box, tuple[int, int, int]]]
) -> Image.Image:
    """A part of a photo, as close to its boxes as possible, with the boxes drawn in.

    It is grey where it reaches beyond the photo.
    """
    low, high = np.hsplit(np.array([box for box, _ in boxes]), 2)
    (x0, y0), (x1, y1) = low.min(axis=0), high.max(axis=0)
    width, height = size_wh
    scale = _VIEW_SHARE * min(width / max(x1 - x0, 1), height / max(y1 - y0, 1))
    left, top = (x0 + x1) / 2 - width / 2 / scale, (y0 + y1) / 2 - height / 2 / scale
    seen = Image.fromarray(photo).transform(
        size_wh,
        Image.Transform.AFFINE,
        (1 / scale, 0, left, 0, 1 / scale, top),
        Image.Resampling.BICUBIC,
        fillcolor=_GREY,
    )
    pen = ImageDraw.Draw(seen)
    for box, colour in boxes:
        on_view = [(side - start) * scale for side, start in zip(box, (left, top) * 2, strict=True)]
        pen.rectangle(on_view, outline=colour, width=2)
    return seen


def _letters(pen: ImageDraw.ImageDraw, y: int, found: str, right: str | None) -> None:
    """Write a text in cells, one per character; wrong ones are red, a missing one is a bar."""
    pairs = align(found, right) if right is not None else [(char, char) for char in found]
    width, height = _LETTER_WH
    for place, (char, expected) in enumerate(pairs):
        x, wrong = place * width, char != expected
        if wrong:
            pen.rectangle((x, y, x + width - 3, y + height - 2), _PALE_RED)
        middle = (x + width / 2 - 1, y + height / 2)
        pen.text(middle, char or "_", _RED if wrong else _INK, load_default(26), anchor="mm")
