"""Connections: uvicorn's, with limits where it relies on the client's good will.

    slow head               408, however its bytes trickle in
    large head              431, or 414 for its target
    not HTTP/1.1            400; so is a length given twice, in two ways (request smuggling)
    body in tiny chunks     400
    too many connections    429 with Retry-After; above twice as many closed
    slow reader             closed; of a large answer drop by drop, by `Edge`

Each answer is a problem document. Then the connection is read for a while before it is closed:
closed while bytes come in it is reset, and the client would never see the answer.
"""

import asyncio
import contextlib
import logging
import re
import socket
import sys
import uuid
from asyncio import constants
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.edge.middleware import REQUEST_ID_HEADER, Edge
from api.errors import Overloaded, plain_document, problem_json
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

# Photos that are being read get that long when the service stops.
_SHUTDOWN_S = 2
# How long a refused connection is read on.
_LINGER_S = 5.0
# A client that takes nothing of an answer for so long is not reading.
_STALLED_S = 30.0

_DETAILS = {
    400: "This is not a valid HTTP/1.1 request.",
    408: "The request's head did not come in time.",
    414: f"The request's target is longer than {MAX_TARGET_BYTES} bytes.",
    431: f"The request's head has more than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} fields.",
}


class GatewayConfig(uvicorn.Config):
    """How an application from `api.main.create_app` is served, everywhere."""

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
            # Any client could choose its address, and with it whose rate it uses up.
            proxy_headers=False,
            # Longer than proxies keep theirs: a photo sent into one that ends is lost.
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
            # OpenSSL's own choice; uvicorn's leaves TLS 1.2 with ciphers of 1999.
            ssl_ciphers="DEFAULT",
        )
        self.settings = settings
        # uvicorn has no setting for it: a client that says nothing would stay for a minute.
        constants.SSL_HANDSHAKE_TIMEOUT = settings.header_timeout_s
        # Connections that are refused, or were and are about to end; at most as many as are served.
        self.surplus: set[GatewayProtocol] = set()
        self.metrics: Metrics = app.state.metrics
        # The application for those above the limit.
        self.refuse: Any = Edge(_answer_too_many, settings, self.metrics)


async def _answer_too_many(scope: Scope, receive: Receive, send: Send) -> None:
    problem = Overloaded("Too many connections at once. Try again shortly.", reason="connections")
    document = problem.document(scope["state"]["request_id"])
    await problem_json(document, {**problem.headers, "Connection": "close"})(scope, receive, send)


class StrictConnection(h11.Connection):
    """Refuses what h11 lets pass: large heads in one piece, ambiguous ones, floods of chunks."""

    _chunks = _body_bytes = 0

    def next_event(self) -> Any:
        """As h11's; raises `h11.RemoteProtocolError` also for these."""
        # An empty line before a request, which old clients send behind a body (RFC 9112, 2.2).
        if self.their_state is h11.IDLE and self.trailing_data[0].startswith(b"\r\n"):
            self._receive_buffer.maybe_extract_at_most(2)
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
            _check_head(event)
            if event.target[:1] != b"/":  # As clients send it to proxies (RFC 9112, 3.2.2).
                path = re.sub(rb"(?i)^https?://[^/?]*/?", b"/", event.target)
                event = replace(event, target=path)
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
    # RFC 9112, 6.1: a proxy in between may have gone by the other one.
    if b"transfer-encoding" in names and (
        b"content-length" in names or request.http_version < b"1.1"
    ):
        raise h11.RemoteProtocolError("ambiguous length", error_status_hint=400)


class GatewayProtocol(H11Protocol):
    """One connection; see the module for what it adds to uvicorn's."""

    def __init__(self, config: GatewayConfig, **given: Any) -> None:
        super().__init__(config, **given)
        self.conn = StrictConnection(h11.SERVER, MAX_HEAD_BYTES)
        self._limits, self._settings = config, config.settings
        self._refused = False
        # Ends a head that takes too long, and later a connection that was refused.
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or refuse its request where there are too many."""
        served = len(self.connections) - len(self._limits.surplus)
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort}  # what `Edge` calls
        transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_STALLED_S * 1000)
        )
        self._start_timer()
        if served < self._settings.max_connections:
            return
        self._limits.metrics.connections_refused.labels(429).inc()
        self.app = self._limits.refuse
        if not self._count_as_surplus():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        self._limits.surplus.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Go on with the request, and limit how long its head takes."""
        if not self._refused:
            super().data_received(data)
        if self._refused:
            return
        # Until the next head's first byte, or an empty line's, uvicorn closes idle connections.
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse what h11 did not understand; called while its error is handled."""
        del msg
        status = getattr(sys.exc_info()[1], "error_status_hint", 400)
        self._refuse(status if status in _DETAILS else 400)

    def shutdown(self) -> None:
        """End the connection as soon as its answer is sent."""
        if self._refused:
            self.transport.close()
        else:
            super().shutdown()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to warn of: the request is answered as if it had asked for no upgrade."""

    def _count_as_surplus(self) -> bool:
        """Leave this connection's place to others; False if there are too many of those, too."""
        surplus = self._limits.surplus
        if self not in surplus and len(surplus) >= self._settings.max_connections:
            return False
        surplus.add(self)
        return True

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._settings.header_timeout_s, self._on_slow_head)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_slow_head(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(408)
        else:  # Browsers open connections in advance; an answer would confuse them.
            self.transport.close()

    def _refuse(self, status: int) -> None:
        """Answer a head or body that makes no sense, and read on for a while."""
        self._refused = True
        self.conn.send_failed()
        self._unset_keepalive_if_required()  # It would close the connection once more.
        self._stop_timer()
        self._timer = self.loop.call_later(_LINGER_S, self.transport.abort)
        if self.cycle is not None and not self.cycle.response_complete:
            # For the application the client is gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:  # No second answer inside the first.
                self.transport.close()
                return
        self.transport.write(_answer(status))
        self._limits.metrics.connections_refused.labels(status).inc()
        log.info("Refused a connection", extra={"status": status})
        if not self._count_as_surplus():
            self.transport.close()
            return
        self.flow.resume_reading()
        if self.transport.can_write_eof():  # TLS can't.
            with contextlib.suppress(OSError):  # The client has reset the connection.
                self.transport.write_eof()


def _answer(status: int) -> bytes:
    """A whole HTTP response; the connection's state machine may be in no state to write one."""
    request_id = str(uuid.uuid4())
    document = plain_document(status, _DETAILS[status], request_id)
    response = problem_json(document, {"Connection": "close", REQUEST_ID_HEADER: request_id})
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
    lines = [b"%s: %s" % header for header in response.raw_headers]
    return b"\r\n".join([first, *lines, b"", bytes(response.body)])
