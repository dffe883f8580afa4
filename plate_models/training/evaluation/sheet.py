"""Contact sheets for a person: each failure as the photo shows it, rectified, and in words."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from plate_models.training.evaluation.scoreboard import Answer, PlateResult, Scoreboard
from plate_models.training.imaging import Image

_COLUMNS = 4
# Cells of each sort.
_MOST = 60
# Inches, at 100 pixels each.
_WIDTH, _CELL_HEIGHT, _LINE_HEIGHT = 12.4, 4.0, 0.2
# Heights of a cell's three parts: the photo, the rectified plate, the words.
_PARTS = (16, 7, 13)


def failure_sheet(board: Scoreboard, title: str, about: Sequence[str]) -> Figure:
    """Draw every failure: the photo, the rectified plate, what is right, and what was read.

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
    rows, top = max(1, -(-len(shown) // _COLUMNS)), _LINE_HEIGHT * (len(head) + 2)
    height = top + rows * _CELL_HEIGHT
    figure = Figure(figsize=(_WIDTH, height), dpi=100)
    figure.text(0.02, 1 - _LINE_HEIGHT / height, "\n".join(head), va="top", parse_math=False)
    axes = figure.subplots(3 * rows, _COLUMNS, squeeze=False, height_ratios=_PARTS * rows)
    figure.subplots_adjust(0.02, 0, 0.98, 1 - top / height, wspace=0.05, hspace=0.1)
    for part in axes.flat:
        part.set_axis_off()
    for place, one in enumerate(shown):
        row, column = divmod(place, _COLUMNS)
        _draw(one, board.loads[one.photo](), *axes[3 * row : 3 * row + 3, column])
    return figure


def _draw(shown: PlateResult | Answer, photo: Image, view: Axes, plate: Axes, words: Axes) -> None:
    """Draw a failure, or an answer without a label, into the three parts of its cell."""
    answer: Answer | None
    if isinstance(shown, Answer):
        answer, boxes = shown, []
        lines = ["readable" if shown.text else "not readable"]
    else:
        answer, label = next(iter(shown.answers), None), shown.label
        boxes = [(label.box, "lime")]
        lines = [
            f"{shown.failure}: IoU {shown.iou:.2f}",
            f"{label.box[2] - label.box[0]:.0f} px wide, {label.light or 'light unknown'}",
            f"right         {label.text if label.legible else '?'}",
            f"labelled box  {shown.in_label.guess or '-'}",
        ]
    if answer:
        boxes.append((answer.box, "darkorange"))
        lines += [f"box found     {answer.guess or '-'}", f"{answer.format}, {answer.score:.3f}"]
        if answer.crop is not None:
            plate.imshow(answer.crop, aspect="auto")
    lines.append(shown.photo[:40])
    words.text(0, 1, "\n".join(lines), va="top", size=9, family="monospace", parse_math=False)
    corners = np.array([box for box, _ in boxes]).reshape(-1, 2)
    (left, top), (right, bottom) = corners.min(axis=0), corners.max(axis=0)
    half = max(right - left, 16 / 9 * (bottom - top), 1.0) / 1.2
    x, y = (left + right) / 2, (top + bottom) / 2
    x0, y0 = (max(int(low), 0) for low in (x - half, y - half * 9 / 16))
    seen = photo[y0 : max(int(y + half * 9 / 16), 1), x0 : max(int(x + half), 1)]
    view.imshow(seen, extent=(x0, x0 + seen.shape[1], y0 + seen.shape[0], y0), aspect="auto")
    view.set(xlim=(x - half, x + half), ylim=(y + half * 9 / 16, y - half * 9 / 16))
    for box, colour in boxes:
        size = box[2] - box[0], box[3] - box[1]
        view.add_patch(Rectangle(box[:2], *size, fill=False, edgecolor=colour, linewidth=2))
