"""The recognizer's result, and the JSON that is made of it; no Triton client is needed for it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from api.parameters import Box, PlateFilter
from plate_models import formats

if TYPE_CHECKING:
    from plate_models.recognition.decoding import Reading

Point = tuple[float, float]
Quad = tuple[Point, Point, Point, Point]
Scored = Iterable[tuple[str, float]]

EXAMPLE: dict[str, Any] = {
    "image": {"width": 1920, "height": 1080},
    "plates": [
        {
            "text": "B840CK197",
            "text_native": "В840СК197",
            "score": 0.991,
            "readable": True,
            "format": "ru.car",
            "region": {"code": "197", "name": "Moscow", "country": "ru"},
            "rows": ["B840CK197"],
            "box": [405.1, 331.4, 475.9, 353.0],
            "quad": [[405.9, 333.0], [475.2, 331.6], [475.7, 351.2], [406.3, 352.8]],
            "detection_score": 0.94,
            "characters": [{"char": "B", "score": 0.998}],
            "candidates": [{"text": "B840CK197", "score": 0.991}],
        }
    ],
    "model": {"version": "1", "weights": "sha256:…", "device": "cpu"},
    "timing_ms": {"total": 61.2},
}
PROBLEM_EXAMPLE: dict[str, Any] = {
    "type": "/problems/broken-image",
    "title": "The photo is damaged",
    "status": 422,
    "detail": "The JPEG file is truncated or damaged: it ends before its end-of-image marker.",
    "instance": "/requests/6f1c0a52-6b0e-4a53-8f39-0d7a5c1f2b9e",
}


@dataclass(frozen=True)
class Recognition:
    """The outputs of `plate_recognition` for one photo with N plates; scores are in [0, 1]."""

    boxes: NDArray[np.float32]  # (N, 4), x0 y0 x1 y1 in pixels of the upright photo
    texts: list[str]  # "" where a plate is not readable
    detection_scores: NDArray[np.float32]  # (N,)
    text_scores: NDArray[np.float32]  # (N,)
    quads: NDArray[np.float32]  # (N, 4, 2), corners in the same pixels as the boxes
    character_scores: NDArray[np.float32]  # (N, L), NaN after the text's end
    formats: list[str]
    candidates: list[tuple[str, ...]]  # best first, padded with ""
    candidate_scores: NDArray[np.float32]  # (N, K)
    info: "RecognitionInfo"


class ImageSize(BaseModel):
    """Size of the upright photo in pixels; all coordinates refer to it."""

    width: int
    height: int


class Region(BaseModel):
    """Where the plate was issued."""

    code: str = Field(description='As on the plate; "" if it has none')
    name: str
    country: str = Field(description='ISO 3166 code in lower case, such as "ru"')


class Character(BaseModel):
    """One character with the probability that it is right."""

    char: str
    score: float


class Candidate(BaseModel):
    """One way to read the plate, with the probability that all of it is right."""

    text: str
    score: float


class Plate(BaseModel):
    """One plate of the photo."""

    text: str = Field(description='In Latin letters, without spaces; "" if not readable')
    text_native: str = Field(description="The same in the letters of the plate's country")
    score: float = Field(description="Probability that the whole text is right")
    readable: bool
    format: str = Field(description='Such as "ru.car"; "unknown" if no format fits')
    region: Region | None = Field(description="null if the format has none, or it is unknown")
    rows: list[str] = Field(
        description="As it stands on the plate; of the first candidate if not readable"
    )
    box: Box = Field(description="x0, y0, x1, y1")
    quad: Quad = Field(
        description="Corners: top left, top right, bottom right, bottom left, as one reads it"
    )
    detection_score: float = Field(description="How sure it is that this is a plate")
    characters: list[Character] = Field(
        description="Of the text; of the first candidate if not readable"
    )
    candidates: list[Candidate] = Field(description="Best first, also if not readable")


class ModelInfo(BaseModel):
    """What read the photo."""

    version: str
    weights: str = Field(description="SHA-256 of the manifest of the weight files")
    device: str


class RecognitionInfo(ModelInfo):
    """What `plate_recognition` says of a photo and its reading."""

    image: ImageSize
    timing_ms: dict[str, float] = {}  # by stage; empty if not reported


class Timing(BaseModel):
    """Milliseconds, counted from when the photo had come in completely."""

    total: float


class PlatesAnswer(BaseModel):
    """The plates of one photo, surest detection first."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})

    image: ImageSize
    plates: list[Plate]
    model: ModelInfo
    timing_ms: Timing


class ProblemDocument(BaseModel):
    """What went wrong (RFC 9457)."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"example": PROBLEM_EXAMPLE})

    type: str
    title: str
    status: int
    detail: str
    instance: str = Field(description="/requests/ and the request's id, which the log has, too")


class ReadPhoto(BaseModel):
    """One photo of a batch that was read."""

    filename: str | None = Field(description="As it was sent; null if it was sent without one")
    status: Literal[200] = 200
    answer: PlatesAnswer


class RefusedPhoto(BaseModel):
    """One photo of a batch that was not read."""

    filename: str | None
    status: int = Field(description="What its own request would have been answered with")
    problem: ProblemDocument


BatchItem = ReadPhoto | RefusedPhoto


class BatchAnswer(BaseModel):
    """One result for each photo, in their order."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "results": [
                    {"filename": "a.jpg", "status": 200, "answer": EXAMPLE},
                    {"filename": "b.jpg", "status": 422, "problem": PROBLEM_EXAMPLE},
                ]
            }
        }
    )

    results: list[BatchItem]


def answer_from(recognition: Recognition, wanted: PlateFilter, total_ms: float) -> PlatesAnswer:
    """Build the answer to one photo; `total_ms` counts since it was complete."""
    plates = (_plate(recognition, index) for index in range(len(recognition.texts)))
    return PlatesAnswer(
        image=recognition.info.image,
        plates=[plate for plate in plates if wanted.wants(plate.box)],
        model=recognition.info,
        timing_ms=Timing(total=round(total_ms, 1)),
    )


def answer_of(reading: "Reading", box: Box, quad: Iterable[Point], detection_score: float) -> Plate:
    """Build the JSON of a plate whose text was chosen in this process."""
    return plate_from(
        text=reading.text,
        score=reading.score,
        format_name=reading.format,
        box=box,
        quad=quad,
        detection_score=detection_score,
        characters=reading.characters,
        candidates=reading.candidates,
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
    """Build the JSON of one plate: coordinates to a tenth of a pixel, scores to four digits.

    The arguments are as in `Plate`; candidates without a text are left out.
    """
    guesses = [Candidate(text=best, score=_score(sure)) for best, sure in candidates if best]
    best = text or "".join(guess.text for guess in guesses[:1])
    match = formats.reading_of(best, format_name)
    region = match.region if match and text else None
    country = formats.country_of(format_name)
    return Plate(
        text=text,
        text_native=match.native if match and text else text,
        score=_score(score),
        readable=bool(text),
        format=format_name,
        region=Region(code=region.code, name=region.name, country=country) if region else None,
        rows=list(match.rows) if match else [best] * bool(best),
        box=cast(Box, _pixels(box)),
        quad=cast(Quad, tuple(map(_pixels, quad))),
        detection_score=_score(detection_score),
        characters=[Character(char=char, score=_score(sure)) for char, sure in characters],
        candidates=guesses,
    )


def _plate(recognition: Recognition, index: int) -> Plate:
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
    # JSON has no NaN; a candidate without a score is not to be relied on.
    return 0.0 if math.isnan(value) else round(float(value), 4)


def _pixels(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(float(value), 1) for value in values)
