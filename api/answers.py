"""The recognizer's result and the JSON answers made of it, independent of Triton's client."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from api.parameters import Box, PlateFilter
from plate_models import formats
from plate_models.recognition.grammar import Reading

Point = tuple[float, float]
Quad = tuple[Point, Point, Point, Point]

# A batch's answer for the OpenAPI document; it contains a photo's answer and a problem.
_EXAMPLE = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_READ, _REFUSED = _EXAMPLE["results"]


class ImageSize(BaseModel):
    """Size of the upright photo in pixels; all coordinates refer to it."""

    width: int
    height: int


class Region(BaseModel):
    """Where the plate was issued."""

    code: str = Field(description='The code on the plate; "" if it has none')
    name: str
    country: str = Field(description='ISO 3166 code in lower case, such as "ru"')


class Character(BaseModel):
    """One character with the probability that it is right."""

    char: str
    score: float


class Candidate(BaseModel):
    """A candidate text of the plate, with the probability that all of it is right."""

    text: str
    score: float


class Plate(BaseModel):
    """One plate of the photo."""

    text: str = Field(description='In Latin letters, without spaces; "" if not readable')
    text_native: str = Field(description="The text in the letters of the plate's country")
    score: float = Field(description="Probability that the whole text is right")
    readable: bool
    format: str = Field(description='Such as "ru.car"; "unknown" if no format fits')
    region: Region | None = Field(description="null if unknown, or if the format has no regions")
    rows: list[str] = Field(
        description="The text's lines; those of the first candidate if not readable"
    )
    box: Box = Field(description="x0, y0, x1, y1")
    quad: Quad = Field(
        description="Corners: top left, top right, bottom right, bottom left of the upright plate"
    )
    detection_score: float = Field(description="How sure the detector is that this is a plate")
    characters: list[Character] = Field(
        description="Those of the text, or of the first candidate if not readable"
    )
    candidates: list[Candidate] = Field(description="Best first, also if not readable")


class ModelInfo(BaseModel):
    """The models that read the photo."""

    version: str
    weights: str = Field(description="SHA-256 of the manifest of the weight files")
    device: str


class RecognitionInfo(ModelInfo):
    """The output of the model `plate_recognition` about a photo as a whole."""

    image: ImageSize
    timing_ms: dict[str, float] = {}  # by stage; empty if Triton reports none


@dataclass
class Recognition:
    """The result for one photo; the times are set after it was read."""

    plates: list[Plate]
    info: RecognitionInfo
    recognition_ms: float = 0.0  # in Triton
    total_ms: float = 0.0  # as `Timing.total`


class Timing(BaseModel):
    """Milliseconds since the upload was complete; in a batch, since the photo's turn."""

    total: float


class PlatesAnswer(BaseModel):
    """The plates of one photo, in descending order of `detection_score`."""

    model_config = ConfigDict(json_schema_extra={"example": _READ["answer"]})

    image: ImageSize
    plates: list[Plate]
    model: ModelInfo
    timing_ms: Timing


class ProblemDocument(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"example": _REFUSED["problem"]})

    type: str
    title: str
    status: int
    detail: str
    instance: str = Field(description="/requests/ and the request's id, which is also in the log")


class ReadPhoto(BaseModel):
    """One photo of a batch that was read."""

    filename: str | None = Field(description="The file's name in the form; null without one")
    status: Literal[200] = 200
    answer: PlatesAnswer


class RefusedPhoto(BaseModel):
    """One photo of a batch that was not read."""

    filename: str | None
    status: int = Field(description="The status of the answer to this photo alone")
    problem: ProblemDocument


BatchItem = ReadPhoto | RefusedPhoto


class BatchAnswer(BaseModel):
    """One result per photo, in the order of the form."""

    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})

    results: list[BatchItem]


def answer_from(recognition: Recognition, wanted: PlateFilter) -> PlatesAnswer:
    """Build the answer to one photo."""
    return PlatesAnswer(
        image=recognition.info.image,
        plates=[plate for plate in recognition.plates if wanted.wants(plate.box)],
        model=recognition.info,
        timing_ms=Timing(total=round(recognition.total_ms, 1)),
    )


def answer_of(
    reading: Reading, box: Iterable[float], quad: Iterable[Iterable[float]], detection_score: float
) -> Plate:
    """Build the JSON of one plate: coordinates to a tenth of a pixel, scores to four digits.

    Box and quad are those of `Plate`. Candidates with an empty text are left out.
    """
    text, candidates = reading.text, reading.candidates
    guesses = [Candidate(text=best, score=_score(sure)) for best, sure in candidates if best]
    best = text or "".join(guess.text for guess in guesses[:1])
    match = formats.reading_of(best, reading.format)
    region = match.region if match and text else None
    country = formats.country_of(reading.format)
    return Plate(
        text=text,
        text_native=match.native if match and text else text,
        score=_score(reading.score),
        readable=bool(text),
        format=reading.format,
        region=Region(code=region.code, name=region.name, country=country) if region else None,
        rows=list(match.rows) if match else [best] * bool(best),
        box=cast(Box, _pixels(box)),
        quad=cast(Quad, tuple(map(_pixels, quad))),
        detection_score=_score(detection_score),
        characters=[Character(char=char, score=_score(sure)) for char, sure in reading.characters],
        candidates=guesses,
    )


def _score(value: float) -> float:
    # JSON has no NaN. Candidates without a score get 0, as they are unreliable.
    return 0.0 if math.isnan(value) else round(float(value), 4)


def _pixels(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(float(value), 1) for value in values)
