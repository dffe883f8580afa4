"""The service under overload, mixed traffic and kill -9: short versions of `plates bench`.

The long ones have floors for goodput, latency, growth and time; a test that has the machine
for itself neither in space nor in time can't.
"""

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plates.benchmarks import faults, overload, soak
from plates.benchmarks.faults import FAULTS, Fault
from plates.benchmarks.service import Service, service

pytestmark = [pytest.mark.live, pytest.mark.control]

# Long enough that only the queue refuses, on slow machines too.
DEADLINE_S = 10.0
# Between the first third and the end; a leak of one photo's pixels per request is 300 MiB.
GROWTH_MIB = 150.0
# The bench's floor is for a machine that does nothing else; this one is for every machine.
WITHOUT_A_HAND_S = 60
# `plates bench faults` has all: stn and lprnet are watched and loaded again just as yolo is.
BORNE = [fault for fault in FAULTS if fault.name not in ("kill stn", "kill lprnet")]


@pytest.fixture(scope="module")
def served(repository: Path) -> Iterator[Service]:
    """One `plates serve` for both: a soak after an overload shows what it left."""
    with service(None, PLATES_MODEL_REPOSITORY=str(repository)) as running:
        yield running


def test_overload_is_refused_politely(served: Service) -> None:
    _, (normal, worst) = asyncio.run(overload.measure(served.url, [0.5, 4.0], 1, 4.0, DEADLINE_S))
    assert set(worst["statuses"]) == {200, 429}, worst
    assert worst["without Retry-After"] == 0
    assert worst["goodput/s"] > 0 and normal["goodput/s"] > 0
    # The deadline is the gateway's, from the request's head; this clock began before it.
    assert worst["p99 ms"] < 2 * 1000 * DEADLINE_S


def test_nothing_piles_up_in_mixed_traffic(served: Service) -> None:
    assert served.log is not None and served.ready_s is not None and served.ready_s > 0
    found = asyncio.run(soak.soak(served, seconds=30.0, rate=6.0, every_s=1.0))
    assert found.unexpected() == {}
    assert {"photo 1280 px", "hostile file", "leaves while sending", "batch"} <= {
        row["kind"] for row in found.rows
    }
    warm = found.warm()
    assert set(warm[0]) == set(warm[-1]), "a process ended or started"
    assert warm[-1][soak.MEMORY] - warm[0][soak.MEMORY] < GROWTH_MIB
    # Triton's pools grow with the largest photo, and stay.
    assert warm[-1][soak.SHARED] - warm[0][soak.SHARED] < 64
    assert found.trends()
    assert "Traceback" not in served.log.read_text(errors="replace")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    """One service, which bears these faults one after the other."""
    return {row["fault"]: row for row in faults.measure(BORNE, clients=3)}


@pytest.mark.parametrize("fault", BORNE, ids=lambda fault: fault.name)
def test_the_service_heals_without_a_hand(
    outcomes: dict[str, dict[str, Any]],
    fault: Fault,
    record_property: Callable[[str, object], None],
) -> None:
    outcome = outcomes[fault.name]
    assert outcome["problems"] == []
    assert math.isfinite(outcome["healed s"]) and outcome["healed s"] < WITHOUT_A_HAND_S
    record_property("healed_s", outcome["healed s"])
