"""A mixed load for a long time: does anything grow?

Good photos of several sizes, photos without plates, hostile and mutated files, malformed
forms, clients that leave half-way or before the answer, other services' clients, polls of
/metrics and /readyz: at a moderate rate, chosen by the seed. Every few seconds the memory,
the open files and the shared memory of all processes of the service are measured.

First every request is sent once, several at a time, so that pools are as large as they will
ever be.

Floors, after the first third of the time: the service's resident memory, its shared memory
and its open files do not grow; that is, the 95 % interval of their slope reaches down to
zero, or lies below 1 % of their level per hour. No answer that is not expected, and no
process that ends or starts.
"""

import argparse
import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from plates.benchmarks import report
from plates.benchmarks.load import CLIENT_LEFT, LoadClient, arrivals
from plates.benchmarks.report import Verdict
from plates.benchmarks.service import Service, add_service, footprints, segments, service
from plates.benchmarks.traffic import Kind, mixed_load
from plates.cli import CommandError

MEBIBYTE = 2**20
# Of a level, per hour: what surely grows, but by less, would take four days to double.
TOLERANCE_PER_HOUR = 0.01
# In twenty minutes of traffic the heaps of Triton and of the gateway took six to reach their
# size, and grew no more after that.
WARM_UP_SHARE = 1 / 3
# Memory moves in steps that last, and an interval for independent points would call every
# third flat series a leak. The medians of ten long parts are nearly independent.
_PARTS = 10
_PATIENCE_S = 40.0
# Photos that the gateway sends to Triton at a time, by default, and some that wait.
_AT_ONCE = 6
# Of all processes together.
MEMORY, SHARED, FILES = "memory, RSS in MiB", "shared memory, MiB", "open files"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_service(parser)
    report.add_outputs(parser, "soak")
    report.add_number(parser, "--minutes", 20.0, "of load")
    report.add_number(parser, "--rate", 6.0, "requests per second")
    report.add_number(parser, "--every", 5.0, "seconds between two measurements")
    report.add_number(parser, "--seed", 0, "of the choice of requests", least=0)


def run(arguments: argparse.Namespace) -> int:
    """Soak, print and draw; 0 if every floor holds, else 1."""
    report.make_folders(arguments)
    seconds, numbers = arguments.minutes * 60, (arguments.rate, arguments.every, arguments.seed)
    with service(arguments.url, arguments.pid) as serving:
        if serving.pid is None:
            raise CommandError("--url needs --pid: without it there is no memory to measure")
        found = asyncio.run(soak(serving, seconds, *numbers))
    print(report.describe_machine())
    print(f"{arguments.minutes:g} minutes at {arguments.rate:g} requests/s\n")
    report.print_table(found.answers())
    trends = found.trends()
    print("\nAfter the warm-up; by process RSS in MiB")
    report.print_table(trends)
    status = report.print_verdicts(found.verdicts(trends))
    figures = {"answers": found.answers(), "trends": trends, "samples": found.samples}
    report.write(arguments, figures, found.plot)
    return status


@dataclass(frozen=True)
class Soak:
    """What came of it: outcomes of requests, see `load.Load`, and measurements in their order.

    A measurement has "at_s", seconds since the load began, totals, "all, PSS in MiB", and the
    resident memory of each process by "part (pid)".
    """

    kinds: dict[str, Kind]
    rows: list[dict[str, Any]]
    samples: list[dict[str, float]]

    def answers(self) -> list[dict[str, Any]]:
        """How many requests of each kind got which answers."""
        got = {
            name: Counter(_answer(r) for r in self.rows if r["kind"] == name) for name in self.kinds
        }
        return [{"kind": name, "answers": dict(counts)} for name, counts in got.items()]

    def unexpected(self) -> list[dict[str, Any]]:
        """Requests with an answer that they must not get."""
        return [
            row
            for row in self.rows
            if row["status"] not in self.kinds[row["kind"]].expected | {429}
            and row["error"] != CLIENT_LEFT
        ]

    def trends(self) -> list[dict[str, Any]]:
        """How each series moves after the warm-up: level, slope per hour, and its interval.

        Raises:
            CommandError: There are too few measurements.
        """
        warm = self._warm()
        times = [sample["at_s"] for sample in warm]
        names = [name for name in warm[-1] if name != "at_s"]
        return [
            {"series": name, **trend_of(times, [sample.get(name, 0.0) for sample in warm])}
            for name in names
        ]

    def _warm(self) -> list[dict[str, float]]:
        begin = self.samples[-1]["at_s"] * WARM_UP_SHARE
        return [sample for sample in self.samples if sample["at_s"] >= begin]

    def verdicts(self, trends: list[dict[str, Any]]) -> list[Verdict]:
        """Judge the totals, the answers and the processes."""
        found = []
        for trend in (one for one in trends if one["series"] in (MEMORY, SHARED, FILES)):
            came = "{slope/h:+.2f} per hour, 95 %: {low:+.2f} to {high:+.2f}".format(**trend)
            least = TOLERANCE_PER_HOUR * trend["median"]
            holds = trend["low"] <= 0 or trend["high"] <= least
            floor = f"the interval reaches 0, or lies below {least:.2f}"
            found.append(Verdict(trend["series"], came, floor, holds))
        unexpected = Counter(f"{row['kind']}: {_answer(row)}" for row in self.unexpected())
        surprises = ", ".join(f"{what} {n} times" for what, n in unexpected.items())
        found.append(Verdict("unexpected answers", surprises or "0", "0", not unexpected))
        warm = self._warm()
        changed = sorted(set(warm[0]) ^ set(warm[-1]))
        came = ", ".join(changed) or "0"
        return [*found, Verdict("processes ended or started", came, "0", not changed)]

    def plot(self, figure: Any) -> None:
        """Draw the memory of each process, and the totals, over time."""
        import pandas

        table = pandas.DataFrame(self.samples)
        table["minutes"] = table.pop("at_s") / 60
        table = table.set_index("minutes")
        totals = [name for name in table if "(" not in name]
        parts, together = figure.subplots(1, 2)
        options = {"ylim": (0, None), "grid": True}
        table.drop(columns=totals).plot(ax=parts, ylabel="RSS in MiB", **options)
        table[totals].plot(ax=together, **options)


def _answer(row: dict[str, Any]) -> str:
    return str(row["status"] or row["error"])


def trend_of(times_s: Sequence[float], values: Sequence[float]) -> dict[str, float]:
    """Find how a series moves per hour.

    Returns:
        The "median" of all values; "slope/h", the median of the slopes between all pairs of
        points (Sen 1968); "low" and "high", its 95 % interval.

    Raises:
        CommandError: There are too few points.
    """
    import numpy as np
    from scipy.stats import theilslopes

    if len(values) < _PARTS:
        raise CommandError(
            f"a trend needs {_PARTS} measurements after the warm-up, got {len(values)}: "
            "measure longer (--minutes) or more often (--every)"
        )
    hours = [np.mean(part) / 3600 for part in np.array_split(times_s, _PARTS)]
    medians = [np.median(part) for part in np.array_split(values, _PARTS)]
    slope, _, low, high = theilslopes(medians, hours, 0.95)
    found = {"median": np.median(values), "slope/h": slope, "low": low, "high": high}
    return {name: round(float(value), 2) for name, value in found.items()}


async def soak(
    serving: Service, seconds: float, rate: float, every_s: float, seed: int = 0
) -> Soak:
    """Send requests of all kinds and measure meanwhile.

    Args:
        serving: A service with its pid.
        seconds: How long.
        rate: Requests per second, on average.
        every_s: Seconds between two measurements.
        seed: Of the choice of requests and their moments.
    """
    paths = httpx.get(f"{serving.url}/openapi.json", trust_env=False).json()["paths"]
    kinds = await asyncio.to_thread(mixed_load, frozenset(paths))
    # By chance alone the largest photos meet each other so rarely that pools and heaps would
    # grow for hours, as if there were a leak.
    each = [request for kind in kinds for request in kind.requests]
    each.sort(key=lambda request: len(request.body or b""))
    rows: list[dict[str, Any]] = []
    async with LoadClient(serving.url, each, _PATIENCE_S) as client:
        for _ in range(0, len(each), _AT_ONCE):
            rows += (await client.open_loop([0.0] * _AT_ONCE)).rows
    moments = arrivals(rate, seconds, seed)
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    weights = [kind.weight for kind in kinds]
    chosen = [dice.choice(kind.requests) for kind in dice.choices(kinds, weights, k=len(moments))]
    samples: list[dict[str, float]] = []
    async with LoadClient(serving.url, chosen, _PATIENCE_S) as client:
        began = time.perf_counter()
        sending = asyncio.create_task(client.open_loop(moments))
        while not sending.done():
            at_s = time.perf_counter() - began
            samples.append({"at_s": at_s, **await asyncio.to_thread(_measure, serving.pid or 0)})
            await asyncio.wait([sending], timeout=every_s)
        rows += (await sending).rows
    return Soak({kind.name: kind for kind in kinds}, rows, samples)


def _measure(pid: int) -> dict[str, float]:
    found = footprints(pid)
    return {
        MEMORY: sum(one.rss_bytes for one in found) / MEBIBYTE,
        "all, PSS in MiB": sum(one.pss_bytes for one in found) / MEBIBYTE,
        SHARED: sum(path.stat().st_blocks * 512 for path in segments(pid)) / MEBIBYTE,
        FILES: sum(one.files for one in found),
        **{f"{one.part} ({one.pid})": one.rss_bytes / MEBIBYTE for one in found},
    }
