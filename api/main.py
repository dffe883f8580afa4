"""The gateway as an ASGI application; `api.edge.protocol.GatewayConfig` serves it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi_offline import FastAPIOffline

from api import compat
from api.dependencies import Services
from api.documentation import document_tokens
from api.edge.access import Access
from api.edge.middleware import Edge
from api.edge.problems import HANDLERS
from api.observing.metrics import Metrics
from api.readiness import Readiness
from api.reading import PhotoReader
from api.routes import operation, page, plates
from api.settings import Settings
from api.triton import TritonClient
from api.uploads.receiving import UploadMemory
from plate_models.spec import MODEL_VERSION

# Seconds in which requests that the shutdown cancelled can still be answered.
_GOODBYE_S = 0.05


def create_app(settings: Settings, routers: Sequence[APIRouter] = ()) -> FastAPI:
    """Build the gateway, with `routers` besides its own. It starts even if Triton is away."""
    access = Access(settings)
    metrics = Metrics(settings.status_file, settings.triton_status_file)

    @asynccontextmanager
    async def connected(app: FastAPI) -> AsyncGenerator[None]:
        """Connect to Triton and create the routes' shared services, until the shutdown."""
        async with aclosing(TritonClient(settings)) as client:
            readiness = Readiness(client, settings.ready_max_age_s, settings.ready_timeout_s)
            memory = UploadMemory(settings.upload_memory_bytes)
            reader = PhotoReader(settings, client, readiness, metrics)
            app.state.services = Services(settings, access, reader, readiness, metrics, memory)
            yield
            await asyncio.sleep(_GOODBYE_S)

    app = FastAPIOffline(
        title="Licence plates",
        summary="A photo goes in, its licence plates come out.",
        version=MODEL_VERSION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        lifespan=connected,
        dependencies=[Depends(access.admit)],
        # With a redirect, clients would upload a photo twice, to the address in the Host header.
        redirect_slashes=False,
        exception_handlers=HANDLERS,
    )
    app.state.metrics = metrics
    for router in (plates.router, *compat.ROUTERS, operation.router, page.router, *routers):
        app.include_router(router)
    document_tokens(app)
    # The middleware added last is the outermost.
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "Last-Event-ID", "X-Request-Id", "X-Request-Timeout"),
            # Chromium requires this header before a public page may call a local address.
            allow_private_network=True,
            expose_headers=("Retry-After", "X-Plates-Redacted", "X-Request-Id"),
        )
    app.add_middleware(Edge, settings=settings, metrics=metrics)
    return app
