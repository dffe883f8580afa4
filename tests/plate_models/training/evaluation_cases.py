"""What the tests of the scoreboard share: plates with a fate, and a small labelled set."""

import numpy as np

from plate_models.training.evaluation.results import Answer, PlateResult

BOX = (10.0, 20.0, 110.0, 45.0)


def answer(text: str, guess: str = "", iou: float = 0.9, photo: str = "a.jpg") -> Answer:
    """An answer; one that is held back has a guess and no text."""
    crop = np.zeros((48, 188, 3), np.uint8)
    return Answer(photo, BOX, text, guess or text, 0.9, "ru.car", 1, 0.8, iou, crop)


def plate(
    text: str,
    label: str,
    *answers: Answer,
    photo: str = "a.jpg",
    width: float = 100.0,
    light: str = "day",
    legible: bool = True,
    lines: int = 1,
) -> PlateResult:
    """A labelled plate, what is read in its label, and the answers on it."""
    box = (10.0, 20.0, 10.0 + width, 45.0)
    return PlateResult(photo, box, text, light, legible, lines, answer(label), answers)
