"""Connections: what uvicorn leaves to the sender's good will has a limit here.

    slow head          408, however its bytes trickle in
    large head         431, or 414 for its target
    not HTTP/1.1       400; so is a length told twice, in two ways (request smuggling)
    body in crumbs     400
    too many at once   429 with Retry-After
    slow reader        closed
    body without end   closed, some seconds after its answer

Each is a problem document, and the connection is closed behind it.
"""

import asyncio
import contextlib
import json
import logging
import sys
import uuid
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from api.edge.request_ids import HEADER, INSTANCE_PATH
from api.errors import Overloaded, plain_document
from api.observing.metrics import Metrics
from api.settings import Settings

log = logging.getLogger("plates.connections")

MAX_HEAD_BYTES = 16 * 1024
MAX_TARGET_BYTES = 8 * 1024
MAX_HEADERS = 100
# Each chunk of a body costs as much as a hundred bytes: a flood of tiny ones on many
# connections would keep the loop from everything else. So many may be of any size.
MAX_TINY_CHUNKS = 1000
MIN_MEAN_CHUNK_BYTES = 64

# Photos under way get that long when the service stops.
_DRAIN_S = 2
# A connection that is closed while bytes still come in is reset, and the sender never sees
# the answer: so long, and so many at once, are listened to after it.
_LINGER_S = 1.0
_MAX_LINGERING = 64
# An answer may come before the body's end, and whoever sends the rest looks for it only then.
_DISCARD_S = 5.0
# The answers are small; whoever takes none of them for so long is not reading.
_STALLED_S = 30.0

_DETAILS = {
    400: "This is not a valid HTTP/1.1 request.",
    408: "The request's head did not come in time.",
    414: f"The request's target is longer than {MAX_TARGET_BYTES} bytes.",
    431: f"The request's head has more than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} fields.",
}


class GatewayConfig(uvicorn.Config):
    """uvicorn's configuration, with the limits of `GatewayProtocol`.

    Attributes:
        header_timeout_s: Seconds for a request's head.
        max_connections: Served at once.
        lingering: Connections that were refused and are about to end.
        metrics: Where refusals are counted; they never reach the application.
    """

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        super().__init__(
            app,
            host=settings.host,
            port=settings.port,
            loop="asyncio",
            http=GatewayProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            # Any sender could choose its address, and with it whose rate it uses up.
            proxy_headers=False,
            timeout_graceful_shutdown=_DRAIN_S,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        self.header_timeout_s = settings.header_timeout_s
        self.max_connections = settings.max_connections
        self.lingering: set[GatewayProtocol] = set()
        self.metrics: Metrics = app.state.metrics


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How the gateway is served; everything that serves it takes this.

    Args:
        app: From `api.main.create_app`.
        settings: The same as the application's.
    """
    return GatewayConfig(app, settings)


class StrictConnection(h11.Connection):
    """Refuses what h11 lets pass: large heads in one piece, ambiguous ones, floods of chunks."""

    _chunks = _body_bytes = 0

    def next_event(self) -> Any:
        """See `h11.Connection.next_event`.

        Raises:
            h11.RemoteProtocolError: The head is too large or ambiguous, or the body in crumbs.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
            _check_head(event)
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_end
            self._body_bytes += len(event.data)
            tiny = self._body_bytes < self._chunks * MIN_MEAN_CHUNK_BYTES
            if tiny and self._chunks > MAX_TINY_CHUNKS:
                raise h11.RemoteProtocolError("tiny chunks", error_status_hint=400)
        return event


def _check_head(request: h11.Request) -> None:
    if len(request.target) > MAX_TARGET_BYTES:
        raise h11.RemoteProtocolError("target too long", error_status_hint=414)
    total = sum(len(name) + len(value) for name, value in request.headers)
    if len(request.headers) > MAX_HEADERS or total > MAX_HEAD_BYTES:
        raise h11.RemoteProtocolError("head too large", error_status_hint=431)
    names = {name for name, _ in request.headers}
    # RFC 9112, 6.1: somebody in between may have gone by the other one.
    if b"transfer-encoding" in names and (
        b"content-length" in names or request.http_version < b"1.1"
    ):
        raise h11.RemoteProtocolError("ambiguous length", error_status_hint=400)


class GatewayProtocol(H11Protocol):
    """One connection; see the module for what it adds to uvicorn's."""

    def __init__(
        self,
        config: GatewayConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = StrictConnection(h11.SERVER, MAX_HEAD_BYTES)
        self._limits = config
        self._refused = self._discarding = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or refuse it where there are too many."""
        served = len(self.connections) - len(self._limits.lingering)
        super().connection_made(transport)
        if served >= self._limits.max_connections:
            problem = Overloaded(
                "Too many connections at once. Try again shortly.", reason="connections"
            )
            self._refuse(problem.document(), dict(problem.headers))
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_head_timer()
        self._stop_end_timer()
        self._limits.lingering.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Go on with the request, and keep an eye on how long its head takes."""
        if self._refused:
            return
        super().data_received(data)
        if self.conn.their_state is not h11.SEND_BODY and self._discarding:
            self._discarding = False
            self._stop_end_timer()
        # Between requests the head begins with its first byte; until then the connection
        # is idle, and uvicorn's to close.
        begun = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not begun or self._refused:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._start_head_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse what h11 did not understand; called while its error is handled."""
        del msg
        status = getattr(sys.exc_info()[1], "error_status_hint", 400)
        self._refuse_head(status if status in _DETAILS else 400)

    def on_response_complete(self) -> None:
        """Go on with the connection; for the rest of a body that nobody reads not for long."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self._refused:
            self._discarding = True
            self._end_after(_DISCARD_S)

    def shutdown(self) -> None:
        """End the connection as soon as its answer is sent."""
        if self._refused:
            self.transport.close()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """The sender takes nothing of its answer; for a while it may."""
        super().pause_writing()
        self._end_after(_STALLED_S)

    def resume_writing(self) -> None:
        """The sender reads again."""
        if not (self._refused or self._discarding or self.transport.is_closing()):
            self._stop_end_timer()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close the idle connection, even if its last answer was never read."""
        super().timeout_keep_alive_handler()
        self._end_after(_STALLED_S)

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to warn of: the request is answered as if it had asked for no upgrade."""

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.header_timeout_s, self._on_slow_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_slow_head(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse_head(408)
        else:  # Browsers open connections in advance; an answer would confuse them.
            self.transport.close()

    def _refuse_head(self, status: int) -> None:
        self._refuse(plain_document(status, _DETAILS[status]), {})

    def _refuse(self, document: dict[str, Any], headers: dict[str, str]) -> None:
        self._refused = True
        self.conn.send_failed()
        self._unset_keepalive_if_required()  # It would say good-bye once more.
        answered = False
        if self.cycle is not None and not self.cycle.response_complete:
            # For the application the sender is gone, as soon as its body makes no sense.
            answered = self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not answered:
            self.transport.write(_answer(document, headers))
            self._limits.metrics.connections_refused.labels(document["status"]).inc()
            log.info("Refused a connection", extra={"status": document["status"]})
        if answered or len(self._limits.lingering) >= _MAX_LINGERING:
            self.transport.close()
            self._end_after(_LINGER_S)
            return
        self._limits.lingering.add(self)
        self.flow.resume_reading()
        with contextlib.suppress(OSError):  # The sender has reset the connection.
            self.transport.write_eof()
        self._end_after(_LINGER_S)

    def _end_after(self, seconds: float) -> None:
        self._stop_end_timer()
        self._end_timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_end_timer(self) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None


def _answer(document: dict[str, Any], headers: dict[str, str]) -> bytes:
    """A whole HTTP response; the connection's state machine may be in no state to write one."""
    status = HTTPStatus(document["status"])
    request_id = str(uuid.uuid4())
    body = json.dumps({**document, "instance": INSTANCE_PATH + request_id}).encode()
    fields = {
        "Content-Type": "application/problem+json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        HEADER: request_id,
        **headers,
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{k}: {v}" for k, v in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
