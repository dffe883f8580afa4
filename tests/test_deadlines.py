"""One deadline from the request's head to Triton, and senders who don't wait for it."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import httpx
import numpy as np
import pytest
from fake_triton import FakeTriton, Holding, outputs, refusing, sleeping
from gateway_client import PHOTO, assert_problem, number, post_raw, settings_for
from gateway_fixtures import running_gateway
from patience import wait_until

from api.readiness import canary_photo
from api.settings import Settings

HEADER = "X-Request-Timeout"
# A bound for what hangs, not for what is slow.
HANG_S = 20.0


def post(client: httpx.Client, timeout: object = None) -> httpx.Response:
    given = {} if timeout is None else {HEADER: str(timeout)}
    headers = {"content-type": "image/jpeg", **given}
    return client.post("/v1/plates", content=PHOTO, headers=headers)


@contextmanager
def full(fake: FakeTriton, **options: object) -> Iterator[tuple[httpx.Client, Holding]]:
    """A gateway whose only place is taken until the test releases it."""
    holding = Holding()
    fake.reply = lambda photo: outputs() if photo == canary_photo() else holding(photo)
    settings = settings_for(fake, concurrency=1, **options)
    with running_gateway(settings) as client, ThreadPoolExecutor(1) as pool:
        holder = pool.submit(post, client)
        try:
            assert holding.arrived.acquire(timeout=HANG_S)
            yield client, holding
        finally:
            holding.release.set()
        assert holder.result().status_code == 200


@contextmanager
def sending(client: httpx.Client, body: bytes) -> Iterator[socket.socket]:
    """A connection on which a whole photo was announced, and so much of it sent."""
    url = client.base_url
    with socket.create_connection((url.host, url.port), timeout=HANG_S) as connection:
        head = "POST /v1/plates HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\n"
        connection.sendall(f"{head}Content-Length: {len(PHOTO)}\r\n\r\n".encode() + body)
        yield connection


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "-inf", "soon", "", "1,5"])
def test_time_limits_that_make_no_sense(client: httpx.Client, fake: FakeTriton, value: str) -> None:
    document = assert_problem(post(client, value), 422, "invalid-parameter")
    assert HEADER in document["detail"]
    assert not fake.photos


def test_the_senders_limit_holds_to_triton(client: httpx.Client, fake: FakeTriton) -> None:
    fake.reply = sleeping(3)
    assert_problem(post(client, 1), 504, "recognizer-timeout")
    assert 0 < fake.timeout_us <= 1_000_000  # nor does it wait in Triton's queue for longer


def test_the_services_limit_holds_where_it_is_shorter(fake: FakeTriton) -> None:
    fake.reply = sleeping(3)
    with running_gateway(settings_for(fake, request_timeout_s=1)) as client:
        for timeout in (None, 1000):
            assert_problem(post(client, timeout), 504, "recognizer-timeout")
            assert 0 < fake.timeout_us <= 1_000_000


def test_time_is_counted_from_the_head(client: httpx.Client, fake: FakeTriton) -> None:
    with sending(client, PHOTO[:100]) as connection:
        time.sleep(0.3)
        connection.sendall(PHOTO[100:])
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert 0 < fake.timeout_us <= 29_900_000


def test_the_limit_is_documented(client: httpx.Client) -> None:
    parameters = client.get("/openapi.json").json()["paths"]["/v1/plates"]["post"]["parameters"]
    (header,) = [parameter for parameter in parameters if parameter["in"] == "header"]
    assert header["name"] == HEADER
    assert not header["required"]


def test_triton_learns_the_requests_id(client: httpx.Client, fake: FakeTriton) -> None:
    headers = {"content-type": "image/jpeg", "x-request-id": "gate-7"}
    response = client.post("/v1/plates", content=PHOTO, headers=headers)
    assert response.headers["x-request-id"] == fake.request_id == "gate-7"


def test_a_triton_that_never_speaks_is_given_up() -> None:
    """It takes connections and says nothing: a server that was stopped, or is no Triton."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"127.0.0.1:{silent.getsockname()[1]}"
        with running_gateway(Settings(triton_url=url, ready_timeout_s=0.3)) as client:
            assert_problem(post(client, 1), 504, "recognizer-timeout")
            assert_problem(client.get("/readyz"), 503, None)
            assert client.get("/healthz").status_code == 200


def test_time_that_ends_in_the_queue(fake: FakeTriton) -> None:
    with full(fake) as (client, _):
        response = post(client, 0.3)
        assert_problem(response, 429, "overloaded")
        assert int(response.headers["retry-after"]) >= 1
        assert number(client, 'plates_refused_total{reason="deadline"}') == 1
        assert number(client, "plates_waiting") == 0


def test_a_full_queue_refuses_by_the_head(fake: FakeTriton) -> None:
    with full(fake, max_waiting=0) as (client, _):
        with sending(client, PHOTO) as connection:
            assert connection.recv(12) == b"HTTP/1.1 429"
        assert number(client, 'plates_refused_total{reason="full"}') == 1


def test_the_canary_does_not_stand_in_the_queue(fake: FakeTriton) -> None:
    with full(fake, max_waiting=0) as (client, _):
        assert client.get("/readyz").status_code == 200
        assert fake.photos == [PHOTO, canary_photo()]


def test_who_hangs_up_while_triton_works_frees_the_place(fake: FakeTriton) -> None:
    holding = Holding()
    fake.reply = holding
    with running_gateway(settings_for(fake, concurrency=1, max_waiting=0)) as client:
        try:
            with sending(client, PHOTO):
                assert holding.arrived.acquire(timeout=HANG_S)
                assert number(client, "plates_in_flight") == 1
            assert fake.cancelled.acquire(timeout=HANG_S)  # Triton hears of it
            wait_until(lambda: number(client, "plates_in_flight") == 0)
        finally:
            holding.release.set()
        fake.reply = lambda _: outputs()
        assert post(client).status_code == 200
        gone = 'plates_requests_total{method="POST",route="/v1/plates",status="499"}'
        wait_until(lambda: number(client, gone) == 1)


def test_who_hangs_up_while_waiting_leaves_the_queue(fake: FakeTriton) -> None:
    with full(fake, max_waiting=1) as (client, _):
        with sending(client, PHOTO):
            wait_until(lambda: number(client, "plates_waiting") == 1)
            assert_problem(post(client), 429, "overloaded")
        wait_until(lambda: number(client, "plates_waiting") == 0)
    assert fake.photos == [PHOTO]  # never sent to Triton


def test_photos_wait_for_their_turn(fake: FakeTriton) -> None:
    with full(fake, max_waiting=4) as (client, holding), ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(post, client) for _ in range(4)]
        wait_until(lambda: number(client, "plates_waiting") == 4)
        assert len(fake.photos) == 1
        holding.release.set()
        assert [future.result().status_code for future in waiting] == [200] * 4
        assert number(client, "plates_queue_seconds_count") == 5


@pytest.mark.parametrize(
    ("reply", "timeout", "status"),
    [
        (refusing(grpc.StatusCode.UNAVAILABLE, "Socket closed"), None, 503),
        (sleeping(3), 1, 504),
    ],
)
def test_a_photo_without_recognizer_ends_the_proof_of_readiness(
    fake: FakeTriton,
    reply: Callable[[bytes], dict[str, np.ndarray]],
    timeout: float | None,
    status: int,
) -> None:
    settings = settings_for(fake, ready_max_age_s=60, ready_timeout_s=0.3)
    with running_gateway(settings) as client:
        assert post_raw(client, PHOTO).status_code == 200
        assert client.get("/readyz").status_code == 200
        fake.reply = reply
        assert client.get("/readyz").status_code == 200  # nobody has noticed yet
        assert post(client, timeout).status_code == status
        assert_problem(client.get("/readyz"), 503, None)
        fake.reply = lambda _: outputs()
        assert post_raw(client, PHOTO).status_code == 200
        assert client.get("/readyz").status_code == 200
