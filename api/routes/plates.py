"""The native routes: one photo in, its plates out, or the photo without them; and batches."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from api import answers
from api.dependencies import ContextOfRequest, ServicesOfApp
from api.documentation import PROBLEMS, body_of, file_field
from api.edge.problems import document_of
from api.errors import Problem, RecognizerProblem, TooManyBytes, problem_json
from api.parameters import PlateFilter, PlatesParameters
from api.redaction import redact
from api.uploads.multipart import Part
from api.uploads.receiving import COPIES_AT_TRITON, UploadForm
from plate_models.images import too_many_bytes_message

router = APIRouter(tags=["plates"])

_FORM = UploadForm(("image",))
_COUNT_HEADER = "X-Plates-Redacted"
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
_BATCH_FIELDS = ("image", "images")
_BATCH_FORM = UploadForm(_BATCH_FIELDS, max_photos=16)
_BATCH_PROPERTIES = {
    "image": {"type": "array", "items": file_field("A photo"), "description": "Or `images`"}
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
    No plates is an answer: an empty list.
    """
    upload, wanted = await services.received(context, _FORM, parameters)
    reading = await services.reader.read(upload.photo, context, wanted.countries)
    if not wanted.redact:
        answer = answers.answer_from(reading, wanted)
        # As it is: FastAPI would validate what was just built a second time.
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

    Send each as a form field `image`, by default up to 16 files. The answer has one result for
    each, in their order: its plates, or what is wrong with it; one bad file doesn't fail the
    others. `roi` and `min_width` hold for all of them, and so does the deadline.

    The status is 200 if any photo was read, or if any was refused for its own fault. If the
    service failed to read each of them, the batch is answered as one photo would be: with 429,
    500, 502, 503 or 504, the problem, its `Retry-After`, and the `results` as a further member.
    """
    form = UploadForm(_BATCH_FIELDS, max_photos=services.settings.batch_max_files)
    upload, wanted = await services.received(context, form, parameters)
    services.access.charge(context.request, len(upload.photos))
    # One batch leaves half of the places to others.
    places = asyncio.Semaphore(services.settings.batch_concurrency)
    failed: list[tuple[Problem, dict[str, Any]]] = []  # with their documents

    async def read(photo: Part) -> answers.BatchItem:
        try:
            async with places:
                if photo.is_too_long:
                    raise TooManyBytes(too_many_bytes_message(services.settings.limits))
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

    tasks = [asyncio.create_task(read(photo)) for photo in upload.photos]
    try:
        # No task group: it raises exception groups, which no handler here takes.
        answer = answers.BatchAnswer(results=await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
    by_service = [pair for pair in failed if isinstance(pair[0], RecognizerProblem)]
    if len(by_service) < len(tasks):
        return answer
    # The problem that asks for the longest wait; all are in `results`.
    problem, document = max(by_service, key=lambda pair: int(pair[0].headers.get("Retry-After", 0)))
    context.request.state.refusal = problem.slug  # for the log
    return problem_json(document | answer.model_dump(), problem.headers)
