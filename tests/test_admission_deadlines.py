"""The queue before Triton: who is told to come again later, and when."""

import asyncio
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from admission_visitors import (
    PATIENT_S,
    Visitor,
    assert_empty,
    refusal_of,
    run,
    serve,
    settle,
)
from patience import Clock

from api.admission import Admission
from api.errors import Overloaded, RecognizerTimeout
from api.observing.metrics import Metrics
from api.readiness import Readiness
from api.reading import PhotoReader
from api.request import Deadline
from api.settings import Settings


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


@pytest.mark.parametrize(("waited_s", "expected"), [(5, Overloaded), (1, RecognizerTimeout)])
def test_whose_time_was_spent_in_the_queue_is_told_of_the_queue(
    monkeypatch: pytest.MonkeyPatch, waited_s: float, expected: type[Exception]
) -> None:
    """Its turn came, and Triton was too slow for what was left."""
    clock = Clock()

    class TooSlow:
        async def recognize(self, *_: object) -> NoReturn:
            clock.now += 2
            raise RecognizerTimeout("Not in time.")

    async def test() -> None:
        monkeypatch.setattr("api.reading.time", SimpleNamespace(perf_counter=clock))
        settings = Settings(triton_url="127.0.0.1:1", concurrency=1)
        reader = PhotoReader(settings, TooSlow(), Readiness(TooSlow(), 1, 1), Metrics())
        inside = Visitor(reader._admission)
        await settle()
        context: Any = SimpleNamespace(deadline=Deadline.after(PATIENT_S), request_id="1")
        reading = asyncio.create_task(reader._read(b"photo", context))
        await settle()
        clock.now += waited_s
        await inside.leave()
        with pytest.raises(expected):
            await reading
        assert_empty(reader._admission)

    run(test)
