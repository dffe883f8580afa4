"""What the tools make of the outcomes: goodput, and healing."""

import math
from typing import Any

import pytest

from plates.benchmarks.faults import FREEZE, judge
from plates.benchmarks.load import Load, summarise

YOLO, GATEWAY, FROZEN = "kill yolo", "kill the gateway", FREEZE


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
    found = summarise([Load(rows, seconds=10.0)], deadline_s=2)
    assert (found["goodput/s"], found["offered/s"]) == (0.1, 0.6)
    assert found["statuses"] == {0: 1, 200: 3, 429: 1, 503: 1}
    assert (found["errors"], found["without Retry-After"]) == ({"cut off": 1}, 1)
    assert found["p50 ms"] == 800


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
