"""The queue before Triton: first come, first served, and nothing left behind."""

import asyncio
import random

import pytest
from admission_visitors import PATIENT_S, Visitor, assert_empty, refusal_of, run, settle

from api.admission import Admission
from api.errors import Overloaded
from api.request import Deadline


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
