"""The outermost middleware: the first to see each request, the last to see each answer."""

import asyncio
import logging
import math
import re
import time
import uuid
from contextlib import suppress

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.observing.logs import current_request_id
from api.observing.metrics import Metrics
from api.settings import Settings

log = logging.getLogger("plates.access")

REQUEST_ID_HEADER = "X-Request-Id"
# Methods in the metrics; invented ones would each add a time series that is never removed.
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_PIECE_BYTES = 2**16
# Ids without characters that could break a log line or a header.
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

# Swagger UI and ReDoc use inline scripts and styles.
_DOCUMENTATION = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; worker-src blob:; frame-ancestors 'none'"
)
# JSON and text load nothing; routes of other pages set their own policy.
_POLICIES = {"/docs": _DOCUMENTATION, "/redoc": _DOCUMENTATION}
_STRICT_POLICY = "default-src 'none'; frame-ancestors 'none'"


class Edge:
    """Gives each request an id, counts, times and logs it, reads its body to the end, adds headers.

    Sets in `scope["state"]`: `request_id`; `started`, the time of the request's head on the clock
    of `time.monotonic`; `endless`, whether the answer is a stream of events. Logs `plates` and
    `refusal`, if a route has set them there. Answers HEAD like GET, without the body. Calls the
    server's `abort` there, which closes the connection, if a client receives it too slowly.
    """

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        # Refused bodies are read to the end within the same limits as accepted ones.
        self._most_bytes = max(settings.batch_max_bytes, 2 * settings.max_bytes)
        self._longest_s = min(settings.upload_timeout_s, settings.request_timeout_s)
        self._send_s = settings.upload_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection; other types than HTTP pass unchanged."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = choose_request_id(headers.get(REQUEST_ID_HEADER, ""))
        started, status = time.monotonic(), 500
        scope.setdefault("state", {}).update(started=started, request_id=request_id)
        current_request_id.set(request_id)
        body = _Body(receive, headers)

        async def send_at_the_bodys_end(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                until = started + min(self._longest_s, _asked_s(headers))
                at_an_end = await body.discard(self._most_bytes, until)
                answer = MutableHeaders(scope=message)
                scope["state"]["endless"] = "event-stream" in answer.get("content-type", "")
                _add_headers(scope, answer, request_id, at_an_end)
            if scope["method"] == "HEAD":
                if message["type"] == "http.response.start":
                    await send(message)
                    await send({"type": "http.response.body"})  # A stream's own end may never come.
                return
            # The server sends each piece after the client has received the previous ones.
            content = message.get("body", b"")
            last = max(0, len(content) - 1) // _PIECE_BYTES * _PIECE_BYTES
            timer = asyncio.get_running_loop().call_later(self._send_s, scope["state"]["abort"])
            try:
                for at in range(0, last, _PIECE_BYTES):
                    piece = content[at : at + _PIECE_BYTES]
                    await send({**message, "body": piece, "more_body": True})
                await send({**message, "body": content[last:]} if last else message)
            finally:
                timer.cancel()

        # A copy, so that the server still sees HEAD: the answer has a length but no body.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            await self._app(inner, body.receive, send_at_the_bodys_end)
        finally:
            # The route's pattern, as clients can invent any number of paths.
            route = getattr(inner.get("route"), "path", "other")
            self._note(scope, route, status, time.monotonic() - started, body.received)

    def _note(self, scope: Scope, route: str, status: int, seconds: float, bytes_in: int) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(method, route, status).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        fields = {
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 1),
            "bytes_in": bytes_in,
            "plates": scope["state"].get("plates"),
            "refusal": scope["state"].get("refusal"),
        }
        log.info("answered", extra=fields)


class _Body:
    """A request's body: counts the bytes received, and knows whether more will follow."""

    def __init__(self, receive: Receive, headers: Headers) -> None:
        self.received = 0
        self._receive = receive
        self._at_an_end = not ("content-length" in headers or "transfer-encoding" in headers)
        # A client that sends Expect waits for "100 Continue" before it sends the body.
        self._is_held_back = "expect" in headers

    async def receive(self) -> Message:
        self._is_held_back = False
        message = await self._receive()
        self.received += len(message.get("body", b""))
        self._at_an_end = not message.get("more_body", False)
        return message

    async def discard(self, most_bytes: int, until: float) -> bool:
        """Discard the rest; returns False if it exceeds `most_bytes` or doesn't end by `until`.

        Most clients read the answer only after sending everything, and closing a connection
        that still receives bytes resets it, so that the client never sees the answer.
        """
        if self._at_an_end or self._is_held_back:
            return self._at_an_end
        most = self.received + most_bytes
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                while not self._at_an_end and self.received <= most:
                    await self.receive()
        return self._at_an_end


def choose_request_id(offered: str) -> str:
    """Return the client's own request id if it is harmless, else a new UUID."""
    return offered if _ACCEPTED_ID.fullmatch(offered) else str(uuid.uuid4())


def _asked_s(headers: Headers) -> float:
    """The client's deadline in seconds, or infinity; the routes refuse invalid values."""
    with suppress(ValueError):
        if (seconds := float(headers.get("x-request-timeout", "inf"))) > 0:
            return seconds
    return math.inf


def _add_headers(scope: Scope, answer: MutableHeaders, request_id: str, at_an_end: bool) -> None:
    answer[REQUEST_ID_HEADER] = request_id
    if not at_an_end:  # The server would take the rest of the body for the next request.
        answer["Connection"] = "close"
    answer.setdefault("X-Content-Type-Options", "nosniff")
    answer.setdefault("Referrer-Policy", "no-referrer")
    answer.setdefault("Content-Security-Policy", _POLICIES.get(scope["path"], _STRICT_POLICY))
    if scope["path"].startswith("/v1/"):  # Caches must not keep plates.
        answer.setdefault("Cache-Control", "no-store")
