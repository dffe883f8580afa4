"""What the fault bench makes of what clients got."""

import math
import signal
from typing import Any

import pytest

from plates.benchmarks.faults import FAULTS, Fault, judge, verdicts

YOLO, GATEWAY, FROST = (
    next(fault for fault in FAULTS if name in fault.name) for name in ("yolo", "gateway", "freeze")
)


def row(began: float, ended: float, status: int = 200, **others: Any) -> dict[str, Any]:
    known = {"intended_s": began, "ended_s": ended, "status": status, "right": status == 200}
    return {"kind": "photo", **known, "retry_after": status in (429, 503), **others}


def readyz(began: float, ended: float, status: int = 200) -> dict[str, Any]:
    return row(began, ended, status, kind="/readyz")


WELL = [row(11, 11.5), readyz(11, 11.5)]


def problems(fault: Fault, *photos: dict[str, Any]) -> list[str]:
    found: list[str] = judge(fault, 10, [*photos, *WELL])["problems"]
    return found


def test_healed_is_when_everything_goes_well_for_good() -> None:
    photos = [
        row(10.5, 11, 503),
        row(11, 11.5),  # another instance still works
        row(12, 13, 503),
        row(13, 14, 429),  # a full queue is no illness
        row(13, 15),
    ]
    readiness = [readyz(10, 10.1), readyz(12, 12.1, 503), readyz(15.4, 15.5)]
    found = judge(YOLO, 10, photos + readiness)
    assert found == {
        **{"fault": "kill yolo", "healed s": 5.5, "lost": 0, "problems": []},
        **{"200": 2, "429": 1, "503": 2, "504": 0},
    }
    assert judge(YOLO, 10, [*WELL, row(11, 12, 503)])["healed s"] == math.inf
    assert judge(YOLO, 10, WELL[:1])["healed s"] == math.inf


@pytest.mark.parametrize(
    ("photo", "problem"),
    [
        (row(10, 11, 500), "other statuses"),
        (row(10, 11, 504), "other statuses"),
        (row(10, 11, 503, retry_after=False), "without Retry-After"),
        (row(10, 11, 0), "photos lost"),
        (row(10, 11, 200, right=False), "wrong readings"),
        (row(10, 16.5), "late answers"),
    ],
)
def test_each_floor_can_be_missed(photo: dict[str, Any], problem: str) -> None:
    (found,) = problems(YOLO, photo)
    assert problem in found


def test_only_a_killed_gateway_loses_what_is_in_flight_and_only_frost_times_out() -> None:
    in_flight, later = row(9.9, 10, 0), row(10.5, 10.6, 0)
    assert problems(GATEWAY, in_flight) == []
    assert problems(GATEWAY, in_flight, later) == ["photos lost"]
    assert FROST.number == signal.SIGSTOP
    assert problems(FROST, row(10, 15, 504)) == []


def test_time_and_problems_are_judged() -> None:
    good = judge(YOLO, 10, WELL)
    assert all(verdict.holds for verdict in verdicts([good]))
    late, bad = {**good, "healed s": 10.1}, {**good, "problems": ["not counted"]}
    missed = [str(one) for one in verdicts([late, bad]) if not one.holds]
    assert "10.1 s" in missed[0] and "kill yolo: not counted" in missed[1]
