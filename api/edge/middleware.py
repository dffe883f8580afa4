"""What every request meets first, and every answer last."""

import asyncio
import math
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.observing.logs import current_request_id
from api.settings import Settings

REQUEST_ID_HEADER = "X-Request-Id"
# Nothing that could break a log line or a header.
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

# Swagger UI and ReDoc start from scripts within the page and write styles into it.
_DOCUMENTATION = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; worker-src blob:; frame-ancestors 'none'"
)
# JSON and text need nothing; pages that need more bring their own.
_POLICIES = {"/docs": _DOCUMENTATION, "/redoc": _DOCUMENTATION}
_STRICT_POLICY = "default-src 'none'; frame-ancestors 'none'"


class Edge:
    """Names each request, reads its body to the end before it is answered, adds headers.

    `scope["state"]` gets `request_id` and `started`, the moment of the request's head on the
    clock of `time.monotonic`. HEAD is answered as GET is; the server leaves out the body.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI event loop's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = choose_request_id(headers.get(REQUEST_ID_HEADER, ""))
        state = scope.setdefault("state", {})
        state["started"], state["request_id"] = time.monotonic(), request_id
        current_request_id.set(request_id)
        body = _Body(receive, headers)

        async def send_at_the_bodys_end(message: Message) -> None:
            if message["type"] == "http.response.start":
                at_an_end = await self._discard(body, headers, state["started"])
                _add_headers(scope, MutableHeaders(scope=message), request_id, at_an_end)
            await send(message)

        # A copy: the server leaves out the body of what it knows as HEAD.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            await self._app(inner, body.receive, send_at_the_bodys_end)
        finally:
            if "route" in inner:
                scope["route"] = inner["route"]

    async def _discard(self, body: "_Body", headers: Headers, started: float) -> bool:
        """Read on to the end of a body that is refused, within the limits of one that is not.

        Most clients look for an answer only when they have sent everything; and to close a
        connection on which bytes still come resets it, so that they would never see it.
        """
        longest_s = min(
            self._settings.upload_timeout_s, self._settings.request_timeout_s, _asked_s(headers)
        )
        most_bytes = max(self._settings.batch_max_bytes, 2 * self._settings.max_bytes)
        return await body.discard(most_bytes, started + longest_s)


class _Body:
    """The body of a request, and whether there is more of it to come."""

    def __init__(self, receive: Receive, headers: Headers) -> None:
        self._receive = receive
        self._at_an_end = not ("content-length" in headers or "transfer-encoding" in headers)
        # Such a client sends nothing before it is asked to.
        self._is_held_back = "expect" in headers

    async def receive(self) -> Message:
        """As in ASGI."""
        self._is_held_back = False
        message = await self._receive()
        self._at_an_end = not message.get("more_body", False)
        return message

    async def discard(self, most_bytes: int, until: float) -> bool:
        """Read and forget the rest; False if it did not end within so many bytes and that time."""
        if self._at_an_end or self._is_held_back:
            return self._at_an_end
        discarded = 0
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                while not self._at_an_end and discarded <= most_bytes:
                    discarded += len((await self.receive()).get("body", b""))
        except TimeoutError:
            pass
        return self._at_an_end


def choose_request_id(offered: str) -> str:
    """Take the client's own name for a request where it is a harmless one, else a fresh UUID."""
    return offered if _ACCEPTED_ID.fullmatch(offered) else str(uuid.uuid4())


def _asked_s(headers: Headers) -> float:
    """The client's own limit; values that make no sense are refused elsewhere."""
    try:
        seconds = float(headers.get("x-request-timeout", "inf"))
    except ValueError:
        return math.inf
    return seconds if seconds > 0 else math.inf


def _add_headers(scope: Scope, answer: MutableHeaders, request_id: str, at_an_end: bool) -> None:
    answer[REQUEST_ID_HEADER] = request_id
    if not at_an_end:  # What follows on the connection would be the body's rest.
        answer["Connection"] = "close"
    answer.setdefault("X-Content-Type-Options", "nosniff")
    answer.setdefault("Referrer-Policy", "no-referrer")
    answer.setdefault("Content-Security-Policy", _POLICIES.get(scope["path"], _STRICT_POLICY))
    if scope["method"] == "POST":
        # Plates belong in no cache on the way.
        answer.setdefault("Cache-Control", "no-store")
