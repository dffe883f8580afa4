"""The API of Plate Recognizer Snapshot, which most clients use.

Fields that this service can't fill, such as make, model, colour and type of a vehicle, are left out
or have neutral values.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, Json, field_validator

from api.answers import Plate, PlatesAnswer, answer_from
from api.compat.dialect import LenientQuery, Score, fields_of, whole_pixels
from api.dependencies import ContextOfRequest, ServicesOfApp
from api.documentation import MEANINGS, Responses, body_of
from api.errors import InvalidParameter
from api.uploads.receiving import Upload, UploadForm
from plate_models.formats import available_countries, country_of
from plate_models.spec import MODEL_VERSION

_READER, _INFO, _STATISTICS = "/v1/plate-reader", "/info", "/v1/statistics"
_FORM = UploadForm(
    ("upload",),
    text=True,
    refused={
        "upload_url": "upload_url: no address is ever fetched. Send the photo as a file or in "
        "base64, in the field 'upload'."
    },
)

router = APIRouter(tags=["compatible with Plate Recognizer"])

# Clients subtract `calls` from this limit, so it must be a number, and large.
UNLIMITED = 1_000_000_000
# An example answer, and descriptions of the form's fields, for the OpenAPI document.
_SHOWN: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))


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
    """A candidate text of the plate."""

    score: float
    plate: str


class Vehicle(BaseModel):
    """Neutral: vehicles are not recognised."""

    score: float = 0.0
    type: str = "Unknown"
    box: PixelBox = PixelBox()


class Result(BaseModel):
    """One plate."""

    box: PixelBox
    plate: str = Field(description="Lower case, in Latin letters")
    region: RegionGuess
    score: float = Field(description="Probability that the whole text is right")
    candidates: list[PlateGuess] = Field(description="Best first; the first one is `plate`")
    dscore: float = Field(description="The detection score")
    vehicle: Vehicle = Vehicle()
    # Neutral, but not empty: clients that send `mmc` read the first item of each list.
    model_make: list[dict[str, str | float]] = [
        {"make": "unknown", "model": "unknown", "score": 0.0}
    ]
    color: list[dict[str, str | float]] = [{"color": "unknown", "score": 0.0}]
    orientation: list[dict[str, str | float]] = [{"orientation": "Unknown", "score": 0.0}]


class Usage(BaseModel):
    """Photos read by this API since the service started; there is no limit."""

    calls: int
    max_calls: int = UNLIMITED


class PlateReaderAnswer(BaseModel):
    """The plates of one photo."""

    model_config = ConfigDict(json_schema_extra={"example": _SHOWN["answer"]})

    processing_time: float = Field(description="Milliseconds since the upload was complete")
    results: list[Result]
    filename: str
    version: int
    camera_id: str | None
    timestamp: str
    usage: Usage


class Info(BaseModel):
    """The service's version and usage."""

    version: str
    usage: Usage


class Statistics(BaseModel):
    """The usage, in the form of Plate Recognizer's cloud."""

    total_calls: int = UNLIMITED
    usage: Usage


class EngineConfig(BaseModel):
    """The supported members of `config`; others are ignored."""

    threshold_d: Score = 0.0
    threshold_o: Score = 0.0
    region: object = None  # only "strict" counts; some clients send "False" or "none"
    mode: object = None


class ReaderFields(BaseModel):
    """The form's fields that only Plate Recognizer has."""

    regions: list[str] = []
    camera_id: str | None = None
    timestamp: datetime | None = None
    config: Json[EngineConfig] = EngineConfig()

    @field_validator("timestamp", mode="before")
    @classmethod
    def _parse_timestamp(cls, value: str) -> datetime:
        try:
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"expected ISO 8601 such as 2026-08-19T13:11:25Z, got {value[:40]!r}"
            ) from error

    @field_validator("config", mode="before")
    @classmethod
    def _decode_config(cls, value: str) -> object:
        # The vendor's own script encodes the JSON twice.
        return json.loads(value) if value.startswith('"') else value

    @classmethod
    def of(cls, upload: Upload) -> "ReaderFields":
        """Validate the fields of a form; raises `InvalidParameter` if one is invalid."""
        # Some clients send a list in one field, others repeat the field.
        given = ",".join(value for name, value in upload.fields if name == "regions").lower()
        codes = (code.strip().partition("-")[0] for code in given.split(","))
        return fields_of(cls, dict(upload.fields) | {"regions": list(filter(None, codes))})

    def countries(self, served: Sequence[str]) -> str | None:
        """The served countries ("*": all), those in `regions` first; None if `regions` has none.

        Raises `InvalidParameter` if `regions` names only other countries and is strict.
        """
        known = [code for code in self.regions if code in (served or available_countries())]
        if self.regions and not known and self.config.region == "strict":
            raise InvalidParameter("regions: none is supported, and strict allows no others.")
        return ",".join([*known, *(served or "*")]) if known else None

    def wants(self, plate: Plate) -> bool:
        """Whether a plate's scores are high enough and, if strict, its country is in `regions`."""
        config = self.config
        if plate.detection_score < config.threshold_d:
            return False
        if config.mode == "redaction":  # to cover plates, even unreadable ones
            return True
        if not plate.readable or plate.score < config.threshold_o:
            return False
        # Without "strict" the regions are only a hint.
        strict = config.region == "strict" and self.regions
        return not strict or country_of(plate.format) in self.regions


# Replaces this service's statuses that Plate Recognizer doesn't have.
_STATUSES = {401: 403, 415: 400, 422: 400}


def _detail(description: str, member: str = "detail") -> dict[str, Any]:
    schema = {"type": "object", "properties": {member: {"type": "string"}}, "required": [member]}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_ERRORS: Responses = {
    **{status: _detail(text) for status, text in MEANINGS.items() if status not in _STATUSES},
    413: _detail(MEANINGS[413], "error"),
    # Without a default FastAPI would document its own 422, which never occurs.
    "default": _detail("Any other error"),
}


@router.post(
    _READER + "/",
    # As Plate Recognizer's: some clients may expect exactly this status.
    status_code=201,
    response_model=PlateReaderAnswer,
    responses=_ERRORS,
    openapi_extra={"requestBody": body_of(_FORM, _SHOWN["form"])},
    summary="Read the plates in a photo, as Plate Recognizer Snapshot does",
)
@router.post(_READER, status_code=201, include_in_schema=False)
async def read_plates(
    parameters: LenientQuery, services: ServicesOfApp, context: ContextOfRequest
) -> PlateReaderAnswer:
    """Find and read every licence plate in a photo, for clients of Plate Recognizer.

    Also without the slash at the end. Unreadable plates are left out, except with
    `{"mode": "redaction"}`. `upload_url` is refused: this service fetches no addresses.
    """
    upload, wanted = await services.received(context, _FORM, parameters)
    fields = ReaderFields.of(upload)
    came = fields.timestamp or datetime.now(UTC)
    countries = wanted.countries or fields.countries(services.settings.countries)
    reading = await services.reader.read(upload.photo, context, countries)
    services.calls += 1
    answer = answer_from(reading, wanted)
    return PlateReaderAnswer(
        processing_time=round(reading.total_ms, 3),
        results=[_result(plate, answer) for plate in answer.plates if fields.wants(plate)],
        filename=upload.photos[0].filename or "upload",
        version=1,
        camera_id=fields.camera_id,
        timestamp=came.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        usage=Usage(calls=services.calls),
    )


def _result(plate: Plate, answer: PlatesAnswer) -> Result:
    xmin, ymin, xmax, ymax = whole_pixels(plate, answer)
    country = country_of(plate.format)
    others = [guess for guess in plate.candidates if guess.text != plate.text]
    guesses = [(plate.text, plate.score), *((guess.text, guess.score) for guess in others)]
    return Result(
        box=PixelBox(xmin=xmin, ymin=ymin, xmax=xmax, ymax=ymax),
        plate=plate.text.lower(),
        # If the text is right, so is the country.
        region=RegionGuess(code=country or "unknown", score=plate.score if country else 0.0),
        score=plate.score,
        candidates=[PlateGuess(score=score, plate=text.lower()) for text, score in guesses],
        dscore=plate.detection_score,
    )


@router.get(_INFO + "/", response_model=Info)
@router.get(_INFO, include_in_schema=False)
async def info(services: ServicesOfApp) -> Info:
    """Return version and usage, as the self-hosted Plate Recognizer does."""
    return Info(version=MODEL_VERSION, usage=Usage(calls=services.calls))


@router.get(_STATISTICS + "/", response_model=Statistics)
@router.get(_STATISTICS, include_in_schema=False)
async def statistics(services: ServicesOfApp) -> Statistics:
    """Return the usage, as Plate Recognizer's cloud does."""
    return Statistics(usage=Usage(calls=services.calls))


def error_form(status: int, detail: str) -> tuple[int, dict[str, Any]]:
    """See `api.compat`."""
    status = _STATUSES.get(status, status)
    return status, {"error" if status == 413 else "detail": detail}
