"""The API of CodeProject.AI's ALPR, for clients such as Blue Iris.

A photo without plates is a success with an empty list, as these clients expect. Unlike the
original, errors have a fitting HTTP status, and repeat it in the body.
"""

import json
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from api.answers import Plate, PlatesAnswer, answer_from
from api.compat.dialect import LenientQuery, Score, fields_of, whole_pixels
from api.dependencies import ContextOfRequest, ServicesOfApp
from api.documentation import MEANINGS, Responses, body_of, file_field
from api.uploads.receiving import UploadForm

# Many clients' settings still contain the second, older route.
_ROUTES = ("/v1/vision/alpr", "/v1/image/alpr")
# CodeProject.AI's libraries send `image`; its server accepts a file in any field.
_FORM = UploadForm(("upload", "image"), any_field=True, text=True)

router = APIRouter(tags=["compatible with CodeProject.AI"])

_EXAMPLES = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


class Prediction(BaseModel):
    """A readable plate."""

    confidence: float = Field(description="Probability that the whole text is right")
    label: str
    plate: str
    x_min: int
    y_min: int
    x_max: int
    y_max: int


class AlprAnswer(BaseModel):
    """The plates of one photo."""

    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLES["answer"]})

    success: bool
    processMs: int = Field(description="Milliseconds from upload to answer")  # noqa: N815
    inferenceMs: int = Field(description="Of these, in the recognizer")  # noqa: N815
    count: int
    message: str
    predictions: list[Prediction]


class AlprError(BaseModel):
    """An error."""

    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLES["error"]})

    success: bool
    error: str
    code: int = Field(description="The HTTP status")


_ERRORS: Responses = {
    status: {"model": AlprError, "description": text} for status, text in MEANINGS.items()
}
_PROPERTIES = {
    "upload": file_field("The photo; or its bytes in base64"),
    "min_confidence": {"type": "number", "minimum": 0, "maximum": 1, "example": ""},
}


class AlprFields(BaseModel):
    """The form's fields that only CodeProject.AI has."""

    min_confidence: Score = 0.0


@router.post(
    _ROUTES[0],
    response_model=AlprAnswer,
    responses=_ERRORS,
    openapi_extra={"requestBody": body_of(_FORM, _PROPERTIES)},
    summary="Read the plates in a photo, as CodeProject.AI does",
)
@router.post(_ROUTES[0] + "/", include_in_schema=False)
@router.post(_ROUTES[1], include_in_schema=False)
@router.post(_ROUTES[1] + "/", include_in_schema=False)
async def read_plates(
    parameters: LenientQuery, services: ServicesOfApp, context: ContextOfRequest
) -> AlprAnswer:
    """Find and read every licence plate in a photo, for clients of CodeProject.AI.

    Also at `/v1/image/alpr`. Unreadable plates, and those with a confidence below
    `min_confidence`, are left out. Without plates, the answer is a success with an empty list.
    """
    upload, wanted = await services.received(context, _FORM, parameters)
    min_confidence = fields_of(AlprFields, dict(upload.fields)).min_confidence
    reading = await services.reader.read(upload.photo, context, wanted.countries)
    answer = answer_from(reading, wanted)
    sure = [plate for plate in answer.plates if plate.readable and plate.score >= min_confidence]
    predictions = [_prediction(plate, answer) for plate in sure]
    labels = ", ".join(prediction.label for prediction in predictions)
    return AlprAnswer(
        success=True,
        processMs=round(reading.total_ms),
        inferenceMs=round(reading.recognition_ms),
        count=len(predictions),
        message=f"Found {labels}" if labels else "No plates found",
        predictions=predictions,
    )


def _prediction(plate: Plate, answer: PlatesAnswer) -> Prediction:
    box = dict(zip(("x_min", "y_min", "x_max", "y_max"), whole_pixels(plate, answer), strict=True))
    label = f"Plate: {plate.text}"
    return Prediction(confidence=plate.score, label=label, plate=plate.text, **box)


def error_form(status: int, detail: str) -> tuple[int, dict[str, Any]]:
    """See `api.compat`."""
    return status, AlprError(success=False, error=detail, code=status).model_dump()
