"""Routes for operation: liveness, readiness, metrics, and explanations of problem types."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from api.dependencies import ServicesOfApp
from api.documentation import problem_response
from api.errors import KINDS, PROBLEM_PATH
from api.observing.metrics import CONTENT_TYPE, fetch_triton_metrics

router = APIRouter(tags=["operation"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Answer as long as the gateway itself runs, with or without Triton."""
    return {"status": "alive"}


@router.get("/readyz", responses={503: problem_response("Not ready")})
async def readyz(services: ServicesOfApp) -> dict[str, str]:
    """Answer 200 if a photo with a plate was read recently, or a test photo is read now."""
    if problem := await services.readiness.problem():
        raise HTTPException(503, problem.detail, {"Retry-After": "2"}) from problem.__cause__
    return {"status": "ready"}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(services: ServicesOfApp) -> Response:
    """Prometheus metrics: the gateway's, then Triton's if their address is set."""
    address = services.settings.triton_metrics_url
    of_triton = await fetch_triton_metrics(address) if address else None
    services.metrics.triton_metrics_up.set(of_triton is not None)
    exposition = services.metrics.exposition() + (of_triton or b"")
    return Response(exposition, media_type=CONTENT_TYPE)


# 4XX instead of 404, as FastAPI would also document its own 422, which never occurs.
@router.get(PROBLEM_PATH + "{slug}", responses={"4XX": problem_response("No such problem type")})
async def problem(slug: str) -> dict[str, Any]:
    """Explain a problem's type."""
    if kind := KINDS.get(slug):
        return {"title": kind.title, "status": kind.status, "detail": kind.__doc__}
    raise HTTPException(404, f"There is no problem type {slug}.")
