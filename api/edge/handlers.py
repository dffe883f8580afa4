"""What is answered when something is raised: a problem document, whatever it was."""

from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.compat import compat_response
from api.edge.problems import document_of, identified
from api.edge.request_ids import HEADER
from api.errors import Problem, plain_document
from api.parameters import invalid_parameters

# No answer anybody reads, but counted: the status that proxies have for it.
SENDER_GONE = 499


def _respond_plainly(
    request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    document = identified(plain_document(status, detail), request.state.request_id)
    return _respond(request, document, headers)


def _respond(
    request: Request, document: dict[str, Any], headers: Mapping[str, str] | None = None
) -> Response:
    """Send a problem document."""
    # The answer to an unexpected exception passes no middleware.
    headers = {**(headers or {}), HEADER: request.state.request_id}
    return compat_response(request.url.path, document, headers) or JSONResponse(
        document, document["status"], headers, media_type="application/problem+json"
    )


async def _on_problem(request: Request, problem: Problem) -> Response:
    request.state.refusal = problem.slug
    document = document_of(problem, request.state.request_id, request.app.state.metrics)
    return _respond(request, document, problem.headers)


async def _on_http_exception(request: Request, error: HTTPException) -> Response:
    detail = error.detail
    if error.status_code == 404 and detail == "Not Found":
        detail = f"There is nothing at {request.url.path}. /docs lists what there is."
    elif error.status_code == 405:
        detail = f"{request.method} is not possible at {request.url.path}."
    return _respond_plainly(request, error.status_code, detail, error.headers)


async def _on_invalid_request(request: Request, error: RequestValidationError) -> Response:
    document = invalid_parameters(list(error.errors())).document()
    return _respond(request, identified(document, request.state.request_id))


async def _on_disconnect(_: Request, __: ClientDisconnect) -> Response:
    """Nobody is left to read this; without it the log would show a traceback."""
    return Response(status_code=SENDER_GONE)


async def _on_exception(request: Request, _: Exception) -> Response:
    detail = "Something unexpected happened. The log says more."
    # The server drops the connection as soon as it has logged the traceback.
    return _respond_plainly(request, 500, detail, {"Connection": "close"})


HANDLERS: dict[Any, Any] = {
    Problem: _on_problem,
    HTTPException: _on_http_exception,
    RequestValidationError: _on_invalid_request,
    ClientDisconnect: _on_disconnect,
    Exception: _on_exception,
}
