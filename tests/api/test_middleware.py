"""What every request meets first: a name, HEAD, and a body that is read before it is refused."""

import contextlib
import http.client
import re
import shutil
import socket
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fake_triton import FakeTriton, Holding
from raw_connections import HANG_S, HOST, address_of, connect, everything, status_of
from support import (
    PHOTO,
    assert_problem,
    number,
    post_raw,
    running_gateway,
    settings_for,
    wait_until,
)

from api.edge.middleware import choose_request_id

HEADER = "x-request-id"


@pytest.mark.parametrize("offered", ["a", "Camera_1.2-3", "x" * 64])
def test_the_senders_own_id_is_taken(client: httpx.Client, offered: str) -> None:
    assert client.get("/healthz", headers={HEADER: offered}).headers[HEADER] == offered


@pytest.mark.parametrize(
    "offered", ["", "x" * 65, "a b", "a/b", "ж", 'a"b', "a\n", "a\r\nSet-Cookie: b"]
)
def test_what_could_break_a_log_is_replaced(offered: str) -> None:
    chosen = choose_request_id(offered)
    assert chosen != offered
    assert len(chosen) == 36
    assert choose_request_id(offered) != chosen


def test_answers_of_every_kind_have_one(
    client: httpx.Client, fake: FakeTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        post_raw(client, PHOTO),
        post_raw(client, b""),
        client.get("/nowhere"),
        client.put("/v1/plates"),
        client.post("/v1/plates?roi=a"),
        client.get("/metrics"),
    ]
    assert [answer.status_code for answer in answers] == [200, 400, 404, 405, 422, 200]
    ids = {answer.headers[HEADER] for answer in answers}
    assert len(ids) == len(answers)


def test_an_unexpected_exception_is_named_too(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr("api.observing.metrics.Metrics.exposition", fail)
    answer = client.get("/metrics", headers={HEADER: "mine"})
    assert_problem(answer, 500, None)
    assert answer.headers.get_list(HEADER) == ["mine"]


GETS = ("/", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/info/", "/nowhere")


@pytest.mark.parametrize("path", GETS)
def test_head_is_answered_as_get_is(client: httpx.Client, fake: FakeTriton, path: str) -> None:
    get, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0
    assert client.get("/healthz").status_code == 200  # and the connection goes on


def test_head_is_counted_as_what_it_is(client: httpx.Client) -> None:
    before = number(client, 'plates_requests_total{method="HEAD",route="/healthz",status="200"}')
    client.head("/healthz")
    after = number(client, 'plates_requests_total{method="HEAD",route="/healthz",status="200"}')
    assert after == before + 1


def test_head_where_nothing_can_be_got(client: httpx.Client) -> None:
    answer = client.head("/v1/plates")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/docs", "/metrics", "/"])
def test_browsers_keep_to_what_was_meant(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_plates_are_kept_in_no_cache(client: httpx.Client, fake: FakeTriton) -> None:
    assert post_raw(client, PHOTO).headers["cache-control"] == "no-store"


HEAD = b"POST /v1/plates HTTP/1.1\r\n" + HOST + b"Content-Type: image/jpeg\r\n"
LARGE = PHOTO + bytes(8_000_000)


@pytest.fixture(scope="module")
def guarded(fake_of_module: FakeTriton) -> Iterator[httpx.Client]:
    """A client of a gateway that refuses everything by its head: it wants a token."""
    with running_gateway(settings_for(fake_of_module, tokens="t")) as client:
        yield client


def test_clients_that_send_everything_first_see_why_they_are_refused(guarded: httpx.Client) -> None:
    def post(_: int) -> tuple[int, int]:
        connection = http.client.HTTPConnection(*address_of(guarded), timeout=HANG_S)
        headers = {"Content-Type": "image/jpeg", "Connection": "close"}
        connection.request("POST", "/v1/plates", LARGE, headers)
        answer = connection.getresponse()
        length = len(answer.read())
        connection.close()
        return answer.status, length

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(post, range(24)))
    assert {status for status, _ in answers} == {401}
    assert all(length > 100 for _, length in answers)


def test_a_connection_goes_on_behind_a_refused_body(guarded: httpx.Client) -> None:
    connection = http.client.HTTPConnection(*address_of(guarded), timeout=HANG_S)
    for _ in range(2):
        connection.request("POST", "/v1/plates", LARGE, {"Content-Type": "image/jpeg"})
        assert connection.getresponse().read().startswith(b"{")
        assert connection.sock is not None
    connection.close()


def test_a_client_that_asks_first_is_refused_at_once(guarded: httpx.Client) -> None:
    with connect(guarded) as connection:
        asking = b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(HEAD + asking)
        answer = everything(connection)  # well before a body would be given up
    assert status_of(answer) == 401
    assert b"connection: close" in answer.lower()


def test_a_refused_client_can_not_send_for_ever(guarded: httpx.Client) -> None:
    ended = threading.Event()

    def endless() -> Iterator[bytes]:
        while not ended.is_set():
            yield b"x" * 1000
            time.sleep(0.01)

    hang = threading.Timer(HANG_S, ended.set)
    hang.start()
    try:
        answer = guarded.post("/v1/plates", content=endless(), headers={"x-request-timeout": "0.3"})
        assert answer.status_code == 401
    except httpx.TransportError:  # It was cut off while it was sending.
        pass
    finally:
        assert not ended.is_set()  # It was not we who stopped sending.
        hang.cancel()


def test_a_body_without_bounds_is_cut_off(fake: FakeTriton) -> None:
    sent = 0
    with running_gateway(settings_for(fake, tokens="t", max_bytes=100_000)) as client:
        with connect(client) as connection, pytest.raises(ConnectionError):
            connection.sendall(HEAD + b"Content-Length: 1000000000\r\n\r\n")
            while True:
                sent += connection.send(bytes(100_000))
        assert sent < 50_000_000
        assert client.get("/healthz").status_code == 200


def test_a_refused_body_is_not_kept(fake: FakeTriton) -> None:
    """Neither what came before it was refused, nor what comes behind it."""
    block = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with running_gateway(settings_for(fake)) as client, connect(client) as connection:
        tracemalloc.start()
        try:
            connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(30 * 16):  # 30 of at most 20 MiB, and no end
                connection.sendall(block)
            assert tracemalloc.get_traced_memory()[1] > 20 * 2**20
            wait_until(lambda: tracemalloc.get_traced_memory()[0] < 4 * 2**20, 10)
        finally:
            tracemalloc.stop()
        connection.shutdown(socket.SHUT_WR)


@pytest.mark.skipif(shutil.which("ab") is None, reason="ab is not here (apache2-utils)")
@pytest.mark.parametrize(
    "options",
    [{"concurrency": 1, "max_waiting": 0}, {"tokens": "t"}, {"max_connections": 100}],
    ids=["a full queue", "no token", "too many connections"],
)
def test_apaches_load_tool_counts_refusals(
    fake: FakeTriton, tmp_path: Path, options: dict[str, object]
) -> None:
    """It sends all of a photo before it reads, one connection per photo, and dies of a reset."""
    (tmp_path / "photo.jpg").write_bytes(PHOTO + bytes(3_000_000))
    held = Holding()
    fake.reply = held
    settings = settings_for(fake, **options)
    with running_gateway(settings) as client, contextlib.ExitStack() as stack:
        if "concurrency" in options:
            holder = stack.enter_context(ThreadPoolExecutor(1)).submit(post_raw, client, PHOTO)
            assert held.arrived.acquire(timeout=HANG_S)
        for _ in range(options.get("max_connections", 0)):
            stack.enter_context(connect(client)).sendall(b"GET /")
        command = ["ab", "-c", "40", "-n", "300", "-p", str(tmp_path / "photo.jpg")]
        url = f"http://{client.base_url.host}:{client.base_url.port}/v1/plates"
        done = subprocess.run(
            [*command, "-T", "image/jpeg", url], capture_output=True, text=True, timeout=120
        )
        held.release.set()
        if "concurrency" in options:
            assert holder.result().status_code == 200
    assert done.returncode == 0, done.stderr
    assert re.search(r"Complete requests: +300\n", done.stdout)
    assert re.search(r"Non-2xx responses: +300\n", done.stdout)
