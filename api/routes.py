"""The gateway's routes. Each is thin: the work is in uploads, triton and answers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api.answers import answer_from
from api.errors import PROBLEM_PATH, InvalidParameter, Overloaded, kinds, photo_problem
from api.metrics import CONTENT_TYPE, Metrics
from api.readiness import Readiness, Recognizer
from api.schemas import PlateFilter, PlatesAnswer, ProblemDocument
from api.settings import Settings
from api.uploads import FIELD, UploadMemory, read_upload
from plate_models.images import ImageError, check_header
from plate_models.spec import Limits

router = APIRouter()

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


@dataclass
class Services:
    """What the routes share for the life of the application."""

    settings: Settings
    recognizer: Recognizer
    readiness: Readiness
    metrics: Metrics
    upload_memory: UploadMemory
    in_flight: int = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take one of the places for photos.

        Raises:
            Overloaded: All are taken.
        """
        if self.in_flight >= self.settings.max_in_flight:
            raise Overloaded("Too many photos at once. Try again shortly.")
        self.in_flight += 1
        self.metrics.in_flight.set(self.in_flight)
        try:
            yield
        finally:
            self.in_flight -= 1
            self.metrics.in_flight.set(self.in_flight)


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


ServicesOfApp = Annotated[Services, Depends(_services)]


@router.post(
    "/v1/plates",
    response_model=PlatesAnswer,
    responses=_PROBLEMS,
    openapi_extra={"requestBody": _BODY},
    summary="Read the plates in a photo",
    tags=["plates"],
)
async def read_plates(
    request: Request, parameters: Annotated[PlateFilter, Query()], services: ServicesOfApp
) -> PlatesAnswer:
    """Find and read every licence plate in a photo.

    Send the photo as the form field `image`, or as the body with an `image/*` type. JPEG,
    PNG, WebP, BMP, TIFF and GIF are read, up to 20 MB and 64 megapixels. No plates is an
    answer: an empty list.
    """
    with services.upload_memory.share() as take:
        upload = await read_upload(request, services.settings, take)
        start = time.perf_counter()
        # Not before: whoever sends slowly must not keep the others from being read.
        with services.place():
            wanted = _merged(parameters, upload.fields)
            await run_in_threadpool(_check, upload.photo, services.settings.limits)
            with services.metrics.recognition_seconds.time():
                recognition = await services.recognizer.recognize(upload.photo)
        answer = answer_from(recognition, wanted, (time.perf_counter() - start) * 1000)
    services.readiness.note_read(recognition)
    services.metrics.plates_per_photo.observe(len(recognition.texts))
    services.metrics.unreadable.inc(recognition.texts.count(""))
    return answer


def _merged(parameters: PlateFilter, fields: dict[str, str]) -> PlateFilter:
    given = parameters.model_dump(exclude_none=True) | fields
    try:
        return PlateFilter.model_validate(given)
    except ValidationError as error:
        raise invalid_parameters(error.errors()) from error


def invalid_parameters(errors: list[Any]) -> InvalidParameter:
    """Name each parameter that is wrong.

    Args:
        errors: As pydantic lists them: `loc`, `msg`, `type`.

    Returns:
        The problem, with a list `errors` of parameter and detail.
    """
    found = []
    for error in errors:
        name = str(error["loc"][-1])
        unknown = error["type"] == "extra_forbidden"
        detail = "There is no such parameter" if unknown else error["msg"]
        found.append({"parameter": name, "detail": detail.removeprefix("Value error, ")})
    text = "; ".join(f"{item['parameter']}: {item['detail']}" for item in found)
    return InvalidParameter(f"{text}.", errors=found)


def _check(photo: bytes, limits: Limits) -> None:
    try:
        check_header(photo, limits)
    except ImageError as error:
        raise photo_problem(error) from error


@router.get("/healthz", tags=["operation"])
async def healthz() -> dict[str, str]:
    """Answer as long as the gateway itself runs, whatever Triton does."""
    return {"status": "alive"}


@router.get("/readyz", tags=["operation"], responses={503: {"description": "Not ready"}})
async def readyz(services: ServicesOfApp) -> JSONResponse:
    """Answer 200 if a photo with a plate was read lately, or if a small one is read now."""
    reason = await services.readiness.reason_not_ready()
    if reason is None:
        return JSONResponse({"status": "ready"})
    raise HTTPException(503, reason, headers={"Retry-After": "2"})


@router.get("/metrics", tags=["operation"])
async def metrics(services: ServicesOfApp) -> Response:
    """Prometheus metrics."""
    return Response(services.metrics.exposition(), media_type=CONTENT_TYPE)


@router.get(PROBLEM_PATH + "{slug}", tags=["operation"])
async def problem(slug: str) -> dict[str, Any]:
    """Explain a problem's type."""
    for kind in kinds():
        if kind.slug == slug:
            return {"title": kind.title, "status": kind.status, "detail": kind.__doc__}
    raise HTTPException(404, f"There is no problem type {slug}.")


@router.get("/", include_in_schema=False)
async def index() -> HTMLResponse:
    """Say where everything is."""
    return HTMLResponse(_INDEX)


_INDEX = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Licence plates</title>
<h1>Licence plates</h1>
<p>POST a photo to <code>/v1/plates</code>:
<pre>curl -F image=@photo.jpg http://localhost:8080/v1/plates</pre>
<ul><li><a href="docs">Documentation</a> <li><a href="openapi.json">OpenAPI</a>
<li><a href="readyz">Ready?</a> <li><a href="metrics">Metrics</a></ul>
</html>
"""
