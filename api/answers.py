"""From the recognizer's arrays to the JSON of /v1/plates."""

import math
from collections.abc import Iterable
from typing import cast

from api.schemas import (
    Box,
    Candidate,
    Character,
    ImageSize,
    ModelInfo,
    Plate,
    PlateFilter,
    PlatesAnswer,
    Point,
    Region,
    Timing,
)
from api.triton import Recognition
from plate_models import formats


def answer_from(recognition: Recognition, wanted: PlateFilter, total_ms: float) -> PlatesAnswer:
    """Build the answer.

    Args:
        recognition: What the models said.
        wanted: Which plates to keep.
        total_ms: Time since the photo was complete.

    Returns:
        The answer; coordinates to a tenth of a pixel, scores to four digits.
    """
    plates = (_plate(recognition, index) for index in range(len(recognition.texts)))
    info = recognition.info
    return PlatesAnswer(
        image=ImageSize(width=info["width"], height=info["height"]),
        plates=[plate for plate in plates if wanted.wants(plate.box)],
        model=ModelInfo(version=info["version"], weights=info["weights"], device=info["device"]),
        timing_ms=Timing(total=round(total_ms, 1)),
    )


def _plate(recognition: Recognition, index: int) -> Plate:
    text = recognition.texts[index]
    pairs = zip(recognition.candidates[index], recognition.candidate_scores[index], strict=True)
    candidates = [Candidate(text=best, score=_score(score)) for best, score in pairs if best]
    # The scores belong to the first candidate, which is the text wherever there is one.
    read = text or (candidates[0].text if candidates else "")
    region = formats.region_of(text)
    return Plate(
        text=text,
        text_native=formats.to_native(text),
        score=_score(recognition.text_scores[index]),
        readable=bool(text),
        format=recognition.formats[index],
        region=Region(code=region.code, name=region.name) if region else None,
        box=cast(Box, _pixels(recognition.boxes[index])),
        quad=cast(
            tuple[Point, Point, Point, Point],
            tuple(_pixels(corner) for corner in recognition.quads[index]),
        ),
        detection_score=_score(recognition.detection_scores[index]),
        characters=[
            Character(char=char, score=_score(score))
            for char, score in zip(read, recognition.character_scores[index], strict=False)
        ],
        candidates=candidates,
    )


def _score(value: float) -> float:
    # JSON has no NaN; a candidate without a score is one nobody should rely on.
    return 0.0 if math.isnan(value) else round(float(value), 4)


def _pixels(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(float(value), 1) for value in values)
