"""The JSON of other recognition services, so that their clients need no change.

Each module is one service: its routes, thin translations of our own result, and its form
of an error. Whatever goes wrong reaches the caller in that form, also before a route is
reached: a missing token, a rate limit, a photo that is too large.
"""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from api.compat.codeproject_ai import CODEPROJECT_AI
from api.compat.plate_recognizer import PLATE_RECOGNIZER

_SERVICES = (PLATE_RECOGNIZER, CODEPROJECT_AI)
ROUTERS = tuple(service.router for service in _SERVICES)


def compat_response(
    path: str, document: Mapping[str, Any], headers: Mapping[str, str]
) -> Response | None:
    """Say what went wrong as the service does whose route was called.

    Args:
        path: Of the request.
        document: The problem document that our own routes would answer with.
        headers: Those that go with it, such as Retry-After.

    Returns:
        The answer; None if the path is one of our own.
    """
    for service in _SERVICES:
        if path in service.paths:
            status, content = service.error(document["status"], document["detail"])
            return JSONResponse(content, status, dict(headers))
    return None
