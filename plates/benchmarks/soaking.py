"""The soak itself: requests of all kinds at a moderate rate, and measurements meanwhile."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from plates.benchmarks.footprint import footprints, shared_memory
from plates.benchmarks.http1 import Answer, Connection, NoAnswer, Target, build_request
from plates.benchmarks.load import arrivals
from plates.benchmarks.report import Verdict
from plates.benchmarks.traffic import BUSY, WIDTHS, Kind, mixed_load, paths_of, sample_photos
from plates.benchmarks.trend import Trend, trend_of

MEBIBYTE = 2**20
# Of a level, per hour: what surely grows, but by less, would take four days to double.
TOLERANCE_PER_HOUR = 0.01
# In twenty minutes of traffic the heaps of Triton and of the gateway took six to reach their
# size, and grew no more after that.
_WARM_UP_SHARE = 1 / 3
_PATIENCE_S = 40.0
_MAX_OUTSTANDING = 64
# Photos that the gateway sends to Triton at a time, by default, and some that wait.
_AT_ONCE = 6
_LARGEST_AGAIN = 4
GONE = "left"
DROPPED = "no answer"


@dataclass(frozen=True)
class Sample:
    """What the service held at one moment.

    Attributes:
        at_s: Seconds since the load began.
        rss: Resident memory in MiB of each process, by "part (pid)".
        pss: Resident memory in MiB of all, shared pages counted once.
        shared: Shared memory in MiB.
        segments: Segments of shared memory.
        files: Open file descriptors of all processes.
    """

    at_s: float
    rss: dict[str, float]
    pss: float
    shared: float
    segments: int
    files: int

    @property
    def total_rss(self) -> float:
        """Resident memory of all processes in MiB."""
        return sum(self.rss.values())


@dataclass
class Soak:
    """What came of it.

    Attributes:
        seconds: How long it was.
        answers: Of each kind of request, how many of each status.
        unexpected: "kind: status" to how often that came, where it must not.
        samples: In order.
    """

    seconds: float
    answers: dict[str, dict[str, int]] = field(default_factory=dict)
    unexpected: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    def note(self, kind: Kind, status: str) -> None:
        """Count one request.

        Args:
            kind: What was sent.
            status: What came of it.
        """
        counts = self.answers.setdefault(kind.name, {})
        counts[status] = counts.get(status, 0) + 1
        if status != GONE and status not in map(str, kind.expected | BUSY):
            surprise = f"{kind.name}: {status}"
            self.unexpected[surprise] = self.unexpected.get(surprise, 0) + 1

    @property
    def warm_up_s(self) -> float:
        """How much at the beginning is left out of the trends: pools and caches fill."""
        return self.seconds * _WARM_UP_SHARE

    def trends(self) -> dict[str, Trend]:
        """How memory, shared memory and files move after the warm-up, per hour.

        Raises:
            ValueError: There are too few samples.
        """
        warm = [sample for sample in self.samples if sample.at_s >= self.warm_up_s]
        times = np.array([sample.at_s for sample in warm], np.float64)
        series = {
            "resident memory, MiB": [sample.total_rss for sample in warm],
            "shared memory, MiB": [sample.shared for sample in warm],
            "open files": [float(sample.files) for sample in warm],
        }
        return {
            name: trend_of(times, np.array(values, np.float64)) for name, values in series.items()
        }

    def verdicts(self) -> list[Verdict]:
        """The floors of this benchmark."""
        found = []
        for name, trend in self.trends().items():
            tolerance = TOLERANCE_PER_HOUR * trend.level
            came = f"{trend.slope:+.2f} per hour, 95 %: {trend.low:+.2f} to {trend.high:+.2f}"
            floor = f"the interval reaches 0, or lies below {tolerance:.2f}"
            found.append(Verdict(name, came, floor, trend.within_noise(tolerance)))
        surprises = ", ".join(f"{what} {n} times" for what, n in self.unexpected.items())
        found.append(Verdict("unexpected answers", surprises or "0", "0", not self.unexpected))
        first, last = set(self.samples[0].rss), set(self.samples[-1].rss)
        changes = ", ".join(
            sorted([f"-{p}" for p in first - last] + [f"+{p}" for p in last - first])
        )
        found.append(Verdict("processes ended or started", changes or "0", "0", first == last))
        return found


async def soak(
    target: Target, pid: int, seconds: float, rate: float, every_s: float, seed: int = 0
) -> Soak:
    """Send requests of all kinds and measure meanwhile.

    Args:
        target: Where the service listens.
        pid: Its first process.
        seconds: How long.
        rate: Requests per second, on average.
        every_s: Seconds between two measurements.
        seed: Of the choice of requests and their moments.
    """
    document = await _exchange(target, build_request(target, "GET", "/openapi.json"))
    paths = paths_of(document.body)
    kinds = await asyncio.to_thread(mixed_load, target, sample_photos(), paths)
    found = Soak(seconds)
    await _fill_pools(target, kinds, found)
    start = time.perf_counter()
    sending = asyncio.create_task(
        _send_all(target, kinds, arrivals(rate, seconds, seed), found, seed)
    )
    while not sending.done():
        found.samples.append(await asyncio.to_thread(_sample, pid, start))
        await asyncio.wait([sending], timeout=every_s)
    await sending
    return found


async def _fill_pools(target: Target, kinds: Sequence[Kind], found: Soak) -> None:
    """Send every request once and the largest several times, as many at a time as are read.

    Pools and heaps grow to the most that was ever needed at once. By chance alone the
    largest photos meet each other so rarely that this would go on for hours, and look like
    a leak.
    """
    each = [(kind, request) for kind in kinds for request in kind.requests]
    each.sort(key=lambda one: len(one[1]))
    queue = iter(each + each[-len(WIDTHS) :] * _LARGEST_AGAIN)

    async def one_after_another() -> None:
        for kind, request in queue:
            await send_one(target, kind, request, found)

    await asyncio.gather(*(one_after_another() for _ in range(_AT_ONCE)))


async def _send_all(
    target: Target, kinds: Sequence[Kind], schedule: Sequence[float], found: Soak, seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    weights = [kind.weight for kind in kinds]
    start = time.perf_counter()
    waiting: set[asyncio.Task[None]] = set()
    for moment in schedule:
        await asyncio.sleep(start + moment - time.perf_counter())
        if len(waiting) >= _MAX_OUTSTANDING:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        kind = dice.choices(kinds, weights)[0]
        task = asyncio.create_task(send_one(target, kind, dice.choice(kind.requests), found))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
    if waiting:
        await asyncio.wait(set(waiting))


async def send_one(target: Target, kind: Kind, request: bytes, found: Soak) -> None:
    """Send one request, and take note of what came of it.

    Args:
        target: Where to.
        kind: What is expected.
        request: One of that kind.
        found: Where it is noted.
    """
    try:
        if not kind.expected:
            await _leave(target, kind, request)
            status = GONE
        else:
            status = str((await _exchange(target, request)).status)
    except NoAnswer as error:
        status = f"{DROPPED} ({error})"
    found.note(kind, status)


async def _exchange(target: Target, request: bytes) -> Answer:
    connection = await Connection.open(target)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            connection.send(request)
            return await connection.answer()
    except TimeoutError as error:
        raise NoAnswer(f"nothing in {_PATIENCE_S:g} s") from error
    finally:
        connection.close()


async def _leave(target: Target, kind: Kind, request: bytes) -> None:
    """Send what is to be sent, then go without a word."""
    connection = await Connection.open(target)
    try:
        connection.send(request[: round(len(request) * kind.sent_share)])
        await asyncio.sleep(kind.leaves_after_s or 0.03)
    finally:
        connection.close()


def _sample(pid: int, start: float) -> Sample:
    measured = footprints(pid, with_pss=True)
    memory = shared_memory(pid)
    return Sample(
        at_s=time.perf_counter() - start,
        rss={f"{one.part} ({one.pid})": one.rss_bytes / MEBIBYTE for one in measured},
        pss=sum(one.pss_bytes or 0 for one in measured) / MEBIBYTE,
        shared=memory.allocated_bytes / MEBIBYTE,
        segments=memory.segments,
        files=sum(one.files for one in measured),
    )
