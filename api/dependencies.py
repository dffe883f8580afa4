"""What FastAPI passes to the routes: the application's services and the request's context."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Header, Request

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
    """What the routes share for the life of the application."""

    settings: Settings
    access: Access
    reader: PhotoReader
    readiness: Readiness
    metrics: Metrics
    upload_memory: UploadMemory
    # Photos read for clients of Plate Recognizer, which ask how many.
    calls: int = 0

    async def received(
        self, context: RequestContext, form: UploadForm, parameters: F
    ) -> tuple[Upload, F]:
        """Read a request's body, unless its photo could not be read in time anyway.

        Returns the upload, and the parameters of the address overridden by those of the form.
        """
        self.reader.admission.refuse_if_full(context.deadline)
        upload = await read_upload(context, form, self.settings)
        query = context.request.query_params.multi_items()
        return upload, merged(parameters, query, upload.fields)


# async, though nothing is awaited: FastAPI would send a plain function to a thread, which
# costs a refusal an eighth of its time.
async def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


ServicesOfApp = Annotated[Services, Depends(_services)]
_TimeoutHeader = Annotated[
    float | None,
    Header(
        alias="X-Request-Timeout",
        gt=0,
        allow_inf_nan=False,
        description="For how many seconds the client waits for the answer, counted from this "
        "request's head. The service's own limit holds where it is shorter.",
    ),
]


async def _context(
    request: Request, services: ServicesOfApp, timeout_s: _TimeoutHeader = None
) -> AsyncGenerator[RequestContext]:
    limit_s = services.settings.request_timeout_s
    deadline = Deadline(request.state.started + min(timeout_s or limit_s, limit_s))
    context = RequestContext(request, deadline)
    try:
        # Given back at once when the answer is sent: the client's next photo may be there already.
        with services.upload_memory.share() as context.take:
            yield context
    except asyncio.CancelledError:
        raise RecognizerUnavailable("The service is stopping. Try again shortly.") from None
    finally:
        await context.close()


ContextOfRequest = Annotated[RequestContext, Depends(_context)]
