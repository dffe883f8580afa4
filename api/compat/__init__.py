"""The dialects of other recognition services, so that their clients need no change.

Each module is one service: its routes, thin translations of our own result, and its errors.
All errors reach the client in that form, also those before a route is reached: a missing
token, a rate limit, a photo that is too large. As these services know no plates without a
text, such plates are left out.
"""

from fastapi.routing import APIRoute

from api.compat.codeproject_ai import CODEPROJECT_AI
from api.compat.plate_recognizer import PLATE_RECOGNIZER

_ALL = (PLATE_RECOGNIZER, CODEPROJECT_AI)
ROUTERS = tuple(dialect.router for dialect in _ALL)
# By the paths of their routes.
DIALECTS = {
    route.path: dialect
    for dialect in _ALL
    for route in dialect.router.routes
    if isinstance(route, APIRoute)
}
