"""Many photos in one request, one answer for each."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query

from api.answers import answer_from
from api.context import ContextOfRequest, RequestContext
from api.documentation import PROBLEMS, body_of, file_field, form_schema
from api.edge.access import charge
from api.edge.problems import document_of
from api.errors import PhotoTooLarge, Problem
from api.parameters import PlateFilter, merged
from api.schemas import BatchAnswer, BatchItem, ProblemDocument, ReadPhoto, RefusedPhoto
from api.services import Services, ServicesOfApp
from api.uploads.forms import UploadedPhoto, UploadForm
from api.uploads.receiving import read_upload
from plate_models.images import too_many_bytes_message

router = APIRouter(tags=["plates"])

_FIELDS = ("image", "images")
_PROPERTIES: dict[str, Any] = {
    "image": {"type": "array", "items": file_field("A photo"), "description": "Or `images`"}
}
_FORM = UploadForm(_FIELDS, max_photos=16)
_SCHEMA = form_schema("image", _PROPERTIES, PlateFilter)


@router.post(
    "/v1/plates/batch",
    response_model=BatchAnswer,
    responses=PROBLEMS,
    openapi_extra={"requestBody": body_of(_FORM, _SCHEMA)},
    summary="Read the plates in several photos",
)
async def read_batch(
    parameters: Annotated[PlateFilter, Query()],
    services: ServicesOfApp,
    context: ContextOfRequest,
) -> BatchAnswer:
    """Find and read every licence plate in several photos.

    Send each as a form field `image`, up to 16 files. The answer has one result for each,
    in their order: its plates, or what is wrong with it; one bad file doesn't fail the
    others. `roi` and `min_width` hold for all of them, and so does the deadline.
    """
    services.reader.refuse_if_full(context)
    form = UploadForm(_FIELDS, max_photos=services.settings.batch_max_files)
    with services.upload_memory.share() as take:
        upload = await read_upload(context, form, services.settings, take)
        wanted = merged(parameters, upload.last)
        charge(context.request, len(upload.photos))
        # One batch leaves half of the places to others.
        places = asyncio.Semaphore(max(1, services.settings.concurrency // 2))

        async def read(photo: UploadedPhoto) -> BatchItem:
            async with places:
                return await _read(photo, wanted, services, context)

        tasks = [asyncio.create_task(read(photo)) for photo in upload.photos]
        try:
            # No task group: what it raises is a group, in which nobody looks for a sender
            # that is gone.
            return BatchAnswer(results=await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()


async def _read(
    photo: UploadedPhoto, wanted: PlateFilter, services: Services, context: RequestContext
) -> BatchItem:
    try:
        if photo.is_too_long:
            raise PhotoTooLarge(too_many_bytes_message(services.settings.limits))
        reading = await services.reader.read(photo.content, context)
    except Problem as problem:
        document = document_of(problem, context.request_id, services.metrics)
        return RefusedPhoto(
            filename=photo.filename,
            status=problem.status,
            problem=ProblemDocument.model_validate(document),
        )
    answer = answer_from(reading.recognition, wanted, reading.total_ms)
    return ReadPhoto(filename=photo.filename, answer=answer)
