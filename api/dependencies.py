"""The routes' dependencies in FastAPI: the application's services, the request's context."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Header, Request

from api.admission import Admission
from api.edge.access import Access
from api.errors import RecognizerUnavailable
from api.observing.metrics import Metrics
from api.parameters import F, merged
from api.readiness import Readiness
from api.reading import PhotoReader
from api.request import Deadline, RequestContext
from api.settings import Settings
from api.uploads.receiving import Upload, UploadForm, UploadMemory, read_upload


@dataclass
class Services:
    """The objects that all routes share, for the lifetime of the application."""

    settings: Settings
    access: Access
    reader: PhotoReader
    readiness: Readiness
    metrics: Metrics
    upload_memory: UploadMemory
    # Photos read for clients of Plate Recognizer, which can query this count.
    calls: int = 0

    async def received(
        self,
        context: RequestContext,
        form: UploadForm,
        parameters: F,
        admission: Admission | None = None,
    ) -> tuple[Upload, F]:
        """Read a request's body; raises `Overloaded` first if its photo can't be read in time.

        The photo waits for a place of `admission`, by default at Triton. Returns the upload and the
        parameters, those in the form overriding those in the query.
        """
        (admission or self.reader.admission).refuse_if_full(context.deadline)
        upload = await read_upload(context, form, self.settings)
        query = context.request.query_params.multi_items()
        return upload, merged(parameters, query, upload.fields)


# async, though it awaits nothing: FastAPI runs plain functions in a thread, which takes an eighth
# of the time of a refusal.
async def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


ServicesOfApp = Annotated[Services, Depends(_services)]
_TimeoutHeader = Annotated[
    float | None,
    Header(
        alias="X-Request-Timeout",
        gt=0,
        allow_inf_nan=False,
        description="Seconds that the client waits for the answer, counted from this request's "
        "head. The service's own limit applies if it is shorter.",
    ),
]


async def _context(
    request: Request, services: ServicesOfApp, timeout_s: _TimeoutHeader = None
) -> AsyncGenerator[RequestContext]:
    limit_s = services.settings.request_timeout_s
    deadline = Deadline(request.state.started + min(timeout_s or limit_s, limit_s))
    context = RequestContext(request, deadline)
    try:
        # Release memory once the answer is sent: the client's next photo may have come already.
        with services.upload_memory.share() as context.take:
            yield context
    except asyncio.CancelledError:
        raise RecognizerUnavailable("The service is stopping. Try again shortly.") from None
    finally:
        await context.close()


ContextOfRequest = Annotated[RequestContext, Depends(_context)]
