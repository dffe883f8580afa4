"""The native routes: read the plates of a photo, or blur them, and read batches of photos."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from api import answers
from api.dependencies import ContextOfRequest, ServicesOfApp
from api.documentation import PROBLEMS, body_of, file_field
from api.edge.problems import document_of
from api.errors import Problem, RecognizerProblem, problem_json
from api.parameters import PlateFilter, PlatesParameters
from api.redaction import redact
from api.uploads.multipart import Part
from api.uploads.receiving import COPIES_AT_TRITON, UploadForm

router = APIRouter(tags=["plates"])

_FORM = UploadForm(("image",))
_COUNT_HEADER = "X-Plates-Redacted"
_REDACTED: dict[str, Any] = {
    "description": "The plates; with `redact` the photo itself",
    "content": {
        "image/jpeg": {"schema": file_field("The photo with blurred plates")},
        "image/png": {"schema": file_field("The same, for a PNG or a photo too large for a JPEG")},
    },
    "headers": {
        _COUNT_HEADER: {
            "description": "With `redact`: how many plates were blurred",
            "schema": {"type": "integer"},
        }
    },
}
_BATCH_FIELDS = ("image", "images")
_BATCH_FORM = UploadForm(_BATCH_FIELDS, max_photos=16)
_BATCH_PROPERTIES = {
    "image": {"type": "array", "minItems": 1, "items": file_field("A photo; or in `images`")}
}


@router.post(
    "/v1/plates",
    response_model=answers.PlatesAnswer,
    responses={200: _REDACTED, **PROBLEMS},
    openapi_extra={"requestBody": body_of(_FORM, {"image": file_field("The photo")})},
    summary="Read the plates in a photo",
)
async def read_plates(
    parameters: Annotated[PlatesParameters, Query()],
    services: ServicesOfApp,
    context: ContextOfRequest,
) -> Response:
    """Find and read every licence plate in a photo.

    Send the photo as the form field `image`, or as the body with an `image/*` type. JPEG,
    PNG, WebP, HEIC, BMP, TIFF and GIF are read, by default up to 20 MB and 64 megapixels.
    A photo without plates gets an empty list.
    """
    upload, wanted = await services.received(context, _FORM, parameters)
    reading = await services.reader.read(upload.photo, context, wanted.countries)
    if not wanted.redact:
        answer = answers.answer_from(reading, wanted)
        # Return the model's JSON, as FastAPI would validate the model a second time.
        return Response(answer.model_dump_json(), media_type="application/json")
    work = redact(upload.photo, reading, services.settings.limits, context.deadline.remaining_s)
    content, media_type = await context.cancel_on_disconnect(work)
    context.take(len(content) - (1 + COPIES_AT_TRITON) * len(upload.photo))
    headers = {"Content-Disposition": "inline", _COUNT_HEADER: str(len(reading.plates))}
    return Response(content, media_type=media_type, headers=headers)


@router.post(
    "/v1/plates/batch",
    response_model=answers.BatchAnswer,
    responses=PROBLEMS,
    openapi_extra={"requestBody": body_of(_BATCH_FORM, _BATCH_PROPERTIES)},
    summary="Read the plates in several photos",
)
async def read_batch(
    parameters: Annotated[PlateFilter, Query()], services: ServicesOfApp, context: ContextOfRequest
) -> answers.BatchAnswer | Response:
    """Find and read every licence plate in several photos.

    Send each photo as a form field `image`, by default up to 16 files. The answer has one result
    per photo, in order: its plates, or its problem; a bad file doesn't affect the others.
    `roi`, `min_width` and the deadline apply to all photos.

    The status is 200 if any photo was read, or was refused for a fault of its own. If the service
    failed on every photo, it answers as for a single photo: with 429, 500, 502, 503 or 504, a
    problem document that has the `results` as a further member, and `Retry-After`.
    """
    form = UploadForm(_BATCH_FIELDS, max_photos=services.settings.batch_max_files)
    upload, wanted = await services.received(context, form, parameters)
    services.access.charge(context.request, len(upload.photos))
    # A batch leaves half of the places at Triton to other requests.
    places = asyncio.Semaphore(services.settings.batch_concurrency)
    failed: list[tuple[Problem, dict[str, Any]]] = []  # and their documents

    async def read(photo: Part) -> answers.BatchItem:
        try:
            async with places:
                reading = await services.reader.read(photo.content, context, wanted.countries)
        except Problem as problem:
            document = document_of(problem, context.request_id, services.metrics)
            failed.append((problem, document))
            return answers.RefusedPhoto(
                filename=photo.filename or None,
                status=problem.status,
                problem=answers.ProblemDocument.model_validate(document),
            )
        answer = answers.answer_from(reading, wanted)
        return answers.ReadPhoto(filename=photo.filename or None, answer=answer)

    # Not a task group: no handler here accepts the exception groups that it raises. If the client
    # disconnects, `read` ends for every photo by itself.
    answer = answers.BatchAnswer(results=await asyncio.gather(*map(read, upload.photos)))
    by_service = [pair for pair in failed if isinstance(pair[0], RecognizerProblem)]
    if len(by_service) < len(upload.photos):
        return answer
    # Answer with the problem that has the longest Retry-After; `results` has all problems.
    problem, document = max(by_service, key=lambda pair: int(pair[0].headers.get("Retry-After", 0)))
    context.request.state.refusal = problem.slug  # for the log
    return problem_json(document | answer.model_dump(), problem.headers)
