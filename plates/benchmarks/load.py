"""Load on a service: at a given rate whatever it does (open loop), or as fast as it answers.

In an open loop every latency counts from the moment at which the request was meant to be
sent. A generator that waits for answers before it sends the next request hides exactly the
requests that a stalled service would have made wait (coordinated omission: G. Tene, "How
NOT to Measure Latency", 2013).
"""

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from plates.benchmarks.http1 import Connection, NoAnswer, Target

# More are never waited for at once: whoever answers nothing must not fill our memory.
MAX_OUTSTANDING = 400


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request.

    Attributes:
        intended_s: When it was to be sent, in seconds since the load began.
        latency_s: From then to the answer's last byte, or to the moment it was given up.
        status: Of HTTP; 0 where no answer came.
        retry_after_s: Of a refusal that says it.
        dropped: Why no answer came; "" where one did.
        late_s: How much later than intended it was sent: the generator's own fault.
    """

    intended_s: float
    latency_s: float
    status: int
    retry_after_s: float | None = None
    dropped: str = ""
    late_s: float = 0.0


@dataclass
class Load:
    """All that became of one stretch of load.

    Attributes:
        outcomes: In the order in which they ended.
        seconds: From the first request to the end of the schedule (open loop) or to the
            last answer (closed loop).
        cpu_s: CPU time of this process meanwhile: what the generator itself cost.
        resent: Requests sent once more, because the service had closed the connection
            that was kept from the answer before.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0
    resent: int = 0

    def split(self, moment_s: float) -> "tuple[Load, Load]":
        """Divide what was one schedule, so that the second part begins under the first's load.

        Args:
            moment_s: The second part's first moment, which becomes its zero.

        Returns:
            Both parts; CPU time is shared out by their numbers of requests.
        """
        first = [outcome for outcome in self.outcomes if outcome.intended_s < moment_s]
        later = [
            replace(outcome, intended_s=outcome.intended_s - moment_s)
            for outcome in self.outcomes
            if outcome.intended_s >= moment_s
        ]
        share = self.cpu_s / max(len(self.outcomes), 1)
        return (
            Load(first, moment_s, share * len(first), self.resent),
            Load(later, self.seconds - moment_s, share * len(later)),
        )


def arrivals(rate: float, seconds: float, seed: int | None = None) -> list[float]:
    """Plan when requests are sent.

    Args:
        rate: Per second, on average.
        seconds: How long.
        seed: Of a Poisson process; None sends at equal distances.

    Returns:
        Moments in seconds from the start, in order.
    """
    if seed is None:
        return [index / rate for index in range(round(rate * seconds))]
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    gaps = iter(lambda: dice.expovariate(rate), None)
    return list(itertools.takewhile(lambda moment: moment < seconds, itertools.accumulate(gaps)))


class LoadGenerator:
    """Sends requests when they are due, and takes note of the answers: subclasses say how."""

    def __init__(self, timeout_s: float) -> None:
        """Begin with nothing sent.

        Args:
            timeout_s: After which an answer is not waited for any more.
        """
        self._timeout_s = timeout_s
        self._load = Load()
        self._start = 0.0

    async def _exchange(self) -> tuple[int, float | None]:
        """Send the next request.

        Returns:
            The answer's status, as of HTTP, and its Retry-After in seconds.

        Raises:
            NoAnswer: None came.
        """
        raise NotImplementedError

    def _forget(self) -> None:
        """Let go of what was kept from one request to the next."""

    async def open_loop(
        self, schedule: Sequence[float], max_outstanding: int = MAX_OUTSTANDING
    ) -> Load:
        """Send at the given moments, whatever becomes of earlier requests.

        Args:
            schedule: From `arrivals`.
            max_outstanding: So many are waited for at once; further ones are dropped here,
                and counted.

        Returns:
            One outcome for every moment.
        """
        waiting: set[asyncio.Task[None]] = set()

        async def send_all() -> None:
            for intended in schedule:
                await asyncio.sleep(self._start + intended - time.perf_counter())
                if len(waiting) >= max_outstanding:
                    self._note(intended, 0.0, None, "too many unanswered")
                    continue
                task = asyncio.create_task(self._one(intended))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            self._load.seconds = time.perf_counter() - self._start
            if waiting:
                await asyncio.wait(set(waiting))

        return await self._measured(send_all)

    async def closed_loop(
        self, concurrency: int, seconds: float, max_count: int | None = None
    ) -> Load:
        """Keep so many requests under way, each sent when the one before it is answered.

        Args:
            concurrency: How many.
            seconds: After which no more are sent.
            max_count: After which no more are sent.
        """
        numbers = itertools.count()

        async def one_after_another() -> None:
            while (now := time.perf_counter() - self._start) < seconds:
                if max_count is not None and next(numbers) >= max_count:
                    return
                await self._one(now)

        async def all_at_once() -> None:
            await asyncio.gather(*(one_after_another() for _ in range(concurrency)))
            self._load.seconds = time.perf_counter() - self._start

        return await self._measured(all_at_once)

    async def _measured(self, send: Callable[[], Awaitable[None]]) -> Load:
        self._load, self._start = Load(), time.perf_counter()
        cpu = time.process_time()
        try:
            await send()
        finally:
            self._forget()
        self._load.cpu_s = time.process_time() - cpu
        return self._load

    async def _one(self, intended: float) -> None:
        late = time.perf_counter() - self._start - intended
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._exchange()
        except TimeoutError:
            self._note(intended, late, None, "no answer in time")
        except NoAnswer as error:
            self._note(intended, late, None, str(error))
        else:
            self._note(intended, late, answer)

    def _note(
        self, intended: float, late: float, answer: tuple[int, float | None] | None, why: str = ""
    ) -> None:
        latency = time.perf_counter() - self._start - intended
        status, retry_after = answer or (0, None)
        self._load.outcomes.append(Outcome(intended, latency, status, retry_after, why, late))


class Generator(LoadGenerator):
    """Sends HTTP requests over connections that are kept open."""

    def __init__(self, target: Target, requests: Sequence[bytes], timeout_s: float) -> None:
        """Describe the load; nothing is sent yet.

        Args:
            target: Where to.
            requests: Sent in turn, as `http1.build_request` made them.
            timeout_s: After which an answer is not waited for any more.
        """
        super().__init__(timeout_s)
        self._target = target
        self._requests = itertools.cycle(requests)
        self._idle: list[Connection] = []

    async def _exchange(self) -> tuple[int, float | None]:
        """Send one request; once more where a kept connection had been closed meanwhile."""
        request = next(self._requests)
        while True:
            connection = self._idle.pop() if self._idle else await Connection.open(self._target)
            kept = connection.served > 0
            try:
                connection.send(request)
                answer = await connection.answer()
            except NoAnswer:
                if not kept:
                    raise
                self._load.resent += 1
                continue
            finally:
                if not connection.reusable:
                    connection.close()
            if connection.reusable:
                self._idle.append(connection)
            return answer.status, answer.retry_after_s

    def _forget(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
