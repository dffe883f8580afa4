"""The pipeline as the scoreboard runs it: on a photo, or on boxes that are given."""

from collections.abc import Sequence

import torch
from torch import Tensor

from plate_models.evaluation.results import Answer, Box, LogProbs, Pixels
from plate_models.pipeline import Plate, choose_readings, look_at, read_plates
from plate_models.reading import Reading
from plate_models.weights import Modules


def read_photo(image: Tensor, modules: Modules) -> list[Plate]:
    """Find and read every plate of a photo, (H, W, 3) uint8 RGB."""
    with torch.inference_mode():
        return read_plates(image, modules.detect, modules.rectify, modules.recognize)


def read_boxes(
    photo: str, image: Tensor, boxes: Sequence[Box], lines: Sequence[int], modules: Modules
) -> list[Answer]:
    """Read plates whose places are known, without the detector.

    Args:
        photo: File name.
        image: (H, W, 3) uint8 RGB.
        boxes: N boxes x0, y0, x1, y1 in its pixels.
        lines: Their lines of text, 1 or 2.
        modules: The nets.

    Returns:
        N answers with their log-probabilities.
    """
    if not boxes:
        return []
    with torch.inference_mode():
        seen = look_at(
            image, torch.tensor(boxes), torch.tensor(lines), modules.rectify, modules.recognize
        )
    readings = choose_readings(seen, list(lines))
    rows = zip(boxes, readings, seen.shown, seen.log_probs, strict=True)
    return [
        _answer(photo, box, reading, 1.0, 1.0, shown, log_probs)
        for box, reading, shown, log_probs in rows
    ]


def answer_from(photo: str, plate: Plate, iou: float = 0.0) -> Answer:
    """Keep of a plate what the reports need.

    Args:
        photo: File name.
        plate: From the pipeline.
        iou: Overlap with the label it belongs to.
    """
    return _answer(photo, plate.box, plate.reading, plate.detection_score, iou, plate.crop)


def _answer(
    photo: str,
    box: Box,
    reading: Reading,
    detection_score: float,
    iou: float,
    crop: Pixels,
    log_probs: LogProbs | None = None,
) -> Answer:
    return Answer(
        photo=photo,
        box=box,
        text=reading.text,
        guess=reading.candidates[0][0] if reading.candidates else "",
        score=reading.score,
        format=reading.format,
        detection_score=detection_score,
        iou=iou,
        crop=crop,
        log_probs=log_probs,
    )
