"""What the routes share for the life of the application."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from api.observing.metrics import Metrics
from api.readiness import Readiness
from api.redaction import Redactor
from api.settings import Settings
from api.uploads.memory import UploadMemory

if TYPE_CHECKING:  # The reader's own requests know these services.
    from api.reading import PhotoReader


@dataclass
class Services:
    """What the routes share for the life of the application.

    Attributes:
        settings: What the operator set.
        reader: Reads photos; every route that takes one goes through it.
        readiness: Knows whether photos are being read.
        metrics: What /metrics tells.
        upload_memory: Bounds what uploads hold together.
        redactor: Blurs plates, few photos at a time.
        calls: Photos read for clients that want to know how many; see `api.compat`.
    """

    settings: Settings
    reader: "PhotoReader"
    readiness: Readiness
    metrics: Metrics
    upload_memory: UploadMemory
    redactor: Redactor
    calls: int = 0


# async, though nothing is awaited: FastAPI would send a plain function to a thread, which
# costs a refusal an eighth of its time.
async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


ServicesOfApp = Annotated[Services, Depends(_services)]
