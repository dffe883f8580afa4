"""A request's deadline, from its head to Triton, and clients that disconnect before it."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fake_triton import FakeTriton, Holding, outputs, sleeping
from starlette.requests import ClientDisconnect
from support import (
    PHOTO,
    assert_problem,
    deadline_in,
    number,
    post_raw,
    running_gateway,
    settings_for,
    wait_until,
)

from api.dependencies import _context
from api.readiness import canary_photo
from api.request import Deadline, RequestContext
from api.settings import Settings

HEADER = "X-Request-Timeout"
# A bound for what hangs, not for what is slow.
HANG_S = 20.0


class Connection:
    """A request's messages, which must not be awaited by two at once."""

    def __init__(self) -> None:
        self.disconnects = asyncio.Event()
        self.waiting = 0
        self.chunks = 2

    async def receive(self) -> dict[str, object]:
        assert self.waiting == 0, "two await the messages of one request"
        if self.chunks:
            self.chunks -= 1
            return {"type": "http.request", "body": b"late", "more_body": True}
        self.waiting += 1
        try:
            await self.disconnects.wait()
        finally:
            self.waiting -= 1
        return {"type": "http.disconnect"}


def run(test: Callable[[Connection, RequestContext], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S):
            connection: Any = Connection()
            context = RequestContext(connection, deadline_in(HANG_S))
            await test(connection, context)
            await context.close()
            assert connection.waiting == 0
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(bounded())


async def value(result: int) -> int:
    await asyncio.sleep(0)
    return result


async def fail() -> None:
    await asyncio.sleep(0)
    raise ZeroDivisionError


async def forever(cancelled: list[str]) -> None:
    try:
        cancelled.append("begun")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.append("cancelled")
        raise


def test_a_client_that_nothing_is_done_for_is_not_watched() -> None:
    async def test(connection: Connection, _: RequestContext) -> None:
        assert connection.chunks == 2

    run(test)


def test_results_and_errors_come_through_one_after_the_other_and_concurrently() -> None:
    async def test(_: Connection, context: RequestContext) -> None:
        assert await context.cancel_on_disconnect(value(1)) == 1
        with pytest.raises(ZeroDivisionError):
            await context.cancel_on_disconnect(fail())
        works = (context.cancel_on_disconnect(value(number)) for number in range(5))
        assert await asyncio.gather(*works) == [*range(5)]

    run(test)


def test_a_disconnect_cancels_all_work_and_none_begins_after_it() -> None:
    async def test(connection: Connection, context: RequestContext) -> None:
        done: list[str] = []
        works = [asyncio.create_task(context.cancel_on_disconnect(forever(done))) for _ in range(3)]
        await asyncio.sleep(0.01)
        connection.disconnects.set()
        results = await asyncio.gather(*works, return_exceptions=True)
        assert [type(result) for result in results] == [ClientDisconnect] * 3
        assert done == ["begun"] * 3 + ["cancelled"] * 3
        with pytest.raises(ClientDisconnect):
            await context.cancel_on_disconnect(forever(done))
        assert len(done) == 6

    run(test)


def test_work_ends_with_the_task_that_asked_for_it() -> None:
    async def test(_: Connection, context: RequestContext) -> None:
        done: list[str] = []
        asked = asyncio.create_task(context.cancel_on_disconnect(forever(done)))
        await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert done == ["begun", "cancelled"]
        assert await context.cancel_on_disconnect(value(1)) == 1

    run(test)


def test_errors_of_cancelled_work_are_not_reported_as_lost() -> None:
    async def clumsy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    async def test(connection: Connection, context: RequestContext) -> None:
        complaints: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        work = asyncio.create_task(context.cancel_on_disconnect(clumsy()))
        await asyncio.sleep(0.01)
        connection.disconnects.set()
        with pytest.raises(ClientDisconnect):
            await work
        del work
        await asyncio.sleep(0)
        assert not complaints

    run(test)


def test_the_deadline_counts_from_the_requests_head() -> None:
    async def deadline_of(timeout_s: float | None, started: float) -> Deadline:
        request: Any = SimpleNamespace(state=SimpleNamespace(started=started), receive=None)
        services: Any = SimpleNamespace(settings=SimpleNamespace(request_timeout_s=30.0))
        contexts = _context(request, services, timeout_s)
        context = await anext(contexts)
        await contexts.aclose()
        return context.deadline

    head = time.monotonic() - 7
    assert asyncio.run(deadline_of(10.0, started=head)) == Deadline(head + 10, by_client=True)
    assert asyncio.run(deadline_of(None, started=head)) == Deadline(head + 30)
    assert asyncio.run(deadline_of(50.0, started=head)) == Deadline(head + 30)
    assert deadline_in(-1).remaining_s == 0
    assert 0 < deadline_in(50).remaining_s <= 50


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


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf", "-inf", "soon", "", "1,5"])
def test_time_limits_that_make_no_sense(
    client: httpx.Client, fake: FakeTriton, timeout: str
) -> None:
    document = assert_problem(post(client, timeout), 422, "invalid-parameter")
    assert HEADER in document["detail"]
    assert not fake.photos


@pytest.mark.parametrize(("limit_s", "timeout"), [(30, 1), (1, None), (1, 1000)])
def test_the_shorter_limit_holds_to_triton(
    fake: FakeTriton, limit_s: float, timeout: float | None
) -> None:
    fake.reply = sleeping(3)
    with running_gateway(settings_for(fake, request_timeout_s=limit_s)) as client:
        assert_problem(post(client, timeout), 504, "recognizer-timeout")
    assert 0 < fake.timeout_us <= 1_000_000  # nor does it wait in Triton's queue for longer


def test_time_counts_from_the_head(client: httpx.Client, fake: FakeTriton) -> None:
    with sending(client, PHOTO[:100]) as connection:
        time.sleep(0.3)
        connection.sendall(PHOTO[100:])
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert 0 < fake.timeout_us <= 29_900_000


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


def test_a_full_queue_refuses_by_the_head_and_lets_the_canary_pass(fake: FakeTriton) -> None:
    with full(fake, max_waiting=0) as (client, _):
        with sending(client, PHOTO) as connection:
            assert connection.recv(12) == b"HTTP/1.1 429"
        assert number(client, 'plates_refused_total{reason="full"}') == 1
        assert client.get("/readyz").status_code == 200
        assert fake.photos == [PHOTO, canary_photo()]


def test_a_disconnect_while_triton_works_frees_the_place(fake: FakeTriton) -> None:
    holding = Holding()
    fake.reply = holding
    with running_gateway(settings_for(fake, concurrency=1, max_waiting=0)) as client:
        try:
            with sending(client, PHOTO):
                assert holding.arrived.acquire(timeout=HANG_S)
                assert number(client, "plates_in_flight") == 1
            assert fake.cancelled.acquire(timeout=HANG_S)  # the call to Triton is cancelled, too
            wait_until(lambda: number(client, "plates_in_flight") == 0)
        finally:
            holding.release.set()
        fake.reply = lambda _: outputs()
        assert post(client).status_code == 200
        gone = 'plates_requests_total{method="POST",route="/v1/plates",status="499"}'
        wait_until(lambda: number(client, gone) == 1)


def test_a_disconnect_while_waiting_leaves_the_queue(fake: FakeTriton) -> None:
    with full(fake, max_waiting=1) as (client, _):
        with sending(client, PHOTO):
            wait_until(lambda: number(client, "plates_waiting") == 1)
            assert_problem(post(client), 429, "overloaded")
        wait_until(lambda: number(client, "plates_waiting") == 0)
    assert fake.photos == [PHOTO]  # never sent to Triton


def test_photos_wait_for_their_turn(fake: FakeTriton) -> None:
    with full(fake, max_waiting=4) as (client, holding), ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(post_raw, client, PHOTO) for _ in range(4)]
        wait_until(lambda: number(client, "plates_waiting") == 4)
        assert len(fake.photos) == 1
        holding.release.set()
        assert [future.result().status_code for future in waiting] == [200] * 4
        assert number(client, "plates_queue_seconds_count") == 5
