"""What the tools make of the outcomes: goodput, floors, healing, leaks told from noise."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

from plates.benchmarks import faults, overload, serve, soak
from plates.benchmarks.faults import FAULTS, judge
from plates.benchmarks.load import CLIENT_LEFT, Load, summarise
from plates.benchmarks.report import Verdict
from plates.benchmarks.soak import Soak

Rows = list[dict[str, Any]]
TIMES = np.arange(0, 900, 5.0)
YOLO, GATEWAY, FROZEN = (
    next(fault for fault in FAULTS if name in fault.name) for name in ("yolo", "gateway", "freeze")
)


def row(began: float, ended: float, status: int = 200, **others: Any) -> dict[str, Any]:
    known = {"kind": "photo", "intended_s": began, "ended_s": ended, "status": status, "error": ""}
    return {**known, "right": status == 200, "retry_after": status in (429, 503), **others}


WELL = [row(11, 11.5)]


def test_goodput_counts_neither_the_late_nor_what_came_after_the_end():
    rows = [
        row(0.0, 0.5),
        row(0.1, 3.1),  # after the deadline
        row(9.5, 10.3),  # after the end
        row(1.0, 1.1, 429, retry_after=False),
        row(1.0, 1.1, 503),
        row(1.0, 1.1, 0, error="cut off"),
    ]
    found = summarise([Load(rows, seconds=10.0, cpu_s=0.012)], deadline_s=2)
    assert (found["goodput/s"], found["offered/s"]) == (0.1, 0.6)
    assert found["statuses"] == {0: 1, 200: 3, 429: 1, 503: 1}
    assert (found["errors"], found["without Retry-After"]) == ({"cut off": 1}, 1)
    assert (found["client CPU ms"], found["p50 ms"]) == (2, 800)
    # What a round leaves behind is not made good by the next one.
    both = [Load(rows, 10.0, 0.0), Load([row(0.0, 0.5)], 10.0, 0.0)]
    assert summarise(both, deadline_s=2)["goodput/s"] == 0.1


def served(ready_s: float, memory: int, failed: int) -> list[Verdict]:
    return serve.verdicts(
        ready_s, {"gateway": memory}, [{"requests": 3, "statuses": {200: 3 - failed, 503: failed}}]
    )


def overloaded(goodput: float, p99_ms: float, status: int) -> list[Verdict]:
    normal = {"load": "1x", "goodput/s": 10.0, "p99 ms": 500, "statuses": {200: 100}}
    worst = {"goodput/s": goodput, "p99 ms": p99_ms, "statuses": {200: 9, status: 300}}
    return overload.verdicts([normal, {"load": "4x", **worst}], deadline_s=2)


def soaked(growth: float = 0.0, rows: Rows = [], restarts: bool = False) -> list[Verdict]:  # noqa: B006
    """Fifteen minutes of a service that grows by so many MiB an hour."""
    memory = 1000 + sticky_noise() + growth * TIMES / 3600
    parts = [f"tritonserver ({2 + restarts * (at > 800)})" for at in TIMES]
    samples = [
        {"at_s": at, soak.MEMORY: value, soak.SHARED: 7.0, soak.FILES: 100.0, part: 50.0}
        for at, value, part in zip(TIMES, memory, parts, strict=True)
    ]
    expected = [row(1, 2), row(1, 2, 429), row(1, 2, 0, error=CLIENT_LEFT)]
    return Soak(expected + rows, samples).verdicts()


def sticky_noise() -> Any:
    """Memory as it is: 3 MiB up and down, each step much like the one before."""
    steps = np.random.default_rng(0).normal(size=len(TIMES)) * 3 * np.sqrt(1 - 0.9**2)
    return lfilter([1.0], [1.0, -0.9], steps)


HEALED = judge(YOLO, 10, WELL)


@pytest.mark.parametrize(
    ("verdicts", "missed"),
    [
        (served(9.9, 699, 0), []),
        (served(10.1, 701, 1), ["1 of 3", "ready: 10.1 s", "701 MB"]),
        (overloaded(9.5, 1900, 429), []),
        (overloaded(8.9, 1900, 429), ["goodput at 4 times"]),
        (overloaded(9.5, 2100, 429), ["p99 of accepted"]),
        (overloaded(9.5, 1900, 504), ["answers 5xx"]),
        (overloaded(9.5, 1900, 0), ["requests without an answer"]),
        (faults.verdicts([HEALED]), []),
        (faults.verdicts([HEALED | {"healed s": 10.1}]), ["10.1 s"]),
        (faults.verdicts([HEALED | {"problems": ["late"]}]), ["kill yolo: late"]),
        (soaked(), []),
        (soaked(growth=2), []),  # next to nothing
        # A leak of 7 KiB at each of 6 requests a second.
        (soaked(growth=150), [soak.MEMORY]),
        (soaked(rows=[row(1, 2, 500)] * 2), ["photo: 500, 2 times"]),
        (soaked(rows=[row(1, 2, 0, error="cut off")]), ["photo: cut off, 1 times"]),
        (soaked(restarts=True), ["tritonserver (2), tritonserver (3)"]),
    ],
)
def test_floors_that_are_missed_are_named(verdicts, missed):
    found = [str(verdict) for verdict in verdicts if not verdict.holds]
    assert [what in line for what, line in zip(missed, found, strict=True)] == [True] * len(missed)


def test_healed_is_when_everything_goes_well_for_good():
    rows = [
        row(10.5, 11, 503),
        row(11, 11.5),  # another instance still works
        row(12, 13, 503),
        row(13, 14, 429),  # a full queue is no illness
        row(13, 15),
    ]
    assert judge(YOLO, 10, rows) == {
        **{"fault": "kill yolo", "healed s": 5.0, "lost": 0, "problems": []},
        **{"200": 2, "429": 1, "503": 2, "504": 0},
    }
    assert judge(YOLO, 10, [*WELL, row(11, 12, 503)])["healed s"] == math.inf


@pytest.mark.parametrize(
    ("fault", "rows", "problem"),
    [
        (YOLO, [row(10, 11, 500)], "other statuses"),
        (YOLO, [row(10, 11, 504)], "other statuses"),
        (YOLO, [row(10, 11, 503, retry_after=False)], "without Retry-After"),
        (YOLO, [row(10, 11, 0)], "photos lost"),
        (YOLO, [row(10, 11, 200, right=False)], "wrong readings"),
        (YOLO, [row(10, 16.5)], "late answers"),
        # A killed gateway loses what is in flight, and no more; frozen processes time out.
        (GATEWAY, [row(9.9, 10, 0)], ""),
        (GATEWAY, [row(9.9, 10, 0), row(10.5, 10.6, 0)], "photos lost"),
        (FROZEN, [row(10, 15, 504)], ""),
    ],
)
def test_what_clients_must_not_get_is_named(fault, rows, problem):
    found = judge(fault, 10, [*rows, *WELL])["problems"]
    assert len(found) == bool(problem) and problem in "".join(found)
