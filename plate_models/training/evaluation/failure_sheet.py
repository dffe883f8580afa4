"""The contact sheet of what went wrong on labelled photos, for a person to learn from."""

from collections.abc import Sequence

from PIL import Image, ImageDraw

from plate_models.training.evaluation.results import FAILURES, Answer, PlateResult
from plate_models.training.evaluation.scoreboard import Scoreboard
from plate_models.training.evaluation.sheet import (
    FOUND_RGB,
    GREY,
    INK,
    LABEL_RGB,
    MARGIN,
    RED,
    RULE,
    WIDTH,
    Cell,
    LoadPhoto,
    font,
    grid,
    heading,
    letters,
    rectified,
    stack,
    strip,
    view,
)

_VIEW_WH = (330, 190)
_PLATE_WH = (236, 60)
_PLATES_X, _LETTERS_X, _FACTS_X = 376, 636, 936
_ROW_HEIGHT = 230
# A sheet for people: who sees so many failures has a worse problem than the last one.
_MOST_ROWS = 60


def failure_sheet(board: Scoreboard, load: LoadPhoto, about: Sequence[str]) -> Image.Image:
    """Draw every failure: the photo, the rectified plate, what was read, what is right.

    Args:
        board: The scoreboard.
        load: Gives the photos.
        about: Lines for the sheet's head, such as the weights and the date.

    Returns:
        The sheet, RGB.
    """
    loose = [plate for plate in board.failures if plate.failure == "loose box"]
    failures = [plate for plate in board.failures if plate.failure != "loose box"]
    strips = [_head(board, len(failures), about)]
    strips += [_row(plate, load) for plate in failures[:_MOST_ROWS]]
    if len(failures) > _MOST_ROWS:
        strips.append(heading(f"and {len(failures) - _MOST_ROWS} more", []))
    if loose:
        strips.append(heading(f"Read right, but loosely boxed: {len(loose)}", []))
        strips += grid([_loose_cell(plate) for plate in loose], load)
    if board.unverified:
        note = "No label confirms or refutes these. Is that what stands there?"
        strips.append(heading(f"Readable texts to be checked: {len(board.unverified)}", [note]))
        strips += grid([_unverified_cell(answer) for answer in board.unverified], load)
    return stack(strips)


def _head(board: Scoreboard, failures: int, about: Sequence[str]) -> Image.Image:
    counts = {name: sum(p.failure == name for p in board.failures) for name in FAILURES}
    meanings = [f"{counts[name]}  {name}: {text}" for name, text in FAILURES.items()]
    title = f"Not found or not read right: {failures} of {len(board.plates)} labelled plates"
    legend = (
        "Green box: the label. Orange box: what was found. Red letters are wrong, a red bar is a "
        "missing letter. Held back: too unsure to be given as an answer."
    )
    return heading(title, [*about, "", *meanings, "", legend])


def _loose_cell(plate: PlateResult) -> Cell:
    answer = plate.answers[0]
    boxes = [(plate.box, LABEL_RGB), (answer.box, FOUND_RGB)]
    facts = f"IoU {plate.iou:.2f}, {plate.width:.0f} px wide"
    return Cell(plate.photo, boxes, answer.crop, answer.guess, facts)


def _unverified_cell(answer: Answer) -> Cell:
    why = "labelled as illegible" if answer.iou else "not labelled"
    boxes = [(answer.box, FOUND_RGB)]
    return Cell(answer.photo, boxes, answer.crop, answer.text, f"score {answer.score:.3f}, {why}")


def _row(plate: PlateResult, load: LoadPhoto) -> Image.Image:
    image, pen = strip(_ROW_HEIGHT)
    pen.line((MARGIN, 0, WIDTH - MARGIN, 0), RULE)
    answer = plate.answers[0] if plate.answers else None
    boxes = [(plate.box, LABEL_RGB)]
    boxes += [(answer.box, FOUND_RGB)] if answer else []
    image.paste(view(load(plate.photo), _VIEW_WH, boxes), (MARGIN, 20))
    readings = ((answer, "from the box found"), (plate.in_label, "from the labelled box"))
    pen.text((_PLATES_X, 20), "Rectified: what the recognizer sees", GREY, font(14))
    pen.text((_LETTERS_X, 20), "right", GREY, font(14))
    letters(pen, (_LETTERS_X, 38), plate.text if plate.legible else "?", None)
    for number, (reading, caption) in enumerate(readings, 1):
        _reading(image, pen, reading, caption, plate, 20 + 64 * number)
    _facts(pen, plate, answer)
    return image


def _reading(
    image: Image.Image,
    pen: ImageDraw.ImageDraw,
    answer: Answer | None,
    caption: str,
    plate: PlateResult,
    y: int,
) -> None:
    """One reading of a plate: the rectified plate and the letters read from it."""
    image.paste(rectified(answer.crop if answer else None, _PLATE_WH), (_PLATES_X, y))
    said = "" if answer and answer.text else " (held back)" if answer else ": nothing"
    pen.text((_LETTERS_X, y), caption + said, GREY, font(14))
    if answer:
        letters(pen, (_LETTERS_X, y + 18), answer.guess, plate.text if plate.legible else None)


def _facts(pen: ImageDraw.ImageDraw, plate: PlateResult, answer: Answer | None) -> None:
    pen.text((_FACTS_X, 18), plate.failure.upper(), RED, font(20))
    lines = [
        plate.photo,
        f"{plate.width:.0f} px wide, {plate.light or 'light unknown'}",
        f"{plate.lines} line{'s' * (plate.lines > 1)}, {plate.source or 'unknown source'}",
        f"IoU {plate.iou:.2f} with the label",
    ]
    if answer and answer.lines != plate.lines:
        lines[2] += f", found as {answer.lines}"
    if answer:
        lines.append(f"scores: box {answer.detection_score:.2f}, text {answer.score:.3f}")
        lines.append(f"format {answer.format}")
    for number, line in enumerate(lines):
        pen.text((_FACTS_X, 50 + 22 * number), line, INK, font(15))
