"""The admission queue: which photo is read now, which waits, and which is refused."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

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

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
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
        self._noted_at = self._clock()

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
        return self._clock() - self._noted_at <= _MEMORY_S


@dataclass(eq=False)
class _Photo:
    """One photo on its way through the queue.

    Attributes:
        deadline: When its client stops waiting.
        turn: True with a place, False where the deadline leaves no time for one.
        since: When it got its place.
    """

    deadline: Deadline
    turn: asyncio.Future[bool]
    since: float = 0.0


class Admission:
    """A first-come queue before a few places, which refuses what it can't serve in time.

    A free place is given at once, whatever the measured service times: that is how a wrong
    estimate gets corrected. All others wait, unless the queue is full or the answer would
    come after the deadline.

    For one event loop. A photo that leaves hands its place to the first in the queue, so
    no photo overtakes others, and no place is free while a photo waits for one.

    Args:
        concurrency: Places, at least 1.
        max_waiting: Photos that may wait for one; with 0 none waits.
        clock: In seconds; service times are measured with it.
    """

    def __init__(
        self, concurrency: int, max_waiting: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._concurrency, self._max_waiting = concurrency, max_waiting
        self._clock = clock
        self._times = ServiceTimes(clock)
        self._inside: set[_Photo] = set()
        self._queue: deque[_Photo] = deque()

    @property
    def in_flight(self) -> int:
        """How many photos have a place."""
        return len(self._inside)

    @property
    def waiting(self) -> int:
        """How many photos wait for one."""
        return len(self._queue)

    def refuse_if_full(self, deadline: Deadline) -> None:
        """Refuse a photo that comes now, if there is no place and no use in waiting for one.

        Asked before a photo is uploaded, it saves both sides the upload: while the photo
        comes in, its deadline nears as fast as the queue moves on.

        Raises:
            Overloaded: The queue is full, or the answer would come after the deadline.
        """
        if self.in_flight < self._concurrency:
            return
        if self.waiting >= self._max_waiting:
            raise self._refusal("full", "More photos are waiting than can be read.")
        if self._expected_wait_s() + self._times.likely_s > deadline.remaining_s:
            raise self._refusal("wait", "The photo can't be read before its deadline.")

    @asynccontextmanager
    async def place(self, deadline: Deadline) -> AsyncGenerator[None]:
        """Wait for a place, and keep it until the context ends.

        Raises:
            Overloaded: The queue is full, or the wait would be too long, or it was.
        """
        photo = _Photo(deadline, asyncio.get_running_loop().create_future())
        await self._enter(photo)
        try:
            yield
        except BaseException:
            # A quick failure says nothing about how long photos take. A late one does: the
            # photo would have taken longer still.
            if self._age_s(photo) > self._times.mean_s:
                self._times.note(self._age_s(photo))
            raise
        else:
            self._times.note(self._age_s(photo))
        finally:
            self._leave(photo)

    async def _enter(self, photo: _Photo) -> None:
        if photo.deadline.remaining_s <= 0:
            raise self._refusal("deadline", "The time for this request was over.")
        if self.in_flight < self._concurrency:
            self._give_place(photo)
            return
        self.refuse_if_full(photo.deadline)
        if not await self._turn_of(photo):
            raise self._refusal("deadline", "The photo's turn did not come before its deadline.")

    async def _turn_of(self, photo: _Photo) -> bool:
        """Wait in the queue; False if the deadline came first."""
        # Later than this, a place would be of no use any more.
        patience_s = photo.deadline.remaining_s - self._times.likely_s
        timer = asyncio.get_running_loop().call_later(patience_s, self._give_up, photo)
        self._queue.append(photo)
        try:
            return await photo.turn
        except asyncio.CancelledError:
            # The place may have been handed over in the very moment of the cancellation.
            if photo in self._inside:
                self._leave(photo)
            raise
        finally:
            timer.cancel()
            if photo in self._queue:
                self._queue.remove(photo)

    def _give_up(self, photo: _Photo) -> None:
        if not photo.turn.done():
            photo.turn.set_result(False)

    def _give_place(self, photo: _Photo) -> None:
        photo.since = self._clock()
        self._inside.add(photo)

    def _leave(self, photo: _Photo) -> None:
        """Hand the place to the first photo that can still use it."""
        self._inside.remove(photo)
        while self._queue and self.in_flight < self._concurrency:
            first = self._queue.popleft()
            if first.turn.done():  # cancelled or out of time, and its task has not run since
                continue
            in_time = first.deadline.remaining_s > self._times.likely_s
            if in_time:
                self._give_place(first)
            first.turn.set_result(in_time)

    def _age_s(self, photo: _Photo) -> float:
        return self._clock() - photo.since

    def _expected_wait_s(self) -> float:
        """Until a place is free for one more at the queue's end."""
        # When even the youngest is older than the mean, the mean is out of date.
        youngest_s = min(map(self._age_s, self._inside), default=0.0)
        service_s = max(self._times.mean_s, youngest_s)
        return service_s * (self.waiting + 1) / self._concurrency

    def _refusal(self, reason: str, detail: str) -> Overloaded:
        retry_after_s = min(self._expected_wait_s(), _LONGEST_RETRY_S)
        return Overloaded(f"{detail} Try again later.", reason=reason, retry_after_s=retry_after_s)
