"""Exception handlers: turn all errors into problem documents, count them and log them."""

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.compat import ERROR_FORMS
from api.edge.middleware import REQUEST_ID_HEADER
from api.errors import Problem, plain_document, problem_json
from api.observing.metrics import Metrics
from api.parameters import invalid_parameters

log = logging.getLogger("plates.gateway")


def document_of(problem: Problem, request_id: str, metrics: Metrics) -> dict[str, Any]:
    """Count and log the problem of a request or of one photo; returns its document."""
    if problem.reason:
        metrics.refused.labels(problem.reason).inc()
    return _logged(problem.document(request_id), problem.__cause__)


def _logged(document: dict[str, Any], cause: BaseException | None = None) -> dict[str, Any]:
    """Log the problem unless it is the client's fault."""
    if document["status"] >= 500:
        reason = f" ({cause})" if cause else ""
        log.error("%(status)s %(title)s: %(detail)s%(reason)s", {**document, "reason": reason})
    return document


async def _on_problem(request: Request, problem: Problem) -> Response:
    request.state.refusal = problem.slug
    document = document_of(problem, request.state.request_id, request.app.state.metrics)
    return _respond(request, document, problem.headers)


async def _on_invalid_request(request: Request, error: RequestValidationError) -> Response:
    return await _on_problem(request, invalid_parameters(list(error.errors())))


async def _on_http_exception(request: Request, error: HTTPException) -> Response:
    detail = error.detail
    if error.status_code == 404 and detail == "Not Found":
        detail = f"There is nothing at {request.url.path}. /docs lists all routes."
    elif error.status_code == 405:
        detail = f"{request.method} is not allowed at {request.url.path}."
    document = plain_document(error.status_code, detail, request.state.request_id)
    return _respond(request, _logged(document, error.__cause__), error.headers)


async def _on_disconnect(_: Request, __: ClientDisconnect) -> Response:
    """Answer a client that is gone: without an answer the log would show a traceback."""
    return Response(status_code=499)  # for the metrics; nginx uses the same status


async def _on_exception(request: Request, _: Exception) -> Response:
    detail = "An unexpected error occurred. See the service's log."
    # The server closes the connection as soon as it has logged the traceback.
    plain = HTTPException(500, detail, headers={"Connection": "close"})
    return await _on_http_exception(request, plain)


def _respond(
    request: Request, document: dict[str, Any], headers: Mapping[str, str] | None
) -> Response:
    # The answer to an unexpected exception bypasses the middleware, so add its header here.
    headers = {**(headers or {}), REQUEST_ID_HEADER: request.state.request_id}
    if error_form := ERROR_FORMS.get(request.url.path):
        status, content = error_form(document["status"], document["detail"])
        return JSONResponse(content, status, headers)
    return problem_json(document, headers)


HANDLERS: dict[Any, Any] = {
    Problem: _on_problem,
    HTTPException: _on_http_exception,
    RequestValidationError: _on_invalid_request,
    ClientDisconnect: _on_disconnect,
    Exception: _on_exception,
}
