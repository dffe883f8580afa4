"""The JSON of /v1/plates."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

EXAMPLE: dict[str, Any] = {
    "image": {"width": 1920, "height": 1080},
    "plates": [
        {
            "text": "B840CK197",
            "text_native": "В840СК197",
            "score": 0.991,
            "readable": True,
            "format": "ru.car",
            "region": {"code": "197", "name": "Moscow"},
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

Point = tuple[float, float]
Box = tuple[float, float, float, float]


class ImageSize(BaseModel):
    """Size of the upright photo in pixels; all coordinates refer to it."""

    width: int
    height: int


class Region(BaseModel):
    """Where the plate was issued."""

    code: str
    name: str


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
    box: Box = Field(description="x0, y0, x1, y1")
    quad: tuple[Point, Point, Point, Point] = Field(
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

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"example": PROBLEM_EXAMPLE},
    )

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
