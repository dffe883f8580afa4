"""A request's deadline, from its head to Triton, and clients that disconnect before it."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fake_triton import FakeTriton, Holding, outputs, sleeping
from gateway_support import (
    HANG_S,
    begin_upload,
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

from api.readiness import canary_photo


def post(client: httpx.Client, timeout: object) -> httpx.Response:
    headers = {"content-type": "image/jpeg", "x-request-timeout": str(timeout)}
    return client.post("/v1/plates", content=PHOTO, headers=headers)


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf", "-inf", "soon", "", "1,5"])
def test_time_limits_that_make_no_sense(
    client: httpx.Client, fake: FakeTriton, timeout: str
) -> None:
    document = assert_problem(post(client, timeout), 422, "invalid-parameter")
    assert "X-Request-Timeout" in document["detail"]
    assert not fake.photos


@pytest.mark.parametrize(("limit_s", "timeout"), [(30, 0.5), (0.5, None), (0.5, 1000)])
def test_the_shorter_limit_holds_to_triton(
    fake: FakeTriton, limit_s: float, timeout: float | None
) -> None:
    fake.reply = sleeping(2)
    with running_gateway(settings_for(fake, request_timeout_s=limit_s)) as client:
        answer = post_raw(client, PHOTO) if timeout is None else post(client, timeout)
        assert_problem(answer, 504, "recognizer-timeout")
    assert 0 < fake.timeout_us <= 500_000  # nor does it wait in Triton's queue for longer


def test_time_counts_from_the_head(client: httpx.Client, fake: FakeTriton) -> None:
    named = (b"X-Request-Timeout: 10", b"X-Request-Id: gate-7")
    with begin_upload(client, PHOTO[:100], *named) as connection:
        time.sleep(0.3)
        connection.sendall(PHOTO[100:])
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert 0 < fake.timeout_us <= 9_700_000
    assert fake.request_id == "gate-7"


def test_time_that_ends_in_the_queue(fake: FakeTriton) -> None:
    with full_gateway(fake) as (client, _):
        response = post(client, 0.3)
        assert_problem(response, 429, "overloaded")
        assert int(response.headers["retry-after"]) >= 1
        assert number(client, 'plates_refused_total{reason="deadline"}') == 1
        assert number(client, "plates_waiting") == 0


def test_a_full_queue_refuses_by_the_head_and_lets_the_canary_pass(fake: FakeTriton) -> None:
    with full_gateway(fake, max_waiting=0) as (client, _):
        response = post_raw(client, PHOTO)
        assert_problem(response, 429, "overloaded")
        assert int(response.headers["retry-after"]) >= 1
        assert number(client, 'plates_refused_total{reason="full"}') == 1
        assert client.get("/readyz").status_code == 200
        assert fake.photos == [PHOTO, canary_photo()]


def test_slow_uploads_take_no_place(fake: FakeTriton) -> None:
    settings = settings_for(fake, concurrency=1, max_waiting=0)
    with running_gateway(settings) as client, begin_upload(client, PHOTO[:-1]):
        assert {post_raw(client, PHOTO).status_code for _ in range(5)} == {200}


def test_a_disconnect_while_triton_works_frees_the_place(fake: FakeTriton) -> None:
    holding = Holding()
    fake.reply = holding
    with running_gateway(settings_for(fake, concurrency=1, max_waiting=0)) as client:
        try:
            with begin_upload(client, PHOTO):
                assert holding.arrived.acquire(timeout=HANG_S)
                assert number(client, "plates_in_flight") == 1
            assert fake.cancelled.acquire(timeout=HANG_S)  # the call to Triton is cancelled, too
            wait_until(lambda: number(client, "plates_in_flight") == 0)
        finally:
            holding.release.set()
        fake.reply = lambda _: outputs()
        assert post_raw(client, PHOTO).status_code == 200
        left = 'plates_requests_total{method="POST",route="/v1/plates",status="499"}'
        wait_until(lambda: number(client, left) == 1)


@pytest.mark.usefixtures("no_tracebacks")
def test_a_disconnect_within_the_upload(fake: FakeTriton) -> None:
    with running_gateway(settings_for(fake)) as client:
        begin_upload(client, PHOTO[:100]).close()
        wait_until(lambda: number(client, 'plates_requests_total{method="POST"') == 1)
        assert 'status="499"' in client.get("/metrics").text
    assert not fake.photos


def test_a_disconnect_while_waiting_leaves_the_queue(fake: FakeTriton) -> None:
    with full_gateway(fake, max_waiting=1) as (client, _):
        with begin_upload(client, PHOTO):
            wait_until(lambda: number(client, "plates_waiting") == 1)
            assert_problem(post_raw(client, PHOTO), 429, "overloaded")
        wait_until(lambda: number(client, "plates_waiting") == 0)
    assert fake.photos == [PHOTO]  # never sent to Triton


def test_photos_wait_for_their_turn(fake: FakeTriton) -> None:
    with full_gateway(fake, max_waiting=4) as (client, holding), ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(post_raw, client, PHOTO) for _ in range(4)]
        wait_until(lambda: number(client, "plates_waiting") == 4)
        assert len(fake.photos) == 1
        holding.release.set()
        assert [future.result().status_code for future in waiting] == [200] * 4
        assert number(client, "plates_queue_seconds_count") == 5
