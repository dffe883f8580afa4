"""The admission queue: decides whether a photo is read now, waits, or is refused."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from api.errors import Overloaded
from api.request import Deadline

# Weights of a new sample in the running mean of the service times and in their mean deviation, and
# the deviations to add to the mean for `likely_s`: as in TCP's retransmission timer (RFC 6298, 2).
_MEAN_GAIN, _DEVIATION_GAIN, _DEVIATIONS = 1 / 8, 1 / 4, 4
# Seconds after which the measured service times are out of date.
_MEMORY_S = 5.0
_LONGEST_RETRY_S = 60.0


class ServiceTimes:
    """How long recent photos kept their places; all values are 0 without a recent sample."""

    def __init__(self) -> None:
        self._mean_s = self._deviation_s = 0.0
        self._noted_at = float("-inf")

    def note(self, seconds: float) -> None:
        """Add a photo's service time to the estimates."""
        if self._is_known:
            error = seconds - self._mean_s
            self._deviation_s += _DEVIATION_GAIN * (abs(error) - self._deviation_s)
            self._mean_s += _MEAN_GAIN * error
        else:
            self._mean_s, self._deviation_s = seconds, seconds / 2
        self._noted_at = time.monotonic()

    @property
    def mean_s(self) -> float:
        """Exponentially weighted mean of the service times."""
        return self._mean_s if self._is_known else 0.0

    @property
    def likely_s(self) -> float:
        """A service time that few photos exceed."""
        return self._mean_s + _DEVIATIONS * self._deviation_s if self._is_known else 0.0

    @property
    def _is_known(self) -> bool:
        return time.monotonic() - self._noted_at <= _MEMORY_S


class Admission:
    """A first-in, first-out queue for a few places; it refuses photos that it can't serve in time.

    A photo takes a free place at once, whatever service time is expected: this corrects a wrong
    estimate. If no place is free, it waits, or is refused if the queue is full or the answer
    would come after the deadline. Use each instance in one event loop only.
    """

    def __init__(self, concurrency: int, max_waiting: int) -> None:
        self._concurrency, self._max_waiting = concurrency, max_waiting
        self._times = ServiceTimes()
        # The semaphore serves waiting tasks in order, so no photo overtakes another.
        self._places = asyncio.Semaphore(concurrency)
        self._entered_at: list[float] = []
        self.waiting = 0  # photos without a place

    @property
    def in_flight(self) -> int:
        """Number of photos that have a place."""
        return len(self._entered_at)

    def refuse_if_full(self, deadline: Deadline) -> None:
        """Raise `Overloaded` if no place is free and a photo can't wait for one.

        Routes call this before an upload, to save both sides the transfer. The upload's duration
        doesn't matter: during it the expected wait and the time to the deadline shrink alike.
        """
        if not self._places.locked():
            return
        if self.waiting >= self._max_waiting:
            raise self._refusal("full", "Too many photos are waiting.")
        if self._expected_wait_s() + self._times.likely_s > deadline.remaining_s:
            raise self._refusal("wait", "The photo can't be read before its deadline.")

    @asynccontextmanager
    async def place(self, deadline: Deadline) -> AsyncGenerator[None]:
        """Wait for a place, and keep it until the context ends; raises `Overloaded`."""
        if deadline.remaining_s <= 0:
            raise self._refusal("deadline", "The request's deadline has passed.")
        self.refuse_if_full(deadline)
        if not await self._acquire(deadline):
            raise self._refusal("deadline", "The photo could not be read before its deadline.")
        entered_at = time.monotonic()
        self._entered_at.append(entered_at)
        read = False
        try:
            yield
            read = True
        finally:
            took_s = time.monotonic() - entered_at
            # A quick failure is no sample of the service time. A failure later than the mean is
            # one: the photo would have taken even longer.
            if read or took_s > self._times.mean_s:
                self._times.note(took_s)
            self._entered_at.remove(entered_at)
            self._places.release()

    async def _acquire(self, deadline: Deadline) -> bool:
        """Take a place, at once or in turn; False if too little time is left for a photo then."""
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
        # The estimate may have grown during the wait.
        in_time = deadline.remaining_s > self._times.likely_s
        if not in_time:
            self._places.release()
        return in_time

    def _expected_wait_s(self) -> float:
        """Seconds until a photo at the end of the queue gets a place."""
        # If even the newest photo has kept its place longer than the mean, the mean is too low.
        now = time.monotonic()
        youngest_s = now - max(self._entered_at, default=now)
        service_s = max(self._times.mean_s, youngest_s)
        return service_s * (self.waiting + 1) / self._concurrency

    def _refusal(self, reason: str, detail: str) -> Overloaded:
        retry_after_s = min(self._expected_wait_s(), _LONGEST_RETRY_S)
        return Overloaded(f"{detail} Try again later.", reason=reason, retry_after_s=retry_after_s)
