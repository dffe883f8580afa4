"""The metrics of /metrics: counts and times, never the text of a plate."""

import asyncio
from functools import partial
from pathlib import Path
from typing import get_args

import httpx
import prometheus_client

from api.answers import Recognition
from api.status import State, merge, read_status

_TRITON_TIMEOUT_S = 2.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 30.0)
_STAGE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_SCORES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_COUNTS = (0, 1, 2, 3, 5, 8, 13, 21, 34)


class Metrics:
    """The metrics of one application, and those that supervisors write to their status files."""

    def __init__(self, *status_files: Path | None) -> None:
        # Otherwise the library adds a useless `_created` series to each series.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self._registry = prometheus_client.CollectorRegistry()
        self._status_files = [file for file in status_files if file is not None]
        counter = partial(prometheus_client.Counter, registry=registry)
        gauge = partial(prometheus_client.Gauge, registry=registry)
        histogram = partial(prometheus_client.Histogram, registry=registry)
        seconds = partial(histogram, buckets=_SECONDS)

        self.requests = counter(
            "plates_requests",
            "Requests answered, by route and status.",
            ["method", "route", "status"],
        )
        self.connections_refused = counter(
            "plates_connections_refused",
            "Connections refused at their limit (429) or without a valid request, by status.",
            ["status"],
        )
        self.request_seconds = seconds(
            "plates_request_seconds",
            "Seconds from a request's head to the last byte of its answer, by route.",
            ["route"],
        )

        self.in_flight = gauge("plates_in_flight", "Photos at Triton.")
        self.waiting = gauge("plates_waiting", "Photos waiting for a place at Triton.")
        self.queue_seconds = seconds(
            "plates_queue_seconds", "Seconds from a photo's last byte to its place at Triton."
        )
        self.refused = counter(
            "plates_refused",
            "Photos refused because there were too many, by the limit that was exceeded.",
            ["reason"],
        )

        self.recognition_seconds = seconds(
            "plates_recognition_seconds", "Seconds from sending a photo to Triton to its answer."
        )
        self.plates_per_photo = histogram(
            "plates_per_photo", "Plates found in a photo, readable or not.", buckets=_COUNTS
        )
        self.unreadable = counter("plates_unreadable", "Plates found but not readable.")
        self.stage_seconds = histogram(
            "plates_stage_seconds",
            "Seconds per photo in Triton, by stage.",
            ["stage"],
            buckets=_STAGE_SECONDS,
        )
        self.text_score = histogram(
            "plates_text_score", "Scores of the texts of plates, readable or not.", buckets=_SCORES
        )

        self.model_info = gauge(
            "plates_model_info",
            "1 for the version, weights and device that answered last.",
            ["version", "weights", "device"],
        )
        self.triton_metrics_up = gauge(
            "plates_triton_metrics_up",
            "Whether Triton's own metrics could be fetched; 0 if their address is not set.",
        )

        self._state = gauge("plates_state", "1 for the current state of the service.", ["state"])
        self._restarts = counter(
            "plates_restarts", "Parts that the supervisor restarted.", ["part"]
        )
        self._version = gauge(
            "plates_release", "1 for the model version that is served.", ["version"]
        )
        self._versions_refused = gauge(
            "plates_release_refused",
            "1 for each model version that is not served because it can't be loaded or misreads.",
            ["version"],
        )

    def note_recognition(self, recognition: Recognition) -> None:
        """Count a photo that was read."""
        self.recognition_seconds.observe(recognition.recognition_ms / 1000)
        self.plates_per_photo.observe(len(recognition.plates))
        self.unreadable.inc(sum(not plate.readable for plate in recognition.plates))
        for stage, milliseconds in recognition.info.timing_ms.items():
            self.stage_seconds.labels(stage).observe(milliseconds / 1000)
        for plate in recognition.plates:
            self.text_score.observe(plate.score)
        info = recognition.info
        self.model_info.clear()
        self.model_info.labels(info.version, info.weights, info.device).set(1)

    def exposition(self) -> bytes:
        """The metrics in Prometheus's text format, with the supervisors' current status."""
        for family in (self._state, self._restarts, self._version, self._versions_refused):
            family.clear()
        # Each supervisor writes a file about its part of the service.
        found = [status for file in self._status_files if (status := read_status(file))]
        if found:
            status = merge(found)
            for state in get_args(State):
                self._state.labels(state).set(state == status.state)
            for part, count in status.restarts.items():
                self._restarts.labels(part).inc(count)
            if status.release is not None:
                self._version.labels(status.release).set(1)
            for version in status.refused:
                self._versions_refused.labels(version).set(1)
        return prometheus_client.generate_latest(self._registry)


async def fetch_triton_metrics(address: str) -> bytes | None:
    """Fetch the metrics of Triton at host:port; None if this fails or takes too long."""
    try:
        async with (
            asyncio.timeout(_TRITON_TIMEOUT_S),
            # The address has no TLS, and loading CA certificates takes longer than the request.
            httpx.AsyncClient(verify=False, trust_env=False) as client,  # noqa: S501
        ):
            return (await client.get(f"http://{address}/metrics")).raise_for_status().content
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
        return None
