"""The admission queue: first come, first served, nothing left behind; which photo is refused."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from support import Clock, deadline_in

from api.admission import Admission
from api.errors import Overloaded, RecognizerTimeout
from api.observing.metrics import Metrics
from api.readiness import Readiness
from api.reading import PhotoReader
from api.request import Deadline
from api.settings import Settings

PATIENT_S = 1000.0
HANG_S = 20.0


class Visitor:
    """A photo that takes a place and keeps it until it is let go."""

    def __init__(self, admission: Admission, patience_s: float = PATIENT_S) -> None:
        self.inside = asyncio.Event()
        self.go = asyncio.Event()
        self._admission, self._deadline = admission, deadline_in(patience_s)
        self.task = asyncio.create_task(self._visit())

    async def _visit(self) -> None:
        async with self._admission.place(self._deadline):
            self.inside.set()
            await self.go.wait()

    async def leave(self) -> None:
        self.go.set()
        await self.task


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S):
            await test()

    asyncio.run(bounded())


def assert_empty(admission: Admission) -> None:
    assert (admission.in_flight, admission.waiting) == (0, 0)


async def refusal_of(admission: Admission, patience_s: float = PATIENT_S) -> Overloaded:
    with pytest.raises(Overloaded) as refused:
        async with admission.place(deadline_in(patience_s)):
            pass
    return refused.value


async def serve(admission: Admission, clock: Clock, seconds: float) -> None:
    """One photo that takes so long."""
    async with admission.place(deadline_in(PATIENT_S)):
        clock.now += seconds


def test_first_come_first_served_and_a_free_place_at_once() -> None:
    async def test() -> None:
        admission, order = Admission(1, 10), []
        assert_empty(admission)

        async def visit(number: int) -> None:
            async with admission.place(deadline_in(PATIENT_S)):
                assert admission.in_flight == 1
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*map(visit, range(8)))
        assert order == [*range(8)]
        assert_empty(admission)

    run(test)


def test_no_photo_overtakes_those_that_wait() -> None:
    async def test() -> None:
        admission = Admission(1, 10)
        first, second = Visitor(admission), Visitor(admission)
        await settle()
        first.go.set()
        # The place is free within this very call, and still it is the second's.
        third = Visitor(admission)
        await settle()
        assert second.inside.is_set() and not third.inside.is_set()
        await second.leave()
        await third.leave()
        assert_empty(admission)

    run(test)


def test_a_full_queue_refuses_at_once() -> None:
    async def test() -> None:
        admission = Admission(2, 3)
        visitors = [Visitor(admission) for _ in range(5)]
        await settle()
        assert (admission.in_flight, admission.waiting) == (2, 3)
        refused = await refusal_of(admission)
        assert (refused.status, refused.reason) == (429, "full")
        assert int(refused.headers["Retry-After"]) >= 1
        with pytest.raises(Overloaded):
            admission.refuse_if_full(deadline_in(PATIENT_S))
        visitors.pop().task.cancel()  # one that waits frees its place in the queue
        await settle()
        admission.refuse_if_full(deadline_in(PATIENT_S))
        for visitor in visitors:
            await visitor.leave()
        assert_empty(admission)

    run(test)


@pytest.mark.parametrize("handed_over", [True, False])
def test_a_place_goes_to_the_next_if_its_photo_is_cancelled_at_that_moment(
    handed_over: bool,
) -> None:
    async def test() -> None:
        admission = Admission(1, 10)
        inside, cancelled, next_one = (Visitor(admission) for _ in range(3))
        await settle()
        inside.go.set()
        while handed_over and not inside.task.done():
            await asyncio.sleep(0)
        cancelled.task.cancel()
        await settle()
        assert inside.task.done() and inside.task.exception() is None
        assert next_one.inside.is_set()
        assert (admission.in_flight, admission.waiting) == (1, 0)
        await next_one.leave()
        assert_empty(admission)

    run(test)


@pytest.mark.parametrize("seed", range(8))
def test_bounds_hold_and_nothing_is_left_in_any_order_of_events(seed: int) -> None:
    """Photos that come, are read, fail, run out of time, or are cancelled at any moment."""

    async def test() -> None:
        chance = random.Random(seed)
        concurrency, max_waiting = chance.randint(1, 4), chance.randint(0, 6)
        admission, inside = Admission(concurrency, max_waiting), 0

        async def visit(fails: bool, patience_s: float) -> None:
            nonlocal inside
            async with admission.place(deadline_in(patience_s)):
                inside += 1
                assert inside <= concurrency
                assert admission.waiting <= max_waiting
                try:
                    await asyncio.sleep(chance.choice([0, 0, 0.001]))
                    if fails:
                        raise ZeroDivisionError
                finally:
                    inside -= 1

        visitors: list[asyncio.Task[None]] = []
        for _ in range(300):
            patience_s = chance.choice([0, 0.0005, 0.005, PATIENT_S, PATIENT_S])
            visitors.append(asyncio.create_task(visit(chance.random() < 0.1, patience_s)))
            if chance.random() < 0.3:
                chance.choice(visitors).cancel()
            if chance.random() < 0.5:
                await asyncio.sleep(chance.choice([0, 0, 0.001]))
        results = await asyncio.gather(*visitors, return_exceptions=True)
        outcomes = {type(result).__name__ for result in results}
        assert outcomes == {"NoneType", "ZeroDivisionError", "CancelledError", "Overloaded"}
        assert_empty(admission)
        assert inside == 0
        async with admission.place(deadline_in(PATIENT_S)):
            pass

    run(test)


def test_a_wait_that_does_not_fit_the_deadline_is_refused_at_once() -> None:
    async def test() -> None:
        clock = Clock()
        admission = Admission(1, 10, clock)
        for _ in range(40):  # until the deviation is forgotten
            await serve(admission, clock, 3)
        inside, waiting = Visitor(admission), Visitor(admission)
        await settle()
        # Two before it at three seconds each, and three of its own.
        refused = await refusal_of(admission, patience_s=8)
        assert refused.reason == "wait"
        assert refused.headers["Retry-After"] == "6"
        with pytest.raises(Overloaded):
            admission.refuse_if_full(deadline_in(8))
        admission.refuse_if_full(deadline_in(11))
        accepted = Visitor(admission, patience_s=11)
        await settle()
        assert admission.waiting == 2
        for visitor in (inside, waiting, accepted):
            await visitor.leave()

    run(test)


def test_stale_times_refuse_no_photo() -> None:
    async def test() -> None:
        clock = Clock()
        admission = Admission(1, 10, clock)
        await serve(admission, clock, 100)
        # A free place is given all the same: otherwise a wrong estimate would stay.
        first = Visitor(admission, patience_s=50)
        await settle()
        assert admission.in_flight == 1
        assert (await refusal_of(admission, patience_s=50)).reason == "wait"
        await first.leave()
        clock.now += 60
        burst = [Visitor(admission, patience_s=50) for _ in range(10)]
        await settle()
        assert (admission.in_flight, admission.waiting) == (1, 9)
        for visitor in burst:
            await visitor.leave()

    run(test)


def test_places_kept_longer_than_ever_count_before_they_are_free() -> None:
    """Triton hangs: nothing is measured any more."""

    async def test() -> None:
        clock = Clock()
        admission = Admission(2, 10, clock)
        await serve(admission, clock, 0.1)
        visitors = [Visitor(admission), Visitor(admission)]
        await settle()
        clock.now += 60
        assert (await refusal_of(admission, patience_s=20)).reason == "wait"
        for visitor in visitors:
            await visitor.leave()

    run(test)


def test_quick_failures_teach_nothing_and_late_ones_do() -> None:
    async def test() -> None:
        clock = Clock()
        admission = Admission(1, 10, clock)

        async def fail_after(seconds: float) -> None:
            with pytest.raises(ZeroDivisionError):
                async with admission.place(deadline_in(PATIENT_S)):
                    clock.now += seconds
                    raise ZeroDivisionError

        await serve(admission, clock, 1)
        before = admission._times.mean_s
        for _ in range(4):
            await fail_after(0.001)
        assert admission._times.mean_s == before
        await fail_after(4)
        assert admission._times.mean_s > before
        assert_empty(admission)

    run(test)


@pytest.mark.parametrize("passes", [True, False])
def test_a_deadline_that_passes_in_the_queue_blocks_no_other_photo(passes: bool) -> None:
    """Or one that is too near, by what is known when the turn comes."""

    async def test() -> None:
        clock = Clock()
        admission = Admission(1, 10, clock)
        assert (await refusal_of(admission, patience_s=0)).reason == "deadline"
        inside = Visitor(admission)
        await settle()
        hasty, patient = Visitor(admission, 0.02 if passes else 30), Visitor(admission)
        if passes:
            await asyncio.wait({hasty.task})
            assert (admission.in_flight, admission.waiting) == (1, 1)
        await settle()
        clock.now += 40
        await inside.leave()
        with pytest.raises(Overloaded) as refused:
            await hasty.task
        assert refused.value.reason == "deadline"
        await patient.inside.wait()
        await patient.leave()
        assert_empty(admission)

    run(test)


@pytest.mark.parametrize("by_client", [True, False])
@pytest.mark.parametrize(("waited_s", "expected"), [(5, Overloaded), (1, RecognizerTimeout)])
def test_a_time_out_is_the_queues_or_tritons_and_the_clients_or_ours(
    monkeypatch: pytest.MonkeyPatch, waited_s: float, expected: type[Exception], by_client: bool
) -> None:
    """The photo's turn came, and Triton was too slow for what was left."""
    clock = Clock()

    class TooSlow:
        async def recognize(self, *_: object) -> NoReturn:
            clock.now += 2
            raise RecognizerTimeout("Not in time.")

    async def test() -> None:
        monkeypatch.setattr("api.reading.time", SimpleNamespace(perf_counter=clock))
        settings = Settings(triton_url="127.0.0.1:1", concurrency=1)
        client: Any = TooSlow()
        reader = PhotoReader(settings, client, Readiness(client, 1, 1), Metrics())
        inside = Visitor(reader._admission)
        await settle()
        deadline = Deadline(deadline_in(PATIENT_S).at, by_client)
        context: Any = SimpleNamespace(deadline=deadline, request_id="1")
        reading = asyncio.create_task(reader._read(b"photo", context))
        await settle()
        clock.now += waited_s
        await inside.leave()
        with pytest.raises(expected) as raised:
            await reading
        if expected is RecognizerTimeout:
            assert raised.value.by_client == by_client
        assert_empty(reader._admission)

    run(test)
