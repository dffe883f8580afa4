"""Offer the service more than it can do, and measure what it still answers in time.

First its capacity is measured in a closed loop. Then requests come at given multiples of it,
whatever becomes of them: an open loop with Poisson arrivals, in which latency counts from the
moment at which each request was to be sent.

Floors: goodput at the highest rate is at least 90 % of the peak; the p99 of accepted
requests lies within the deadline; no 5xx, and no request without an answer.
"""

import argparse
import asyncio
import sys
from typing import Any

from plates.benchmarks import report
from plates.benchmarks.load import Load, LoadClient, Request, arrivals, summarise
from plates.benchmarks.photos import samples
from plates.benchmarks.report import Verdict
from plates.benchmarks.service import add_service, service
from plates.cli import CommandError

GOODPUT_FLOOR = 0.9
FACTORS = (0.5, 1.0, 2.0, 4.0)
_CONCURRENCY, _WARM_UP_S = 4, 2.0
# How much longer than the deadline an answer is waited for, to see how late it is.
_PATIENCE_S = 3.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_service(parser)
    report.add_outputs(parser, "overload")
    report.add_number(parser, "--seconds", 10.0, "for each rate in each round")
    report.add_number(parser, "--rounds", 3, "of all rates, in turns", least=1)
    report.add_number(parser, "--deadline", 2.0, "seconds, in X-Request-Timeout")
    rates = "rates in multiples of the capacity (default: 0.5 1 2 4)"
    parser.add_argument(
        "--factors", type=float, nargs="+", metavar="F", default=FACTORS, help=rates
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and draw; 0 if every floor holds, else 1."""
    report.make_folders(arguments)
    plan = sorted(arguments.factors), arguments.rounds, arguments.seconds, arguments.deadline
    with service(arguments.url, arguments.pid) as serving:
        capacity, rows = asyncio.run(measure(serving.url, *plan))
    limits = f"Capacity {capacity:.1f} photos/s; deadline {arguments.deadline:g} s"
    print(f"{report.describe_machine()}\n{limits}\n")
    report.print_table(rows)
    status = report.print_verdicts(verdicts(rows, arguments.deadline))
    drawn = [
        {
            **row,
            "refused/s": row["offered/s"] * row["statuses"].get(429, 0) / row["requests"],
            "deadline": 1000 * arguments.deadline,
        }
        for row in rows
    ]
    style = {"x": "offered/s", "style": "o-", "ylim": (0, None)}
    rates = {"y": ["goodput/s", "refused/s"], "ylabel": "photos/s"}
    times = {"y": ["p50 ms", "p99 ms", "deadline"], "ylabel": "ms, of accepted photos"}
    picture = report.panels((drawn, style | rates), (drawn, style | times))
    report.write(arguments, {"capacity": capacity, "rates": rows}, picture)
    return status


async def measure(
    url: str, factors: list[float], rounds: int, seconds: float, deadline_s: float
) -> tuple[float, list[dict[str, Any]]]:
    """Measure the capacity in photos per second, then a row of the table for each rate."""
    headers = {"Content-Type": "image/jpeg", "X-Request-Timeout": f"{deadline_s:g}"}
    requests = [Request(path.read_bytes(), headers=headers) for path in samples()]
    loads: dict[float, list[Load]] = {factor: [] for factor in factors}
    client = LoadClient(url, requests, deadline_s + _PATIENCE_S)
    await client.closed_loop(_CONCURRENCY, _WARM_UP_S)
    found = summarise([await client.closed_loop(_CONCURRENCY, seconds)], deadline_s)
    capacity = found["goodput/s"]
    if not capacity:
        raise CommandError(
            f"no photo was read within the deadline of {deadline_s:g} s: "
            f"{found['statuses']} {found['errors']}. Is --deadline too short?"
        )
    for index in range(rounds):
        for factor in factors:
            moments = arrivals(factor * capacity, seconds, seed=index)
            loads[factor].append(await client.open_loop(moments))
            print(f"{factor:g} times the capacity: done", file=sys.stderr, flush=True)
    return capacity, [
        {"load": f"{factor:g}x", **summarise(loads[factor], deadline_s)} for factor in factors
    ]


def verdicts(rows: list[dict[str, Any]], deadline_s: float) -> list[Verdict]:
    """Judge the rates, of which the last is the highest."""
    peak, last = max(row["goodput/s"] for row in rows), rows[-1]
    ratio = last["goodput/s"] / peak if peak else 0.0
    slowest_s = max(row["p99 ms"] for row in rows) / 1000
    statuses = [(status, n) for row in rows for status, n in row["statuses"].items()]
    errors = sum(n for status, n in statuses if status >= 500)
    unanswered = sum(n for status, n in statuses if not status)
    what = f"goodput at {last['load'].removesuffix('x')} times the capacity, of the peak"
    return [
        Verdict(what, f"{ratio:.2f}", f">= {GOODPUT_FLOOR:.2f}", ratio >= GOODPUT_FLOOR),
        report.at_most("p99 of accepted requests, at the worst", slowest_s, deadline_s, " s"),
        report.at_most("answers 5xx", errors, 0),
        report.at_most("requests without an answer", unanswered, 0),
    ]
