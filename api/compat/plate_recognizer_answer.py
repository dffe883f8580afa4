"""The JSON that clients of Plate Recognizer Snapshot read."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from api.compat.translation import whole_pixels
from api.schemas import Plate, PlatesAnswer

# Clients subtract: it has to be a number, and never to run out.
UNLIMITED = 1_000_000_000
EXAMPLE: dict[str, Any] = {
    "processing_time": 61.204,
    "results": [
        {
            "box": {"xmin": 405, "ymin": 331, "xmax": 476, "ymax": 353},
            "plate": "b840ck197",
            "region": {"code": "ru", "score": 0.991},
            "score": 0.991,
            "candidates": [{"score": 0.991, "plate": "b840ck197"}],
            "dscore": 0.94,
            "vehicle": {
                "score": 0.0,
                "type": "Unknown",
                "box": {"xmin": 0, "ymin": 0, "xmax": 0, "ymax": 0},
            },
        }
    ],
    "filename": "car.jpg",
    "version": 1,
    "camera_id": "gate-1",
    "timestamp": "2026-10-12T16:17:27.574008Z",
    "usage": {"calls": 1, "max_calls": UNLIMITED},
}


class PixelBox(BaseModel):
    """A box in whole pixels of the upright photo."""

    xmin: int = 0
    ymin: int = 0
    xmax: int = 0
    ymax: int = 0


class RegionGuess(BaseModel):
    """The plate's country."""

    code: str = Field(description='Such as "ru"; "unknown" if no format fits the text')
    score: float


class PlateGuess(BaseModel):
    """One way to read the plate."""

    score: float
    plate: str


class Vehicle(BaseModel):
    """Neutral: vehicles are not recognised."""

    score: float = 0.0
    type: str = "Unknown"
    box: PixelBox = PixelBox()


class Result(BaseModel):
    """One plate that was read."""

    box: PixelBox
    plate: str = Field(description="Lower case, in Latin letters")
    region: RegionGuess
    score: float = Field(description="Probability that the whole text is right")
    candidates: list[PlateGuess] = Field(description="Best first, that is `plate`")
    dscore: float = Field(description="How sure it is that this is a plate")
    vehicle: Vehicle = Vehicle()


class Usage(BaseModel):
    """Photos read in this form since the service started; there is no limit."""

    calls: int
    max_calls: int = UNLIMITED


class PlateReaderAnswer(BaseModel):
    """The plates of one photo."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})

    processing_time: float = Field(description="Milliseconds since the photo was complete")
    results: list[Result]
    filename: str
    version: int
    camera_id: str | None
    timestamp: str
    usage: Usage


class Info(BaseModel):
    """What serves here."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"version": "1", "usage": EXAMPLE["usage"]}}
    )

    version: str
    usage: Usage


class Statistics(BaseModel):
    """The same in the words of the original's other route for it."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"total_calls": UNLIMITED, "usage": EXAMPLE["usage"]}}
    )

    total_calls: int = UNLIMITED
    usage: Usage


def result_from(plate: Plate, answer: PlatesAnswer) -> Result:
    """Translate one plate.

    Args:
        plate: A readable plate.
        answer: The answer that it is in.

    Returns:
        The same in this form.
    """
    xmin, ymin, xmax, ymax = whole_pixels(plate, answer)
    country, dot, _ = plate.format.partition(".")
    others = [guess for guess in plate.candidates if guess.text != plate.text]
    guesses = [(plate.text, plate.score), *((guess.text, guess.score) for guess in others)]
    return Result(
        box=PixelBox(xmin=xmin, ymin=ymin, xmax=xmax, ymax=ymax),
        plate=plate.text.lower(),
        # A right text is of the right country.
        region=RegionGuess(code=country, score=plate.score)
        if dot
        else RegionGuess(code="unknown", score=0.0),
        score=plate.score,
        candidates=[PlateGuess(score=score, plate=text.lower()) for text, score in guesses],
        dscore=plate.detection_score,
    )
