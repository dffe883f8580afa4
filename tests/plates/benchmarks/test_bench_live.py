"""The service under overload, mixed traffic and kill -9: short versions of `plates bench`.

The long ones have floors for goodput, latency, growth and time; a test that has the machine
for itself neither in space nor in time can't.
"""

import asyncio
import math
from pathlib import Path

import pytest

from plates.benchmarks import faults, overload, soak
from plates.benchmarks.service import service

pytestmark = [pytest.mark.live, pytest.mark.control]

# Long enough that only the queue refuses, on slow machines too.
DEADLINE_S = 10.0
# Between the first third and the end; a leak of one photo's pixels per request is 300 MiB.
GROWTH_MIB = 150.0
# The bench's floor is for a machine that does nothing else; this one is for every machine.
WITHOUT_A_HAND_S = 60
# `plates bench faults` has all: stn and lprnet are watched and loaded again just as yolo is.
BORNE = [fault for fault in faults.FAULTS if fault.name not in ("kill stn", "kill lprnet")]


def test_overload_is_refused_politely_and_mixed_traffic_leaves_nothing(repository: Path) -> None:
    with service(None, PLATES_MODEL_REPOSITORY=str(repository)) as served:
        plan = ([0.5, 4.0], 1, 3.0, DEADLINE_S)
        _, (normal, worst) = asyncio.run(overload.measure(served.url, *plan))
        # Also shows what the overload left.
        found = asyncio.run(soak.soak(served, seconds=20.0, rate=6.0, every_s=1.0))
        log = served.log.read_text(errors="replace") if served.log else "Traceback"
    assert set(worst["statuses"]) == {200, 429}, worst
    assert worst["without Retry-After"] == 0
    assert worst["goodput/s"] > 0 and normal["goodput/s"] > 0
    # The deadline is the gateway's, from the request's head; this clock began before it.
    assert worst["p99 ms"] < 2 * 1000 * DEADLINE_S
    assert served.ready_s is not None and served.ready_s > 0
    assert found.unexpected() == {}
    kinds = {row["kind"] for row in found.rows}
    assert {"photo 1280 px", "hostile file", "leaves while sending", "batch"} <= kinds
    warm = found.warm()
    assert not warm.isna().any(axis=None), "a process ended or started"
    growth = warm.iloc[-1] - warm.iloc[0]
    assert growth[soak.MEMORY] < GROWTH_MIB
    # Triton's pools grow with the largest photo, and stay.
    assert growth[soak.SHARED] < 64
    assert found.trends()
    assert "Traceback" not in log


def test_the_service_heals_without_a_hand() -> None:
    """One service, which bears these faults one after the other."""
    outcomes = faults.measure(BORNE, clients=3)
    assert {row["fault"]: row["problems"] for row in outcomes} == {one.name: [] for one in BORNE}
    healed_s = {row["fault"]: row["healed s"] for row in outcomes}
    assert all(math.isfinite(s) and s < WITHOUT_A_HAND_S for s in healed_s.values()), healed_s
