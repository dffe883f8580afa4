"""Connections: too many, refused, never read, and what becomes of them."""

import contextlib
import socket
import threading
import time
from typing import Any

import httpx
import pytest
from fake_triton import FakeTriton
from gateway_client import PHOTO, post_raw, settings_for
from gateway_fixtures import running_gateway
from patience import wait_until
from raw_connections import (
    ALIVE,
    HANG_S,
    HOST,
    address_of,
    answer_to,
    assert_refused,
    connect,
    everything,
    one_answer,
    status_of,
)

from api.edge.protocol import GatewayProtocol

pytestmark = pytest.mark.usefixtures("no_tracebacks")


def test_a_refused_connection_is_not_closed_for_idleness_too(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state machine has ended, and would only complain."""
    begin = GatewayProtocol.__init__

    def begin_hastily(self: GatewayProtocol, **named: Any) -> None:
        begin(self, **named)
        self.timeout_keep_alive = 0.05

    monkeypatch.setattr(GatewayProtocol, "__init__", begin_hastily)
    ambiguous = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(client) as connection:
        connection.sendall(ALIVE + ALIVE[:-2].replace(b"GET", b"POST") + ambiguous)
        answer = everything(connection)
        assert_refused(answer[answer.rindex(b"HTTP/1.1 4") :], 400)
        time.sleep(0.3)


def test_too_many_connections_are_told_to_come_back(fake: FakeTriton) -> None:
    gateway = running_gateway(settings_for(fake, max_connections=3))
    with gateway as client, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(client)) for _ in range(3)]
        for connection in held:  # The gateway has taken each of them.
            connection.sendall(ALIVE)
            assert status_of(one_answer(connection)) == 200
        for answer in [answer_to(client, ALIVE) for _ in range(5)]:
            assert assert_refused(answer, 429)["type"] == "/problems/overloaded"
            assert b"retry-after: 1" in answer.lower()
        held[0].close()
        wait_until(lambda: client.get("/healthz").status_code == 200)
        exposition = client.get("/metrics").text
    assert 'plates_connections_refused_total{status="429"} ' in exposition


def test_a_flood_of_connections_leaves_the_gateway_well(fake: FakeTriton) -> None:
    settings = settings_for(fake, max_connections=20, header_timeout_s=0.5)
    with running_gateway(settings) as client, contextlib.ExitStack() as stack:
        flood = [stack.enter_context(connect(client)) for _ in range(200)]
        for connection in flood:
            with contextlib.suppress(OSError):
                connection.sendall(b"GET / HT")
        answers = [everything(connection) for connection in flood]
        assert {status_of(answer) for answer in answers if answer} <= {408, 429}
        assert post_raw(client, PHOTO).status_code == 200


def test_a_reader_who_takes_nothing_is_dropped(
    fake: FakeTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.edge.protocol._STALLED_S", 0.3)
    with running_gateway(settings_for(fake, max_connections=1)) as client:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(HANG_S)
            connection.connect(address_of(client))
            asking = threading.Thread(target=trickle_requests, args=(connection,))
            asking.start()
            asking.join(HANG_S)
            assert not asking.is_alive()
        assert client.get("/healthz").status_code == 200


def trickle_requests(connection: socket.socket) -> None:
    """Ask for large answers and read none, until the connection is gone."""
    request = b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
    with contextlib.suppress(ConnectionError):
        while True:
            connection.sendall(request * 50)


def test_a_refused_sender_may_finish(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.edge.protocol._LINGER_S", HANG_S)
    with connect(client) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * 20_000)
        connection.recv(1, socket.MSG_PEEK)
        for _ in range(20):  # On a closed connection the second of these would fail.
            connection.sendall(b"b" * 1000)
            time.sleep(0.01)
        assert_refused(everything(connection), 431)


def test_no_answer_is_written_into_another(client: httpx.Client) -> None:
    head = b"GET /static-offline-docs/swagger-ui-bundle.js HTTP/1.1\r\n" + HOST
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(HANG_S)
        connection.connect(address_of(client))
        connection.sendall(head + b"Transfer-Encoding: chunked\r\nX-Request-Timeout: 0.1\r\n\r\n")
        begun = connection.recv(12)
        connection.sendall(b"xyz\r\n")
        rest = everything(connection)
    assert begun == b"HTTP/1.1 200"
    assert b"HTTP/1.1 " not in rest
