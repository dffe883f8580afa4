"""The queue before Triton: first come, first served; never too long; nothing left behind."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from api.admission import Admission
from api.context import Deadline
from api.errors import Overloaded

PATIENT_S = 1000.0
HANG_S = 20.0


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Visitor:
    """Somebody who wants a place, keeps it until told to leave, and remembers the times."""

    def __init__(self, admission: Admission, patience_s: float = PATIENT_S) -> None:
        self.inside = asyncio.Event()
        self.go = asyncio.Event()
        self._admission, self._deadline = admission, Deadline.after(patience_s)
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
        async with admission.place(Deadline.after(patience_s)):
            pass
    return refused.value


async def serve(admission: Admission, clock: Clock, seconds: float) -> None:
    """One visit that takes so long."""
    async with admission.place(Deadline.after(PATIENT_S)):
        clock.now += seconds


def test_nobody_waits_for_a_free_place() -> None:
    async def test() -> None:
        admission = Admission(2, 0)
        assert_empty(admission)
        admission.refuse_if_full(Deadline.after(PATIENT_S))
        async with admission.place(Deadline.after(PATIENT_S)):
            assert (admission.in_flight, admission.waiting) == (1, 0)
            async with admission.place(Deadline.after(PATIENT_S)):
                assert admission.in_flight == 2
        assert_empty(admission)

    run(test)


def test_first_come_first_served() -> None:
    async def test() -> None:
        admission, order = Admission(1, 10), []

        async def visit(number: int) -> None:
            async with admission.place(Deadline.after(PATIENT_S)):
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*map(visit, range(8)))
        assert order == [*range(8)]
        assert_empty(admission)

    run(test)


def test_nobody_overtakes_those_who_wait() -> None:
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
            admission.refuse_if_full(Deadline.after(PATIENT_S))
        for visitor in visitors:
            await visitor.leave()
        assert_empty(admission)
        admission.refuse_if_full(Deadline.after(PATIENT_S))

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
            admission.refuse_if_full(Deadline.after(8))
        admission.refuse_if_full(Deadline.after(11))
        accepted = Visitor(admission, patience_s=11)
        await settle()
        assert admission.waiting == 2
        for visitor in (inside, waiting, accepted):
            await visitor.leave()

    run(test)


def test_a_free_place_is_given_whatever_is_believed() -> None:
    """Otherwise a wrong belief would never be unlearnt."""

    async def test() -> None:
        clock = Clock()
        admission = Admission(1, 10, clock)
        await serve(admission, clock, 100)
        async with admission.place(Deadline.after(1)):
            assert admission.in_flight == 1

    run(test)


def test_a_burst_after_idle_is_not_refused_by_a_stale_mean() -> None:
    async def test() -> None:
        clock = Clock()
        admission = Admission(1, 10, clock)
        await serve(admission, clock, 100)
        first = Visitor(admission)
        await settle()
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
    """Triton hangs: nothing is measured any more, and yet it is known."""

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
                async with admission.place(Deadline.after(PATIENT_S)):
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


def test_a_deadline_that_passes_in_the_queue_blocks_nobody() -> None:
    async def test() -> None:
        admission = Admission(1, 10)
        inside = Visitor(admission)
        await settle()
        hasty, patient = Visitor(admission, patience_s=0.02), Visitor(admission)
        with pytest.raises(Overloaded) as refused:
            await hasty.task
        assert refused.value.reason == "deadline"
        assert (admission.in_flight, admission.waiting) == (1, 1)
        await inside.leave()
        await patient.inside.wait()
        await patient.leave()
        assert_empty(admission)

    run(test)


def test_whoever_has_no_time_left_for_the_work_is_passed_over() -> None:
    async def test() -> None:
        clock = Clock()
        admission = Admission(1, 10, clock)
        inside = Visitor(admission)
        await settle()
        # Nothing is known yet, so both may wait.
        hasty, patient = Visitor(admission, patience_s=30), Visitor(admission)
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


def test_a_deadline_that_has_passed_gets_not_even_a_free_place() -> None:
    async def test() -> None:
        admission = Admission(1, 10)
        assert (await refusal_of(admission, patience_s=0)).reason == "deadline"
        assert_empty(admission)

    run(test)


def test_whoever_goes_frees_the_place_in_the_queue() -> None:
    async def test() -> None:
        admission = Admission(1, 1)
        inside, waiting = Visitor(admission), Visitor(admission)
        await settle()
        assert (await refusal_of(admission)).reason == "full"
        waiting.task.cancel()
        await settle()
        assert admission.waiting == 0
        admission.refuse_if_full(Deadline.after(PATIENT_S))
        inside.task.cancel()
        await settle()
        assert_empty(admission)

    run(test)


def test_a_place_handed_to_somebody_who_goes_at_that_moment_is_passed_on() -> None:
    async def test() -> None:
        admission = Admission(1, 10)
        inside, going, next_one = (Visitor(admission) for _ in range(3))
        await settle()
        inside.go.set()
        await asyncio.sleep(0)  # it wakes, leaves, and hands over
        while not inside.task.done():
            await asyncio.sleep(0)
        going.task.cancel()
        await settle()
        assert next_one.inside.is_set()
        assert (admission.in_flight, admission.waiting) == (1, 0)
        await next_one.leave()
        assert_empty(admission)

    run(test)


def test_whoever_goes_in_the_moment_that_a_place_falls_free_is_passed_over() -> None:
    async def test() -> None:
        admission = Admission(1, 10)
        inside, going, next_one = (Visitor(admission) for _ in range(3))
        await settle()
        inside.go.set()  # awake first
        going.task.cancel()
        await settle()
        assert inside.task.done() and inside.task.exception() is None
        assert next_one.inside.is_set()
        await next_one.leave()
        assert_empty(admission)

    run(test)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_bounds_hold_and_nothing_is_left(seed: int) -> None:
    """Visitors who come, work, fail, lose patience, or are cancelled at any moment."""

    async def test() -> None:
        chance = random.Random(seed)
        concurrency, max_waiting = chance.randint(1, 4), chance.randint(0, 6)
        admission, inside = Admission(concurrency, max_waiting), 0
        outcomes: set[str] = set()

        async def visit(fails: bool, patience_s: float) -> None:
            nonlocal inside
            async with admission.place(Deadline.after(patience_s)):
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
        for result in await asyncio.gather(*visitors, return_exceptions=True):
            outcomes.add(type(result).__name__)
        assert outcomes == {"NoneType", "ZeroDivisionError", "CancelledError", "Overloaded"}
        assert_empty(admission)
        assert inside == 0
        async with admission.place(Deadline.after(PATIENT_S)):
            pass

    run(test)
