"""What a request carries: one watch over its sender, however many wait for a photo of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from api.context import Deadline, Sender, _context

HANG_S = 20.0


class Connection:
    """A request's messages, which must not be awaited by two at once."""

    def __init__(self) -> None:
        self.hangs_up = asyncio.Event()
        self.waiting = 0
        self.chunks = 2

    async def receive(self) -> dict[str, object]:
        assert self.waiting == 0, "two await the messages of one request"
        if self.chunks:
            self.chunks -= 1
            return {"type": "http.request", "body": b"late", "more_body": True}
        self.waiting += 1
        try:
            await self.hangs_up.wait()
        finally:
            self.waiting -= 1
        return {"type": "http.disconnect"}


def run(test: Callable[[Connection, Sender], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S):
            connection = Connection()
            sender = Sender(connection.receive)
            await test(connection, sender)
            await sender.release()
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
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.append("cancelled")
        raise


def test_a_watch_that_nobody_needed_ends_too() -> None:
    async def test(connection: Connection, sender: Sender) -> None:
        assert connection.chunks == 2

    run(test)


def test_results_and_errors_come_through_one_after_the_other_and_side_by_side() -> None:
    async def test(_: Connection, sender: Sender) -> None:
        assert await sender.unless_gone(value(1)) == 1
        with pytest.raises(ZeroDivisionError):
            await sender.unless_gone(fail())
        works = (sender.unless_gone(value(number)) for number in range(5))
        assert await asyncio.gather(*works) == [*range(5)]

    run(test)


def test_who_hangs_up_ends_all_work_and_any_that_follows() -> None:
    async def test(connection: Connection, sender: Sender) -> None:
        cancelled: list[str] = []
        works = [asyncio.create_task(sender.unless_gone(forever(cancelled))) for _ in range(3)]
        await asyncio.sleep(0.01)
        connection.hangs_up.set()
        results = await asyncio.gather(*works, return_exceptions=True)
        assert [type(result) for result in results] == [ClientDisconnect] * 3
        assert cancelled == ["cancelled"] * 3
        with pytest.raises(ClientDisconnect):
            await sender.unless_gone(forever(cancelled))

    run(test)


def test_work_ends_with_whoever_asked_for_it() -> None:
    async def test(_: Connection, sender: Sender) -> None:
        cancelled: list[str] = []
        asked = asyncio.create_task(sender.unless_gone(forever(cancelled)))
        await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert cancelled == ["cancelled"]
        assert await sender.unless_gone(value(1)) == 1

    run(test)


def test_errors_while_work_is_given_up_are_not_lost_in_the_log() -> None:
    async def clumsy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    async def test(connection: Connection, sender: Sender) -> None:
        complaints: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        work = asyncio.create_task(sender.unless_gone(clumsy()))
        await asyncio.sleep(0.01)
        connection.hangs_up.set()
        with pytest.raises(ClientDisconnect):
            await work
        del work
        await asyncio.sleep(0)
        assert not complaints

    run(test)


def test_the_deadline_is_counted_from_the_requests_head() -> None:
    async def deadline_of(timeout_s: float | None, **state: object) -> float:
        request: Any = SimpleNamespace(scope={"state": state}, receive=None)
        services: Any = SimpleNamespace(settings=SimpleNamespace(request_timeout_s=30.0))
        contexts = _context(request, services, timeout_s)
        context = await anext(contexts)
        await contexts.aclose()
        return context.deadline.at

    head = time.monotonic() - 7
    assert asyncio.run(deadline_of(10.0, started=head)) == head + 10
    assert asyncio.run(deadline_of(None, started=head)) == head + 30
    assert asyncio.run(deadline_of(50.0, started=head)) == head + 30
    assert asyncio.run(deadline_of(10.0)) > head + 15  # without that middleware, from now


def test_a_deadline_that_has_passed_leaves_nothing() -> None:
    assert Deadline.after(-1).remaining_s == 0
    assert 0 < Deadline.after(50).remaining_s <= 50
