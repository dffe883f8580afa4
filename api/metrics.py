"""What /metrics tells: counts and times, never a plate's text."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 30.0)
# Senders make up methods; each would be a series that stays for ever.
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_COUNTS = (0, 1, 2, 3, 5, 8, 13, 21, 34)


class Metrics:
    """The metrics of one application, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "plates_requests",
            "Requests answered, by route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self.request_seconds = Histogram(
            "plates_request_seconds",
            "From a request's first byte to its answer's last, by route.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.recognition_seconds = Histogram(
            "plates_recognition_seconds",
            "From sending a photo to Triton to its answer.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.plates_per_photo = Histogram(
            "plates_per_photo",
            "Plates found in a photo, readable or not.",
            buckets=_COUNTS,
            registry=self._registry,
        )
        self.unreadable = Counter(
            "plates_unreadable",
            "Plates found but not readable.",
            registry=self._registry,
        )
        self.in_flight = Gauge(
            "plates_in_flight", "Photos being worked on.", registry=self._registry
        )

    def exposition(self) -> bytes:
        """The metrics in Prometheus's text format."""
        return generate_latest(self._registry)


class MetricsMiddleware:
    """Counts and times every request."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI event loop's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            # The pattern, not the path: paths are made up by callers and never end.
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(method, route, status).inc()
            self._metrics.request_seconds.labels(route).observe(time.perf_counter() - start)
