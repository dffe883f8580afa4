"""The APIs of other recognition services, so that their clients work without changes.

Each module implements one service: its routes, which translate this service's result, and its form
of errors. All errors of these routes have that form, even those raised before the route runs: a
missing token, a rate limit. Unreadable plates are left out, as these services have none.
"""

from fastapi.routing import APIRoute

from api.compat.codeproject_ai import CODEPROJECT_AI
from api.compat.plate_recognizer import PLATE_RECOGNIZER

_ALL = (PLATE_RECOGNIZER, CODEPROJECT_AI)
ROUTERS = tuple(dialect.router for dialect in _ALL)
# The dialect of each route, by path.
DIALECTS = {
    route.path: dialect
    for dialect in _ALL
    for route in dialect.router.routes
    if isinstance(route, APIRoute)
}
