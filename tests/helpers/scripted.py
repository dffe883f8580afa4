"""Scripted camera frames and plates: a test gives a plate's text, place, width and certainty."""

import numpy as np
from spelled import log_probs_along

from plate_models.recognition.appearance import GROUNDS
from plate_models.recognition.decoding import Evidence
from plate_models.spec import RECOGNIZER
from plates.cameras.frames import Frame, SeenPlate

ALPHABET, STEPS = RECOGNIZER.alphabet, 48


def seen(text, middle, width=120.0, sure=0.999):
    """A plate centred at `middle`; with `sure` up to 0.9 its text is not readable in this frame."""
    (x, y), height = middle, width / 4.5
    x0, y0, x1, y1 = x - width / 2, y - height / 2, x + width / 2, y + height / 2
    score = sure ** len(text) if sure > 0.9 else sure / 2
    return SeenPlate(
        box=(x0, y0, x1, y1),
        quad=((x0, y0), (x1, y0), (x1, y1), (x0, y1)),
        detection_score=0.9,
        text=text if sure > 0.9 else "",
        score=score,
        candidates=((text, score),),
        log_probs=log_probs_along(f"--{'---'.join(text)}".ljust(STEPS, "-"), sure),
        crop=np.zeros((48, 188, 3), np.uint8),
        evidence=Evidence(1, (0.2,) * len(GROUNDS), 4.5, 0.5),
    )


def frame_at(second):
    return Frame(np.zeros((720, 1280, 3), np.uint8), 1_769_860_800.0 + second, "file", second)
