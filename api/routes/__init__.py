"""The gateway's routes. Each is thin: the work is in uploads, reading and answers."""

from api import compat
from api.routes import operation, page, plates

ROUTERS = (plates.router, *compat.ROUTERS, operation.router, page.router)
