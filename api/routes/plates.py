"""The native route: one photo in, its plates out."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from api.answers import answer_from
from api.context import ContextOfRequest
from api.errors import kinds
from api.parameters import PlateFilter, merged
from api.schemas import PlatesAnswer, ProblemDocument
from api.services import ServicesOfApp
from api.uploads import FIELD, read_upload

router = APIRouter(tags=["plates"])

# Written out: FastAPI would list a model as application/json besides.
_PROBLEM_SCHEMA = ProblemDocument.model_json_schema()
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "content": {"application/problem+json": {"schema": _PROBLEM_SCHEMA}},
        "description": "; ".join(kind.title for kind in kinds() if kind.status == status),
    }
    for status in sorted({kind.status for kind in kinds()})
}
_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": [FIELD],
                "properties": {
                    FIELD: {"type": "string", "format": "binary", "description": "The photo"},
                    **PlateFilter.model_json_schema()["properties"],
                },
            }
        },
        "image/*": {"schema": {"type": "string", "format": "binary"}},
    },
}


@router.post(
    "/v1/plates",
    response_model=PlatesAnswer,
    responses=_PROBLEMS,
    openapi_extra={"requestBody": _BODY},
    summary="Read the plates in a photo",
)
async def read_plates(
    request: Request,
    parameters: Annotated[PlateFilter, Query()],
    services: ServicesOfApp,
    context: ContextOfRequest,
) -> PlatesAnswer:
    """Find and read every licence plate in a photo.

    Send the photo as the form field `image`, or as the body with an `image/*` type. JPEG,
    PNG, WebP, BMP, TIFF and GIF are read, up to 20 MB and 64 megapixels. No plates is an
    answer: an empty list.
    """
    with services.upload_memory.share() as take:
        upload = await read_upload(request, services.settings, take)
        wanted = merged(parameters, upload.fields)
        reading = await services.reader.read(upload.photo, context)
    return answer_from(reading.recognition, wanted, reading.total_ms)
