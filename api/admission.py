"""The admission queue: which photo is read now, which waits, and which is refused."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from api.errors import Overloaded
from api.request import Deadline

# Weights of a new sample in the mean of service times and in their deviation, and how many
# deviations above the mean a photo may well take: those of TCP's time-outs (RFC 6298, 2).
_MEAN_GAIN, _DEVIATION_GAIN, _DEVIATIONS = 1 / 8, 1 / 4, 4
# What was measured longer ago says nothing about now.
_MEMORY_S = 5.0
_LONGEST_RETRY_S = 60.0


class ServiceTimes:
    """For how long photos keep their places lately; all zero if nothing was measured lately."""

    def __init__(self) -> None:
        self._mean_s = self._deviation_s = 0.0
        self._noted_at = float("-inf")

    def note(self, seconds: float) -> None:
        """Learn from one photo."""
        if self._is_known:
            error = seconds - self._mean_s
            self._deviation_s += _DEVIATION_GAIN * (abs(error) - self._deviation_s)
            self._mean_s += _MEAN_GAIN * error
        else:
            self._mean_s, self._deviation_s = seconds, seconds / 2
        self._noted_at = time.monotonic()

    @property
    def mean_s(self) -> float:
        """Exponentially weighted mean."""
        return self._mean_s if self._is_known else 0.0

    @property
    def likely_s(self) -> float:
        """What few photos exceed."""
        return self._mean_s + _DEVIATIONS * self._deviation_s if self._is_known else 0.0

    @property
    def _is_known(self) -> bool:
        return time.monotonic() - self._noted_at <= _MEMORY_S


class Admission:
    """A first-come queue before a few places, which refuses what it can't serve in time.

    A free place is given at once, regardless of the measured service times: that is how a wrong
    estimate gets corrected. All others wait, unless the queue is full or the answer would
    come after the deadline. For one event loop.
    """

    def __init__(self, concurrency: int, max_waiting: int) -> None:
        self._concurrency, self._max_waiting = concurrency, max_waiting
        self._times = ServiceTimes()
        # It hands a free place to the first that waits, so no photo overtakes others.
        self._places = asyncio.Semaphore(concurrency)
        self._entered_at: list[float] = []
        self.waiting = 0  # photos without a place

    @property
    def in_flight(self) -> int:
        """How many photos have a place."""
        return len(self._entered_at)

    def refuse_if_full(self, deadline: Deadline) -> None:
        """Raise `Overloaded` if there is no place for a photo, and no use in waiting for one.

        Asked before a photo is uploaded, it saves both sides the upload: while the photo
        comes in, its deadline nears as fast as the queue moves on.
        """
        if not self._places.locked():
            return
        if self.waiting >= self._max_waiting:
            raise self._refusal("full", "More photos are waiting than can be read.")
        if self._expected_wait_s() + self._times.likely_s > deadline.remaining_s:
            raise self._refusal("wait", "The photo can't be read before its deadline.")

    @asynccontextmanager
    async def place(self, deadline: Deadline) -> AsyncGenerator[None]:
        """Wait for a place, and keep it until the context ends; raises `Overloaded`."""
        if deadline.remaining_s <= 0:
            raise self._refusal("deadline", "The time for this request was over.")
        self.refuse_if_full(deadline)
        if not await self._acquire(deadline):
            raise self._refusal("deadline", "The photo's turn did not come before its deadline.")
        entered_at = time.monotonic()
        self._entered_at.append(entered_at)
        read = False
        try:
            yield
            read = True
        finally:
            took_s = time.monotonic() - entered_at
            # A quick failure says nothing about how long photos take. A late one does: the
            # photo would have taken longer still.
            if read or took_s > self._times.mean_s:
                self._times.note(took_s)
            self._entered_at.remove(entered_at)
            self._places.release()

    async def _acquire(self, deadline: Deadline) -> bool:
        """Take a place, at once or in turn; False if then there is no time left to use it."""
        if not self._places.locked():
            return await self._places.acquire()
        self.waiting += 1
        try:
            async with asyncio.timeout(deadline.remaining_s - self._times.likely_s):
                await self._places.acquire()
        except TimeoutError:
            return False
        finally:
            self.waiting -= 1
        # The estimate may have grown meanwhile.
        in_time = deadline.remaining_s > self._times.likely_s
        if not in_time:
            self._places.release()
        return in_time

    def _expected_wait_s(self) -> float:
        """Until a place is free for one more at the queue's end."""
        # When even the youngest is older than the mean, the mean is out of date.
        now = time.monotonic()
        youngest_s = now - max(self._entered_at, default=now)
        service_s = max(self._times.mean_s, youngest_s)
        return service_s * (self.waiting + 1) / self._concurrency

    def _refusal(self, reason: str, detail: str) -> Overloaded:
        retry_after_s = min(self._expected_wait_s(), _LONGEST_RETRY_S)
        return Overloaded(f"{detail} Try again later.", reason=reason, retry_after_s=retry_after_s)
