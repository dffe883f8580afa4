"""The native route: one photo in, its plates out; or the photo without them."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from api.answers import answer_from
from api.context import ContextOfRequest
from api.documentation import PROBLEMS, body_of, file_field, form_schema
from api.parameters import PlatesParameters, merged
from api.schemas import PlatesAnswer
from api.services import ServicesOfApp
from api.uploads.forms import UploadForm
from api.uploads.receiving import read_upload

router = APIRouter(tags=["plates"])

_FORM = UploadForm(("image",))
_COUNT_HEADER = "X-Plates-Redacted"

_SCHEMA = form_schema("image", {"image": file_field("The photo")}, PlatesParameters)
_REDACTED: dict[str, Any] = {
    "description": "The plates; with `redact` the photo itself",
    "content": {
        "image/jpeg": {"schema": file_field("The photo without its plates")},
        "image/png": {"schema": file_field("The same, if a PNG came or one too long for a JPEG")},
    },
    "headers": {
        _COUNT_HEADER: {
            "description": "With `redact`: how many plates were blurred",
            "schema": {"type": "integer"},
        }
    },
}


@router.post(
    "/v1/plates",
    response_model=PlatesAnswer,
    responses={200: _REDACTED, **PROBLEMS},
    openapi_extra={"requestBody": body_of(_FORM, _SCHEMA)},
    summary="Read the plates in a photo",
)
async def read_plates(
    parameters: Annotated[PlatesParameters, Query()],
    services: ServicesOfApp,
    context: ContextOfRequest,
) -> Response:
    """Find and read every licence plate in a photo.

    Send the photo as the form field `image`, or as the body with an `image/*` type. JPEG,
    PNG, WebP, BMP, TIFF and GIF are read, up to 20 MB and 64 megapixels. No plates is an
    answer: an empty list.
    """
    services.reader.refuse_if_full(context)
    with services.upload_memory.share() as take:
        upload = await read_upload(context, _FORM, services.settings, take)
        wanted = merged(parameters, upload.last)
        reading = await services.reader.read(upload.photo, context)
        if not wanted.redact:
            answer = answer_from(reading.recognition, wanted, reading.total_ms)
            # As it is: FastAPI would validate what was just built a second time.
            return Response(answer.model_dump_json(), media_type="application/json")
        redacted = await context.sender.unless_gone(
            services.redactor.redact(
                upload.photo,
                reading.recognition.boxes,
                reading.recognition.quads,
                context.deadline.remaining_s,
            )
        )
    headers = {"Content-Disposition": "inline", _COUNT_HEADER: str(redacted.plates)}
    return Response(redacted.content, media_type=redacted.media_type, headers=headers)
