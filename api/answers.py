"""The JSON of one plate and of a whole photo, from what the models say."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from api.parameters import PlateFilter
from api.schemas import (
    Box,
    Candidate,
    Character,
    ImageSize,
    ModelInfo,
    Plate,
    PlatesAnswer,
    Point,
    Region,
    Timing,
)
from plate_models import formats

if TYPE_CHECKING:  # `plates read` builds the same JSON without any client.
    from api.triton import Recognition

Quad = tuple[Point, Point, Point, Point]
Scored = Iterable[tuple[str, float]]


def answer_from(recognition: "Recognition", wanted: PlateFilter, total_ms: float) -> PlatesAnswer:
    """Build the answer to one request.

    Args:
        recognition: What the models said.
        wanted: Which plates to keep.
        total_ms: Time since the photo was complete.

    Returns:
        The answer.
    """
    plates = (_plate(recognition, index) for index in range(len(recognition.texts)))
    info = recognition.info
    return PlatesAnswer(
        image=ImageSize(width=info["width"], height=info["height"]),
        plates=[plate for plate in plates if wanted.wants(plate.box)],
        model=ModelInfo(version=info["version"], weights=info["weights"], device=info["device"]),
        timing_ms=Timing(total=round(total_ms, 1)),
    )


def plate_from(
    *,
    text: str,
    score: float,
    format_name: str,
    box: Iterable[float],
    quad: Iterable[Iterable[float]],
    detection_score: float,
    characters: Scored,
    candidates: Scored,
) -> Plate:
    """Build the JSON of one plate.

    Args:
        text: "" if the plate is not readable.
        score: Probability that the best candidate is right.
        format_name: Such as "ru.car".
        box: x0, y0, x1, y1 in pixels of the upright photo.
        quad: Four corners x, y in the same pixels.
        detection_score: The detector's confidence.
        characters: Of the best candidate.
        candidates: Best first; empty texts are left out.

    Returns:
        The plate; coordinates to a tenth of a pixel, scores to four digits.
    """
    region = formats.region_of(text, format_name)
    return Plate(
        text=text,
        text_native=formats.to_native(text, format_name),
        score=_score(score),
        readable=bool(text),
        format=format_name,
        region=Region(code=region.code, name=region.name) if region else None,
        box=cast(Box, _pixels(box)),
        quad=cast(Quad, tuple(map(_pixels, quad))),
        detection_score=_score(detection_score),
        characters=[Character(char=char, score=_score(sure)) for char, sure in characters],
        candidates=[Candidate(text=best, score=_score(sure)) for best, sure in candidates if best],
    )


def _plate(recognition: "Recognition", index: int) -> Plate:
    texts = recognition.candidates[index]
    return plate_from(
        text=recognition.texts[index],
        score=recognition.text_scores[index],
        format_name=recognition.formats[index],
        box=recognition.boxes[index],
        quad=recognition.quads[index],
        detection_score=recognition.detection_scores[index],
        # The scores are those of the best candidate, whether or not it became the text.
        characters=zip(texts[0], recognition.character_scores[index], strict=False),
        candidates=zip(texts, recognition.candidate_scores[index], strict=True),
    )


def _score(value: float) -> float:
    # JSON has no NaN; a candidate without a score is one nobody should rely on.
    return 0.0 if math.isnan(value) else round(float(value), 4)


def _pixels(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(float(value), 1) for value in values)
