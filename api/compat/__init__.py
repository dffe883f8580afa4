"""The dialects of other recognition services, so that their clients need no change.

Each module is one service: its routes, thin translations of our own result, and its errors.
All errors reach the client in that form, also those before a route is reached: a missing
token, a rate limit, a photo that is too large. As these services know no plates without a
text, such plates are left out.
"""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from api.compat.codeproject_ai import CODEPROJECT_AI
from api.compat.plate_recognizer import PLATE_RECOGNIZER

_DIALECTS = (PLATE_RECOGNIZER, CODEPROJECT_AI)
_BY_PATH = {path: dialect for dialect in _DIALECTS for path in dialect.paths}
ROUTERS = tuple(dialect.router for dialect in _DIALECTS)


def compat_response(
    path: str, document: Mapping[str, Any], headers: Mapping[str, str]
) -> Response | None:
    """Translate a problem document for the service whose path it is; None for our own paths."""
    dialect = _BY_PATH.get(path)
    if dialect is None:
        return None
    status, content = dialect.error(document["status"], document["detail"])
    return JSONResponse(content, status, dict(headers))
