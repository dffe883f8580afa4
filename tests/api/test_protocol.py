"""Connections: slow, huge, ambiguous, too many, never read, or no HTTP at all."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fake_triton import FakeTriton
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
from support import PHOTO, post_raw, running_gateway, settings_for, wait_until

from api.edge.protocol import MAX_HEADERS, GatewayProtocol

pytestmark = pytest.mark.usefixtures("no_tracebacks")


@pytest.fixture(scope="module")
def hasty(fake_of_module: FakeTriton) -> Iterator[httpx.Client]:
    """A client of a gateway that waits half a second for a request's head."""
    with running_gateway(settings_for(fake_of_module, header_timeout_s=0.5)) as client:
        yield client


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /\r\n\r\n", 400),  # HTTP/0.9
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400),  # TLS
        (b"\x00" * 100_000, 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"Bad Name: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\x00c\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"G@T / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * 5_000_000, 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\r\n" * MAX_HEADERS + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 500_000, 431),
    ],
)
def test_heads_that_make_no_sense(client: httpx.Client, data: bytes, status: int) -> None:
    assert_refused(answer_to(client, data), status)
    assert client.get("/healthz").status_code == 200


def test_a_length_told_in_two_ways_is_refused(client: httpx.Client, fake: FakeTriton) -> None:
    head = b"POST /v1/plates HTTP/1.1\r\n" + HOST + b"Content-Type: image/jpeg\r\n"
    smuggled = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + ALIVE
    for name in (b"Transfer-Encoding", b"transfer-encoding", b"TRANSFER-ENCODING"):
        data = head + smuggled.replace(b"Transfer-Encoding", name)
        assert_refused(answer_to(client, data), 400)
    assert not fake.photos


@pytest.mark.parametrize("chunks", [b"xyz\r\n", b"4\r\nabcdX", b"-1\r\n", b"f" * 40_000])
def test_broken_chunks(client: httpx.Client, fake: FakeTriton, chunks: bytes) -> None:
    head = b"POST /v1/plates HTTP/1.1\r\n" + HOST + b"Content-Type: image/jpeg\r\n"
    answer = answer_to(client, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert_refused(answer, 431 if len(chunks) > 10_000 else 400)
    assert not fake.photos
    assert post_raw(client, PHOTO).status_code == 200


@pytest.mark.parametrize(
    ("count", "size", "status"), [(1200, 80, 200), (900, 2, 200), (1200, 2, 400)]
)
def test_bodies_in_crumbs(
    client: httpx.Client, fake: FakeTriton, count: int, size: int, status: int
) -> None:
    photo = PHOTO + bytes(max(0, count * size - len(PHOTO)))
    rest, crumbs = photo[: len(photo) - count * size], photo[len(photo) - count * size :]
    chunks = [rest, *(crumbs[at : at + size] for at in range(0, len(crumbs), size)), b""]
    if status == 400:  # what came before makes up for some
        chunks = chunks[1:]
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in filter(None, chunks))
    head = b"POST /v1/plates HTTP/1.1\r\nContent-Type: image/jpeg\r\nConnection: close\r\n" + HOST
    data = head + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"
    assert status_of(answer_to(client, data)) == status
    assert len(fake.photos) == (status == 200)


def test_broken_chunks_behind_an_answer(client: httpx.Client) -> None:
    head = b"POST /nowhere HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n"
    with connect(client) as connection:
        connection.sendall(head + b"X-Request-Timeout: 0.1\r\n\r\n")
        assert status_of(one_answer(connection)) == 404
        connection.sendall(b"xyz\r\n")
        # Either nothing further, or one refusal: never a second answer in the first one.
        rest = everything(connection)
    assert not rest or status_of(rest) == 400
    assert client.get("/healthz").status_code == 200


def test_pipelined_requests_are_answered_in_order(client: httpx.Client) -> None:
    asked = ALIVE + ALIVE.replace(b"/healthz", b"/nowhere") + ALIVE
    closing = ALIVE.replace(HOST, HOST + b"Connection: close\r\n")
    answer = answer_to(client, asked + closing)
    statuses = [int(part.split(b" ", 1)[0]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 404, 200, 200]


def test_junk_behind_a_request(client: httpx.Client) -> None:
    answer = answer_to(client, ALIVE + b"\x00\x01\x02\r\n\r\n")
    assert status_of(answer) == 200
    assert_refused(answer[answer.rindex(b"HTTP/1.1 4") :], 400)


@pytest.mark.parametrize("target", [b"*", b"http://elsewhere/healthz", b"//", b"/%00", b"/%ff%fe"])
def test_odd_targets_are_just_not_there(client: httpx.Client, target: bytes) -> None:
    request = b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    assert status_of(answer_to(client, request)) == 404


def test_upgrades_are_not_taken(client: httpx.Client) -> None:
    upgrade = b"Connection: upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    assert status_of(answer_to(client, ALIVE.replace(HOST, HOST + upgrade))) == 200


def trickle(connection: socket.socket, data: bytes, stop: threading.Event) -> None:
    """Send a byte now and then; sets `stop` only if all of them could be sent."""
    with contextlib.suppress(OSError):
        for byte in data:
            connection.sendall(bytes([byte]))
            if stop.wait(0.05):
                return
        stop.set()


@pytest.mark.parametrize("first", [b"", ALIVE])
def test_a_trickling_head_does_not_extend_its_time(hasty: httpx.Client, first: bytes) -> None:
    stop = threading.Event()
    with connect(hasty) as connection:
        if first:  # The second request of a connection is watched as well.
            connection.sendall(first)
            assert status_of(one_answer(connection)) == 200
        data = b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * 1000
        sender = threading.Thread(target=trickle, args=(connection, data, stop))
        sender.start()
        try:
            assert_refused(everything(connection), 408)
            assert not stop.is_set()  # There was much more to send.
        finally:
            stop.set()
            sender.join()
    assert hasty.get("/healthz").status_code == 200


def test_a_connection_without_a_byte_is_closed_silently(hasty: httpx.Client) -> None:
    with connect(hasty) as connection:
        assert everything(connection) == b""


def test_a_slow_photo_outlives_the_time_of_heads(hasty: httpx.Client, fake: FakeTriton) -> None:
    length = f"Content-Length: {len(PHOTO)}\r\n\r\n".encode()
    head = b"POST /v1/plates HTTP/1.1\r\nContent-Type: image/jpeg\r\nConnection: close\r\n" + HOST
    with connect(hasty) as connection:
        connection.sendall(head + length + PHOTO[:100])
        time.sleep(0.8)
        connection.sendall(PHOTO[100:])
        assert status_of(everything(connection)) == 200


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
