"""What the fault bench makes of what senders saw."""

import dataclasses
import os

import pytest

from plates.benchmarks import faults
from plates.benchmarks.aftermath import Leftovers, Seen, leftovers_of, lies, seen_of
from plates.benchmarks.faults import FAULTS, Outcome
from plates.benchmarks.http1 import Target
from plates.benchmarks.steady_load import Attempt, SteadyLoad
from plates.serving import processes

NOBODY = Target("127.0.0.1", 1)


def attempt(began: float, ended: float, status: int = 200, **differing: object) -> Attempt:
    right = status == 200
    values = {"retry_after": status in (429, 503), "right": right, "told": "" if right else "no"}
    return Attempt(began, ended, status, **(values | differing))  # type: ignore[arg-type]


def load_of(photos: list[Attempt], readiness: list[Attempt]) -> SteadyLoad:
    load = SteadyLoad(NOBODY, 0)
    load.photos += photos
    load.readiness += readiness
    return load


def test_healthy_is_when_everything_goes_well_for_good() -> None:
    photos = [
        attempt(9, 9.5),  # before the fault
        attempt(10.5, 11, 503),
        attempt(11, 11.5),  # another instance still works
        attempt(12, 13, 503),
        attempt(13, 14, 429),  # a full queue is no illness
        attempt(13, 15),
    ]
    readiness = [attempt(10, 10.1), attempt(12, 12.1, 503), attempt(15.4, 15.5)]
    seen = seen_of(load_of(photos, readiness), since_s=10, deadline_s=5)
    assert seen.healthy_s == pytest.approx(5.5)
    assert seen.statuses == {200: 2, 503: 2, 429: 1}
    assert seen.told == {"no": 3}
    assert (seen.without_retry_after, seen.dropped, seen.wrong, seen.late) == (0, 0, 0, 0)


def test_never_healthy_is_none() -> None:
    seen = seen_of(load_of([attempt(11, 12, 503)], [attempt(11, 12)]), since_s=10, deadline_s=5)
    assert seen.healthy_s is None


def test_what_is_wrong_is_counted() -> None:
    photos = [
        attempt(10, 11, 503, retry_after=False),
        attempt(10, 11, 0),
        attempt(10, 11, 200, right=False),
        attempt(10, 20, 504),
    ]
    seen = seen_of(load_of(photos, []), since_s=10, deadline_s=5)
    assert (seen.without_retry_after, seen.dropped, seen.wrong, seen.late) == (1, 1, 1, 1)


def test_ready_is_true_for_as_long_as_a_photo_vouches_for_it() -> None:
    photos = [attempt(9, 10), attempt(10, 15, 503), attempt(19, 20)]
    true = [attempt(11.9, 12), attempt(18.4, 18.6), attempt(15, 15.1, 503)]
    untrue = [attempt(12.5, 12.6), attempt(18, 18.1)]
    assert lies(photos, true + untrue) == untrue


GOOD = Seen({200: 5, 503: 2}, {}, 0, 0, 0, 0, 0, 3.0)


@pytest.mark.parametrize(
    ("seen", "left", "problem"),
    [
        ({"statuses": {500: 1}}, Leftovers(0, 0), "other statuses"),
        ({"statuses": {504: 1}}, Leftovers(0, 0), "other statuses"),
        ({"without_retry_after": 1}, Leftovers(0, 0), "without Retry-After"),
        ({"dropped": 1}, Leftovers(0, 0), "dropped connections"),
        ({"wrong": 1}, Leftovers(0, 0), "wrong readings"),
        ({"late": 1}, Leftovers(0, 0), "after the deadline"),
        ({"lies": 1}, Leftovers(0, 0), "untrue answers"),
        ({}, Leftovers(1, 0), "shared memory left"),
        ({}, Leftovers(0, 1), "processes left"),
    ],
)
def test_each_floor_can_be_missed(seen: dict[str, object], left: Leftovers, problem: str) -> None:
    fault = FAULTS[0]
    changed = dataclasses.replace(GOOD, **seen)  # type: ignore[arg-type]
    (found,) = Outcome(fault.name, changed, 3.0, {"yolo": 1}, left).problems(fault)
    assert problem in found
    assert not Outcome(fault.name, GOOD, 3.0, {"yolo": 1}, Leftovers(0, 0)).problems(fault)


def test_health_and_restarts_are_floors_too() -> None:
    outcome = Outcome("kill yolo", GOOD, None, {"stn": 1}, Leftovers(0, 0))
    problems = outcome.problems(FAULTS[0])
    assert len(problems) == 2 and "never healthy" in problems[0] and "yolo" in problems[1]
    assert any(not verdict.holds for verdict in faults._verdicts(FAULTS[:1], [outcome]))


def test_only_the_gateways_own_end_may_drop_connections_and_only_frost_may_time_out() -> None:
    dropping = Seen({200: 1}, {}, 0, 3, 0, 0, 0, 1.0)
    gateway = next(fault for fault in FAULTS if fault.part == "worker")
    outcome = Outcome(gateway.name, dropping, 1.0, {"gateway": 1}, Leftovers(0, 0))
    assert not outcome.problems(gateway)
    slow = Seen({200: 1, 504: 3}, {}, 0, 0, 0, 0, 0, 9.0)
    frost = next(fault for fault in FAULTS if "freeze" in fault.name)
    assert not Outcome(frost.name, slow, 9.0, {"triton": 1}, Leftovers(0, 0)).problems(frost)


def test_memory_of_no_stub_is_left_over() -> None:
    segment = processes.SHARED_MEMORY / f"plates_{os.getpid()}_faults"
    segment.write_bytes(b"")
    try:
        assert leftovers_of(os.getpid()) == Leftovers(1, 0)
    finally:
        segment.unlink()
    assert leftovers_of(os.getpid()) == Leftovers(0, 0)
