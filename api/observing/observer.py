"""What the operator learns of each request: counts, times, one line in the log."""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.observing.metrics import Metrics

log = logging.getLogger("plates.access")

# Clients make up methods; each would be a series that stays for ever.
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class Observer:
    """Counts, times and logs every request.

    `request.state.plates` and `request.state.refusal`, where they are set, are in the log's line.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI event loop's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, bytes_in = time.perf_counter(), 500, 0

        async def count_bytes() -> Message:
            nonlocal bytes_in
            message = await receive()
            bytes_in += len(message.get("body", b""))
            return message

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, count_bytes, note_status)
        finally:
            self._note(scope, status, time.perf_counter() - start, bytes_in)

    def _note(self, scope: Scope, status: int, seconds: float, bytes_in: int) -> None:
        # The pattern, not the path: paths are made up by clients and never end.
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(method, route, status).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        state = scope.get("state", {})
        fields = {
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 1),
            "bytes_in": bytes_in,
            "plates": state.get("plates"),
            "refusal": state.get("refusal"),
        }
        log.info("answered", extra=fields)
