"""Connections that are slow, huge, ambiguous, too many, never read, refused, or not HTTP."""

import contextlib
import http.client
import re
import select
import socket
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from gateway_support import full_gateway
from raw_http import (
    ALIVE,
    HANG_S,
    HOST,
    UPLOAD,
    address_of,
    answer_to,
    assert_refused,
    begin_upload,
    connect,
    everything,
    status_of,
)
from support import PHOTO, number, post_raw, running_gateway, wait_until

from api.edge.protocol import MAX_HEADERS, GatewayConfig
from api.main import create_app
from api.settings import Settings

pytestmark = pytest.mark.usefixtures("no_tracebacks")

GET = b"GET / HTTP/1.1\r\n" + HOST
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CLOSE = b"Connection: close\r\n"
LARGE = PHOTO + bytes(8_000_000)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /\r\n\r\n", 400),  # HTTP/0.9
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400),  # TLS
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        (GET + HOST + b"\r\n", 400),
        (GET + b"a: b\x00c\r\n\r\n", 400),
        (GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (GET + b"Content-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n" + HOST + CHUNKED + b"\r\n0\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
        (GET + b"a: " + b"b" * 5_000_000, 431),
        (GET + b"a: b\r\n" * MAX_HEADERS + b"\r\n", 431),
        # Two lengths: behind the shorter body there is a smuggled request.
        (UPLOAD + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + ALIVE, 400),
        (UPLOAD + CHUNKED + b"\r\nxyz\r\n", 400),
        (UPLOAD + CHUNKED + b"\r\n4\r\nabcdX", 400),
        (UPLOAD + CHUNKED + b"\r\n" + b"f" * 40_000, 431),
    ],
)
def test_invalid_http_is_refused(client, fake, data, status, caplog):
    assert_refused(answer_to(client, data), status)
    assert not fake.photos
    assert not caplog.records, "the gateway's own line is of the level info"
    assert client.get("/healthz").status_code == 200


PROXIED = [ALIVE.replace(b"/h", to) for to in (b"HTTP://a:1/h", b"http://a", b"http://a?/")]


@pytest.mark.parametrize("sent", [b"\r\n" + ALIVE, ALIVE + b"\r\n" + ALIVE, *PROXIED])
def test_empty_lines_before_a_request_and_absolute_targets_are_accepted(client, sent):
    answer = answer_to(client, sent[:-2] + CLOSE + b"\r\n")
    assert set(re.findall(rb"HTTP/1.1 (\d+)", answer)) == {b"200"}


def slow_reader(client):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(HANG_S)
    connection.connect(address_of(client))
    return connection


def test_an_error_in_the_body_does_not_write_a_second_answer_into_the_first(client):
    head = b"GET /static-offline-docs/swagger-ui-bundle.js HTTP/1.1\r\n" + HOST + CHUNKED
    with slow_reader(client) as connection:
        connection.sendall(head + b"X-Request-Timeout: 0.1\r\n\r\n")
        begun = connection.recv(12)
        connection.sendall(b"xyz\r\n")
        rest = everything(connection)
    assert begun == b"HTTP/1.1 200"
    assert b"HTTP/1.1 " not in rest


def in_chunks(*chunks):
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return UPLOAD + CLOSE + CHUNKED + b"\r\n" + body + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (in_chunks(PHOTO, *[bytes(80)] * 1200), 200),
        (in_chunks(PHOTO, *[bytes(2)] * 900), 200),
        (in_chunks(*[bytes(2)] * 1200), 400),
    ],
)
def test_too_many_tiny_chunks_are_refused(client, data, status):
    assert status_of(answer_to(client, data)) == status


@pytest.mark.parametrize("first", [b"", ALIVE, ALIVE + b"\r\n"])
@pytest.mark.settings(header_timeout_s=0.5)
def test_a_slow_head_gets_408_and_a_silent_connection_is_closed(client, first):
    received = b""
    with connect(client) as silent, connect(client) as connection:
        connection.sendall(first)  # The second request of a connection has the limit, too.
        silent.sendall(first[-2:])  # an empty line does not begin a head
        for byte in GET + b"a: " + b"b" * 300:
            connection.sendall(bytes([byte]))
            if select.select([connection], [], [], 0.05)[0]:
                received += connection.recv(65536)
            if b" 408 " in received:
                break
        else:
            pytest.fail("each byte extends the time limit")
        assert_refused(received + everything(connection), 408)
        assert everything(silent) == b""


def test_idle_connections_are_kept_longer_than_proxies_keep_theirs():
    settings = Settings()
    assert GatewayConfig(create_app(settings), settings).timeout_keep_alive > 60


@pytest.mark.settings(max_connections=3, header_timeout_s=0.5)
def test_surplus_connections_get_429_and_are_closed_if_there_are_many(client):
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(client)) for _ in range(3)]
        for connection in held:  # An answer shows that the gateway has accepted it.
            connection.sendall(ALIVE)
            assert connection.recv(12) == b"HTTP/1.1 200"
        for answer in [answer_to(client, ALIVE) for _ in range(5)]:
            assert_refused(answer, 429, "overloaded")
            assert b"retry-after: 1" in answer.lower()
        held[0].close()
        wait_until(lambda: client.get("/healthz").status_code == 200)
        assert number(client, 'plates_connections_refused_total{status="429"}') >= 5
        flood = [stack.enter_context(connect(client)) for _ in range(100)]
        for connection in flood:
            with contextlib.suppress(OSError):
                connection.sendall(b"GET / HT")
        answers = [everything(connection) for connection in flood]
        assert b"" in answers
        assert {status_of(answer) for answer in answers if answer} <= {408, 429}
        assert post_raw(client, PHOTO).status_code == 200


@pytest.mark.settings(max_connections=1)
def test_a_client_that_reads_no_answers_is_disconnected(client, monkeypatch):
    monkeypatch.setattr("api.edge.protocol._STALLED_S", 0.3)
    with slow_reader(client) as connection, pytest.raises(ConnectionError):
        while True:
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n")
    assert client.get("/healthz").status_code == 200


@pytest.mark.settings(upload_memory_bytes=88_000_000, upload_timeout_s=3)
def test_an_answer_counts_as_memory_until_it_is_read_or_times_out(client, monkeypatch):
    async def large(*_):  # as a blurred PNG may be; more than the kernel's buffers hold
        return bytes(45_000_000), "image/png"

    monkeypatch.setattr("api.routes.plates.redact", large)
    # While an answer is sent, its photo of 8 MB is no longer held: another such photo has room.
    with slow_reader(client) as connection:
        connection.sendall(ALIVE)
        time.sleep(3.5)  # the time limit starts anew with each answer
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        head = UPLOAD.replace(b" HTTP", b"?redact=1 HTTP")
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(LARGE) + LARGE)
        assert connection.recv(12) == b"HTTP/1.1 200"
        assert post_raw(client, PHOTO, redact="1").status_code == 429
        assert post_raw(client, LARGE).status_code == 200
        wait_until(lambda: post_raw(client, PHOTO, redact="1").status_code == 200, HANG_S)


@pytest.mark.parametrize(
    ("options", "status"),
    [({"tokens": "t"}, 401), ({"max_waiting": 0}, 429), ({"max_connections": 20}, 429)],
    ids=["no token", "full queue", "too many connections"],
)
def test_clients_that_read_only_after_sending_see_why_they_are_refused(fake, options, status):
    """Such a client is Apache's `ab`, which aborts at the first reset connection."""

    def post(_):
        connection = http.client.HTTPConnection(*address_of(client), timeout=HANG_S)
        headers = {"Content-Type": "image/jpeg", "Connection": "close"}
        connection.request("POST", "/v1/plates", LARGE, headers)
        answer = connection.getresponse()
        length = len(answer.read())
        connection.close()
        return answer.status, length

    with contextlib.ExitStack() as stack:
        if "max_waiting" in options:
            client, _ = stack.enter_context(full_gateway(fake, **options))
        else:
            client = stack.enter_context(running_gateway(fake, **options))
        for _ in range(options.get("max_connections", 0)):
            stack.enter_context(connect(client)).sendall(b"GET /")
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(post, range(24)))
    assert {found for found, _ in answers} == {status}
    assert all(length > 100 for _, length in answers)


@pytest.mark.settings(tokens="t", max_bytes=9_000_000)
def test_a_refused_body_is_read_to_its_end_but_only_for_a_limited_time(client):
    connection = http.client.HTTPConnection(*address_of(client), timeout=HANG_S)
    for _ in range(2):  # The connection stays open.
        connection.request("POST", "/v1/plates", LARGE, {"Content-Type": "image/jpeg"})
        answer = connection.getresponse()
        assert answer.status == 401 and answer.read().startswith(b"{")
        assert not answer.will_close
    connection.close()
    with (
        begin_upload(client, b"", b"X-Request-Timeout: 0.3", length=10**6) as endless,
        pytest.raises(ConnectionError),
    ):
        wait_until(lambda: endless.sendall(b"x"), HANG_S)  # only the gateway can end it


@pytest.mark.settings()
def test_a_refused_body_is_not_kept_in_memory(client):
    """Neither the part before the refusal nor the part after it."""
    block = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with connect(client) as connection:
        tracemalloc.start()
        try:
            connection.sendall(UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(30 * 16):  # 30 MiB, without an end; the limit is 20 MiB
                connection.sendall(block)
            assert tracemalloc.get_traced_memory()[1] > 20 * 2**20
            wait_until(lambda: tracemalloc.get_traced_memory()[0] < 4 * 2**20, 10)
        finally:
            tracemalloc.stop()
        connection.shutdown(socket.SHUT_WR)
