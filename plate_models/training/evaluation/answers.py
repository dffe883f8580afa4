"""The pipeline as the scoreboard runs it on boxes that are given; what is kept of answers."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from plate_models.engines.nets import Nets
from plate_models.pipeline import Plate, choose_readings, read_regions
from plate_models.recognition.appearance import evidence_of
from plate_models.training.evaluation.grammar import GrammarReport, compare
from plate_models.training.evaluation.results import Answer, Box, LogProbs, PlateResult


def read_boxes(
    photo: str, image: Tensor, boxes: Sequence[Box], lines: Sequence[int], nets: Nets
) -> list[Answer]:
    """Read plates whose places are known, without the detector.

    Args:
        photo: File name.
        image: (H, W, 3) uint8 RGB.
        boxes: N boxes x0, y0, x1, y1 in its pixels.
        lines: Their lines of text, 1 or 2.
        nets: The nets.

    Returns:
        N answers with their log-probabilities.
    """
    if not boxes:
        return []
    places, counts = (torch.tensor(part, device=nets.device) for part in (boxes, lines))
    with torch.inference_mode():
        photo_there = image.to(nets.device)
        seen = read_regions(photo_there, places, counts, nets.rectify, nets.recognize, nets.config)
    readings = choose_readings(seen, list(lines), nets.config)
    rows = zip(boxes, lines, readings, seen.crops, seen.log_probs, strict=True)
    return [
        _answer(Plate(box, (), 1.0, count, reading, shown), photo, 1.0, log_probs)
        for box, count, reading, shown, log_probs in rows
    ]


def weigh_grammar(plates: Iterable[PlateResult], nets: Nets) -> GrammarReport:
    """Tell what the grammar wins and breaks on legible plates, from their labelled boxes.

    Args:
        plates: Results that still have their pixels and log-probabilities.
        nets: The nets they were read with.
    """
    config = nets.config
    cases = []
    for plate in plates:
        seen = plate.in_label
        if plate.legible and seen.log_probs is not None and seen.crop is not None:
            (evidence,) = evidence_of(seen.crop[None], [seen.lines])
            cases.append((seen.log_probs, evidence, plate.text))
    return compare(cases, config.grammar, config.specs.recognizer)


def answer_from(photo: str, plate: Plate, iou: float = 0.0) -> Answer:
    """Keep of a plate what the reports need.

    Args:
        photo: File name.
        plate: From the pipeline.
        iou: Overlap with the label it belongs to.
    """
    return _answer(plate, photo, iou)


def _answer(plate: Plate, photo: str, iou: float, log_probs: LogProbs | None = None) -> Answer:
    reading = plate.reading
    return Answer(
        photo=photo,
        box=plate.box,
        text=reading.text,
        guess=reading.candidates[0][0] if reading.candidates else "",
        score=reading.score,
        format=reading.format,
        lines=plate.lines,
        detection_score=plate.detection_score,
        iou=iou,
        crop=plate.crop,
        log_probs=log_probs,
    )
