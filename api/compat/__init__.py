"""The APIs of other recognition services, so that their clients work without changes.

Each module implements one service: `router` has its routes, which translate this service's result,
and `error_form` makes the service's status and JSON of our status and detail. All errors of these
routes have that form, even those raised before the route runs: a missing token, a rate limit.
Unreadable plates are left out, as these services have none.
"""

from collections.abc import Callable
from typing import Any

from fastapi.routing import APIRoute

from api.compat import codeproject_ai, plate_recognizer

_SERVICES = (plate_recognizer, codeproject_ai)
ROUTERS = tuple(service.router for service in _SERVICES)
# By a route's path.
ERROR_FORMS: dict[str, Callable[[int, str], tuple[int, dict[str, Any]]]] = {
    route.path: service.error_form
    for service in _SERVICES
    for route in service.router.routes
    if isinstance(route, APIRoute)
}
