"""Overload the service, and measure what it still answers in time.

First the capacity is measured in a closed loop. Then requests are sent at 0.5, 1, 2 and 4 times the
capacity in an open loop with Poisson arrivals, in rounds of all rates.

Floors: goodput (photos per second that were answered in time) at the highest rate is at least 90 %
of the peak; the p99 of accepted requests is within the deadline; no 5xx, no missing answer.
"""

import argparse
import asyncio
import sys
from collections import Counter

from plates.benchmarks.load import Load, LoadClient, arrivals, sample_requests, summarise
from plates.benchmarks.report import Report, Rows, at_most
from plates.benchmarks.service import add_service, service
from plates.cli import CommandError
from plates.cli.options import add_number

GOODPUT_LOST = 10.0
FACTORS, ROUNDS = (0.5, 1.0, 2.0, 4.0), 3
_CONCURRENCY, _WARM_UP_S = 4, 2.0
# Clients wait this much longer than the deadline, so that late answers are measured.
_PATIENCE_S = 3.0


def configure(parser: argparse.ArgumentParser) -> None:
    add_service(parser, measured=False)
    add_number(parser, "--seconds", 10.0, "seconds of load at each rate, per round", least=0.01)
    add_number(parser, "--deadline", 2.0, "deadline in seconds (X-Request-Timeout)", least=0.01)


def run(arguments: argparse.Namespace) -> Report:
    seconds, deadline_s = arguments.seconds, arguments.deadline
    with service(arguments.url) as serving:
        capacity, rates = asyncio.run(measure(serving.url, seconds, deadline_s))
    print(f"Capacity {capacity:.1f} photos/s; deadline {deadline_s:g} s")
    peak, last = max(row["goodput/s"] for row in rates), rates[-1]
    lost = 100 * (1 - last["goodput/s"] / peak) if peak else 100.0
    slowest_s = max(row["p99 ms"] for row in rates) / 1000
    statuses = sum((Counter(row["statuses"]) for row in rates), Counter[int]())
    errors = sum(count for status, count in statuses.items() if status >= 500)
    verdicts = [
        at_most(f"goodput lost at {last['load']}, of the peak", lost, GOODPUT_LOST, " %"),
        at_most("p99 of accepted requests, at the worst", slowest_s, deadline_s, " s"),
        at_most("answers 5xx", errors, 0),
        at_most("requests without an answer", statuses[0], 0),
    ]
    return Report({"rates": rates}, verdicts, {"capacity": capacity})


async def measure(url: str, seconds: float, deadline_s: float) -> tuple[float, Rows]:
    """Measure the capacity in photos per second, then make a row of the table for each rate."""
    loads: dict[float, list[Load]] = {factor: [] for factor in FACTORS}
    client = LoadClient(url, sample_requests(deadline_s), deadline_s + _PATIENCE_S)
    await client.closed_loop(_CONCURRENCY, _WARM_UP_S)
    found = summarise([await client.closed_loop(_CONCURRENCY, seconds)], deadline_s)
    capacity = found["goodput/s"]
    if not capacity:
        raise CommandError(
            f"no photo was read within the deadline of {deadline_s:g} s: "
            f"{found['statuses']} {found['errors']}. Is --deadline too short?"
        )
    for number in range(ROUNDS):
        for factor in FACTORS:
            moments = arrivals(factor * capacity, seconds, seed=number)
            loads[factor].append(await client.open_loop(moments))
            print(f"{factor:g} times the capacity: done", file=sys.stderr, flush=True)
    return capacity, [
        {"load": f"{factor:g}x", **summarise(loads[factor], deadline_s)} for factor in FACTORS
    ]
