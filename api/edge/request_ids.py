"""A name for every request: in its answer, in the logs, and in Triton's."""

import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.observing.logs import current_request_id

HEADER = "X-Request-Id"
# As the `instance` of a problem document: a reference relative to the service.
INSTANCE_PATH = "/requests/"

# Nothing that could break a log line or a header.
_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,64}")


def choose_request_id(offered: str) -> str:
    """Take the sender's own name for a request where it is a harmless one.

    Args:
        offered: The sender's header; "" if there is none.

    Returns:
        It, or a fresh UUID.
    """
    return offered if _ACCEPTED.fullmatch(offered) else str(uuid.uuid4())


class RequestIds:
    """Stamps each request with its id and the moment of its head, and each answer with the id.

    `scope["state"]` gets `request_id` and `started`, on the clock of `time.monotonic`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI event loop's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = choose_request_id(Headers(scope=scope).get(HEADER, ""))
        state = scope.setdefault("state", {})
        state["started"], state["request_id"] = time.monotonic(), request_id
        current_request_id.set(request_id)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)
