"""Who may have a photo read now, who waits, and who is told to come again later."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from api.context import Deadline
from api.errors import Overloaded

# Weights of a new sample in the mean of service times and in their deviation, and how many
# deviations above the mean a photo may well take: those of TCP's time-outs (RFC 6298, 2).
_MEAN_GAIN, _DEVIATION_GAIN, _DEVIATIONS = 1 / 8, 1 / 4, 4
# What was measured longer ago says nothing about now.
_MEMORY_S = 5.0
_LONGEST_RETRY_S = 60.0


class ServiceTimes:
    """How long photos keep their places lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._mean_s = self._deviation_s = 0.0
        self._noted_at = float("-inf")

    def note(self, seconds: float) -> None:
        """Learn from one photo.

        Args:
            seconds: That it kept its place.
        """
        if self._is_known:
            error = seconds - self._mean_s
            self._deviation_s += _DEVIATION_GAIN * (abs(error) - self._deviation_s)
            self._mean_s += _MEAN_GAIN * error
        else:
            self._mean_s, self._deviation_s = seconds, seconds / 2
        self._noted_at = self._clock()

    @property
    def mean_s(self) -> float:
        """Exponentially weighted mean; zero when nothing was measured lately."""
        return self._mean_s if self._is_known else 0.0

    @property
    def likely_s(self) -> float:
        """What few photos exceed; zero when nothing was measured lately."""
        return self._mean_s + _DEVIATIONS * self._deviation_s if self._is_known else 0.0

    @property
    def _is_known(self) -> bool:
        return self._clock() - self._noted_at <= _MEMORY_S


@dataclass(eq=False)
class _Photo:
    """One photo on its way through the queue.

    Attributes:
        deadline: When its sender stops waiting.
        turn: True with a place, false where the deadline leaves no time for one.
        since: When it got its place.
    """

    deadline: Deadline
    turn: asyncio.Future[bool]
    since: float = 0.0


class Admission:
    """A first-come queue before a few places, which refuses what it can't serve in time.

    Whoever finds a free place gets it at once, whatever is believed of service times: that
    is how a wrong belief is unlearnt. Everybody else waits, unless the queue is full or the
    answer would come after the deadline.

    For one event loop. Whoever leaves hands the place to the first in the queue, so nobody
    overtakes those who wait, and no place is free while somebody waits for one.
    """

    def __init__(
        self, concurrency: int, max_waiting: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with all places free.

        Args:
            concurrency: Places, at least 1.
            max_waiting: How many may wait for one; with 0 nobody waits.
            clock: In seconds; service times are measured with it.
        """
        self._concurrency, self._max_waiting = concurrency, max_waiting
        self._clock = clock
        self._times = ServiceTimes(clock)
        self._inside: set[_Photo] = set()
        self._queue: deque[_Photo] = deque()

    @property
    def in_flight(self) -> int:
        """How many have a place."""
        return len(self._inside)

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return len(self._queue)

    def refuse_if_full(self, deadline: Deadline) -> None:
        """Refuse whoever comes now, if there is neither a place nor a wait worth waiting.

        Asked before a photo has come, it saves the sender its upload and the service the
        work with it: while it comes, the deadline nears as fast as the queue moves on.

        Args:
            deadline: When the sender stops waiting for the answer.

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

        Args:
            deadline: When the sender stops waiting for the answer.

        Raises:
            Overloaded: The queue is full, or the wait would be too long, or it was.
        """
        photo = _Photo(deadline, asyncio.get_running_loop().create_future())
        await self._enter(photo)
        try:
            yield
        except BaseException:
            # What fails at once says nothing about how long photos take. What fails late
            # does: it would have taken longer still.
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
        """Wait in the queue; false if the deadline came first."""
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
        """Hand the place to the first who can still use it."""
        self._inside.remove(photo)
        while self._queue and self.in_flight < self._concurrency:
            first = self._queue.popleft()
            if first.turn.done():  # cancelled or out of patience, and not awake yet
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
