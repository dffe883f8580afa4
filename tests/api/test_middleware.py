"""Ids, HEAD, headers for browsers, offline documentation, and refused bodies, which are read."""

import contextlib
import http.client
import re
import socket
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fake_triton import FakeTriton
from gateway_support import (
    HANG_S,
    UPLOAD,
    address_of,
    assert_refused,
    begin_upload,
    connect,
    everything,
    full_gateway,
)
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
LARGE = PHOTO + bytes(8_000_000)


@pytest.mark.parametrize("offered", ["a", "Camera_1.2-3", "x" * 64])
def test_the_clients_own_id_is_taken(client: httpx.Client, offered: str) -> None:
    assert client.get("/healthz", headers={HEADER: offered}).headers[HEADER] == offered


@pytest.mark.parametrize(
    "offered", ["", "x" * 65, "a b", "a/b", "ж", 'a"b', "a\n", "a\r\nSet-Cookie: b"]
)
def test_an_id_that_could_break_a_log_is_replaced(offered: str) -> None:
    chosen = choose_request_id(offered)
    assert re.fullmatch("[0-9a-f-]{36}", chosen)
    assert choose_request_id(offered) != chosen


def test_every_answer_has_an_id_and_headers_for_browsers(
    client: httpx.Client, fake: FakeTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr("api.observing.metrics.Metrics.exposition", fail)
    answers = [client.get(path) for path in ("/", "/healthz", "/docs", "/nowhere")]
    answers += [post_raw(client, PHOTO), post_raw(client, b""), client.put("/v1/plates")]
    answers += [client.post("/v1/plates?roi=a")]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 404, 200, 400, 405, 422]
    assert_problem(answers[3], 404, None)
    assert_problem(answers[6], 405, None)
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        is_post = answer.request.method == "POST"
        assert (answer.headers.get("cache-control") == "no-store") == is_post
    answers.append(client.get("/metrics"))
    assert_problem(answers[-1], 500, None)
    assert len({answer.headers[HEADER] for answer in answers}) == len(answers)


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/info/", "/nowhere"]
)
@pytest.mark.usefixtures("fake")
def test_head_is_answered_as_get_is(client: httpx.Client, path: str) -> None:
    get, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0
    assert client.get("/healthz").status_code == 200  # and the connection goes on


def test_head_is_counted_as_head_and_refused_where_there_is_only_post(client: httpx.Client) -> None:
    heads = 'plates_requests_total{method="HEAD",route="/healthz",status="200"}'
    before = number(client, heads)
    client.head("/healthz")
    assert number(client, heads) == before + 1
    answer = client.head("/v1/plates")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
def test_all_of_the_documentation_comes_from_here(client: httpx.Client, page: str) -> None:
    answer = client.get(page)
    links = re.findall(r"""(?:src|href|spec-url)\s*=\s*["']([^"']+)""", answer.text)
    links += re.findall(r"""url: ["']([^"']+)""", answer.text)
    assert len(links) >= 3
    for link in links:
        assert link.startswith("/") and not link.startswith("//"), link
        assert client.get(link).status_code == 200, link
    assert "://" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self' 'unsafe-inline'" in policy
    assert "://" not in policy


@pytest.fixture(scope="module")
def guarded(fake_of_module: FakeTriton) -> Iterator[httpx.Client]:
    """A client of a gateway that refuses everything by its head: it wants a token."""
    with running_gateway(settings_for(fake_of_module, tokens="t", max_bytes=9_000_000)) as client:
        yield client


@pytest.mark.parametrize(
    ("options", "status"),
    [({"tokens": "t"}, 401), ({"max_waiting": 0}, 429), ({"max_connections": 20}, 429)],
    ids=["no token", "full queue", "too many connections"],
)
def test_clients_that_send_everything_first_see_why_they_are_refused(
    fake: FakeTriton, options: dict[str, object], status: int
) -> None:
    """Apache's `ab` is one: it ends at the first connection that is reset."""

    def post(_: int) -> tuple[int, int]:
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
            client = stack.enter_context(running_gateway(settings_for(fake, **options)))
        for _ in range(options.get("max_connections", 0)):
            stack.enter_context(connect(client)).sendall(b"GET /")
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(post, range(24)))
    assert {found for found, _ in answers} == {status}
    assert all(length > 100 for _, length in answers)


def test_a_connection_goes_on_behind_a_refused_body(guarded: httpx.Client) -> None:
    connection = http.client.HTTPConnection(*address_of(guarded), timeout=HANG_S)
    for _ in range(2):
        connection.request("POST", "/v1/plates", LARGE, {"Content-Type": "image/jpeg"})
        assert connection.getresponse().read().startswith(b"{")
        assert connection.sock is not None
    connection.close()


def test_a_client_that_asks_first_is_refused_at_once(guarded: httpx.Client) -> None:
    with begin_upload(guarded, b"", b"Expect: 100-continue") as connection:
        # Well before a body would be given up.
        assert_refused(everything(connection), 401, "missing-token")


def test_a_refused_client_can_not_send_for_ever(guarded: httpx.Client) -> None:
    with begin_upload(guarded, b"", b"X-Request-Timeout: 0.3", length=10**6) as connection:
        last = time.monotonic() + HANG_S
        with pytest.raises(ConnectionError):
            while time.monotonic() < last:
                connection.sendall(b"x")
                time.sleep(0.01)


def test_a_refused_body_is_not_kept(fake: FakeTriton) -> None:
    """Neither what came before it was refused, nor what comes behind it."""
    block = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with running_gateway(settings_for(fake)) as client, connect(client) as connection:
        tracemalloc.start()
        try:
            connection.sendall(UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(30 * 16):  # 30 of at most 20 MiB, and no end
                connection.sendall(block)
            assert tracemalloc.get_traced_memory()[1] > 20 * 2**20
            wait_until(lambda: tracemalloc.get_traced_memory()[0] < 4 * 2**20, 10)
        finally:
            tracemalloc.stop()
        connection.shutdown(socket.SHUT_WR)
