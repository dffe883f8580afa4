"""Connections: uvicorn's, with limits that uvicorn lacks against misbehaving clients.

    slow head               408, even if single bytes keep coming
    large head              431, or 414 for its target
    not HTTP/1.1            400, also for both length headers at once (request smuggling)
    body in tiny chunks     400
    too many connections    429 with Retry-After; above twice the limit closed
    slow reader             closed; if it takes a large answer in small amounts, by `Edge`

Each answer is a problem document. After it the server reads from the connection for a while before
it closes it: closing a connection that still receives bytes resets it, and hides the answer.
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
# A chunk of a body costs as much time as a hundred bytes, so a flood of tiny chunks on many
# connections would block the event loop. Bodies of more chunks than this need this mean size.
MAX_TINY_CHUNKS = 1000
MIN_MEAN_CHUNK_BYTES = 64

# Seconds that requests in flight get to finish when the service stops.
_SHUTDOWN_S = 2
# Seconds for which the server still reads from a refused connection.
_LINGER_S = 5.0
# Seconds without any acknowledgement of an answer after which its connection is closed.
_STALLED_S = 30.0

_DETAILS = {
    400: "This is not a valid HTTP/1.1 request.",
    408: "The request's head was not received in time.",
    414: f"The request's target is longer than {MAX_TARGET_BYTES} bytes.",
    431: f"The request's head has more than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} fields.",
}


class GatewayConfig(uvicorn.Config):
    """The server's configuration for an application from `api.main.create_app`."""

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
            # Its warnings repeat, without an id, that a request is invalid or asks for an upgrade.
            log_level="error",
            access_log=False,
            server_header=False,
            # With proxy headers, clients could forge their address and use up another's rate.
            proxy_headers=False,
            # Longer than proxies keep connections: a photo sent while one is closed is lost.
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
            # OpenSSL's default; with uvicorn's, TLS 1.2 has ciphers of 1999.
            ssl_ciphers="DEFAULT",
        )
        self.settings = settings
        # uvicorn has no setting for this: silent clients would keep connections for a minute.
        constants.SSL_HANDSHAKE_TIMEOUT = settings.header_timeout_s
        # Refused connections that are still open; at most PLATES_MAX_CONNECTIONS.
        self.surplus: set[GatewayProtocol] = set()
        self.metrics: Metrics = app.state.metrics
        # The application that answers connections above the limit.
        self.refuse: Any = Edge(_answer_too_many, settings, self.metrics)


async def _answer_too_many(scope: Scope, receive: Receive, send: Send) -> None:
    problem = Overloaded("Too many connections at once. Try again shortly.", reason="connections")
    document = problem.document(scope["state"]["request_id"])
    await problem_json(document, {**problem.headers, "Connection": "close"})(scope, receive, send)


class StrictConnection(h11.Connection):
    """Refuses input that h11 accepts: large or ambiguous heads, floods of tiny chunks."""

    _chunks = _body_bytes = 0

    def next_event(self) -> Any:
        """The next event of h11; also raises `h11.RemoteProtocolError` for refused input."""
        # Skip an empty line before a request: old clients send it after a body (RFC 9112, 2.2).
        if self.their_state is h11.IDLE and self.trailing_data[0].startswith(b"\r\n"):
            self._receive_buffer.maybe_extract_at_most(2)
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
            _check_head(event)
            if event.target[:1] != b"/":  # absolute, as for proxies (RFC 9112, 3.2.2)
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
    # A proxy in between may have used the other length (RFC 9112, 6.1).
    if b"transfer-encoding" in names and (
        b"content-length" in names or request.http_version < b"1.1"
    ):
        raise h11.RemoteProtocolError("ambiguous length", error_status_hint=400)


class GatewayProtocol(H11Protocol):
    """One connection of uvicorn, with the limits that the module's docstring lists."""

    def __init__(self, config: GatewayConfig, **given: Any) -> None:
        super().__init__(config, **given)
        self.conn = StrictConnection(h11.SERVER, MAX_HEAD_BYTES)
        self._limits, self._settings = config, config.settings
        self._refused = False
        # Refuses a head that takes too long; after a refusal, closes the connection.
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection; above the limit, refuse its request or close it."""
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
        """Process bytes of a request, and limit the time of its head."""
        if not self._refused:
            super().data_received(data)
        if self._refused:
            return
        # Before the first byte of a head (or empty line), uvicorn's keep-alive time-out applies.
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse input that h11 can't parse; called in the handler of h11's exception."""
        del msg
        status = getattr(sys.exc_info()[1], "error_status_hint", 400)
        self._refuse(status if status in _DETAILS else 400)

    def shutdown(self) -> None:
        """Close the connection as soon as its answer is sent, or at once if that has no end."""
        if self._refused or (self.cycle and self.cycle.scope["state"].get("endless")):
            self.transport.close()
        else:
            super().shutdown()

    def _count_as_surplus(self) -> bool:
        """Stop counting this connection as served; False if there are too many surplus ones."""
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
        else:  # Browsers open connections in advance, and don't expect answers on them.
            self.transport.close()

    def _refuse(self, status: int) -> None:
        """Answer an invalid head or body with a problem, and still read for a while."""
        self._refused = True
        self.conn.send_failed()
        self._unset_keepalive_if_required()  # The timer would close the connection again.
        self._stop_timer()
        self._timer = self.loop.call_later(_LINGER_S, self.transport.abort)
        if self.cycle is not None and not self.cycle.response_complete:
            # Tell the application that the client is gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:  # A second answer would end up inside the first.
                self.transport.close()
                return
        request_id = str(uuid.uuid4())
        self.transport.write(_answer(status, request_id))
        self._limits.metrics.connections_refused.labels(status).inc()
        log.info("Refused a connection", extra={"request_id": request_id, "status": status})
        if not self._count_as_surplus():
            self.transport.close()
            return
        self.flow.resume_reading()
        if self.transport.can_write_eof():  # not with TLS
            with contextlib.suppress(OSError):  # The client has reset the connection.
                self.transport.write_eof()


def _answer(status: int, request_id: str) -> bytes:
    """A complete HTTP response, made without h11, whose state may not allow a response."""
    document = plain_document(status, _DETAILS[status], request_id)
    response = problem_json(document, {"Connection": "close", REQUEST_ID_HEADER: request_id})
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
    lines = [b"%s: %s" % header for header in response.raw_headers]
    return b"\r\n".join([first, *lines, b"", bytes(response.body)])
