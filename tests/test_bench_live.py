"""The service under four times its capacity, and in mixed traffic: short versions.

The long ones (`plates bench overload`, `make soak`) have floors for goodput, latency and
growth; a test that has the machine for itself neither in space nor in time can't.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from plates.benchmarks.http1 import build_request
from plates.benchmarks.load import Generator
from plates.benchmarks.service import Service, service
from plates.benchmarks.soaking import soak
from plates.benchmarks.sweep import Overload, Plan, measure_capacity, sweep
from plates.benchmarks.traffic import sample_photos

pytestmark = [pytest.mark.live, pytest.mark.control]

# Long enough that only the queue refuses, on slow machines too.
DEADLINE_S = 10.0
SOAK_S, RATE = 30.0, 6.0
# Between the first third and the end; a leak of one photo's pixels per request is 300 MiB.
GROWTH_MIB = 150.0


@pytest.fixture(scope="module")
def served(repository: Path) -> Iterator[Service]:
    """One `plates serve` for both: whoever soaks after an overload sees what it left."""
    with service(None, settings={"PLATES_MODEL_REPOSITORY": str(repository)}) as running:
        yield running


def test_overload_is_refused_politely(served: Service) -> None:
    async def run() -> Overload:
        headers = {"Content-Type": "image/jpeg", "X-Request-Timeout": f"{DEADLINE_S:g}"}
        requests = [
            build_request(served.target, "POST", "/v1/plates", photo, headers)
            for photo in sample_photos()
        ]
        generator = Generator(served.target, requests, timeout_s=30)
        capacity = await measure_capacity(generator, 4, 2.0, DEADLINE_S)
        plan = Plan(
            (0.5, 4.0), seconds=2.0, rounds=1, recovery_s=4.0, deadline_s=DEADLINE_S, seed=0
        )
        return await sweep(generator, served.pid, capacity, plan)

    found = asyncio.run(run())
    worst = found.phases[-1].summary
    assert set(worst.statuses) == {200, 429}, worst
    assert worst.without_retry_after == 0
    assert worst.goodput > 0
    # The deadline is the gateway's, from the request's head; this clock began before it.
    assert worst.p99_s is not None and worst.p99_s < 2 * DEADLINE_S
    assert found.phases[0].summary.goodput > 0


def test_nothing_piles_up_in_mixed_traffic(served: Service) -> None:
    assert served.pid is not None and served.log is not None
    assert served.triton is not None and served.ready_s is not None and served.ready_s > 0
    found = asyncio.run(soak(served.target, served.pid, SOAK_S, RATE, every_s=1.0))
    assert not found.unexpected
    assert {"photo 1280 px", "hostile file", "leaves while sending", "batch"} <= set(found.answers)
    warm = [sample for sample in found.samples if sample.at_s >= found.warm_up_s]
    assert set(warm[0].rss) == set(warm[-1].rss), "a process ended or started"
    assert warm[-1].total_rss - warm[0].total_rss < GROWTH_MIB
    assert warm[-1].segments == warm[0].segments
    # Triton's pools grow with the largest photo, and stay.
    assert warm[-1].shared - warm[0].shared < 64
    assert found.trends()
    assert "Traceback" not in served.log.read_text(errors="replace")
