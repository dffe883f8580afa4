"""Asks Triton, again and again, whether photos are being read.

What Triton says of itself is worth little: it is ready while its models are dead. Photos
that come anyhow are proof enough, and cheap to look for: its statistics count them, so a
server under too much load is not taken for one that hangs. When none come, or none with
plates, a photo of our own is read.
"""

import threading
import time
from collections.abc import Callable

from plates.serving.client import PHOTO_MODEL, TritonHttp
from plates.serving.errors import RequestError

_LISTEN_PAUSE_S = 1.0
_LISTEN_TIMEOUT_S = 2.0
# Longer than two questions that got no answer.
SILENCE_S = 6.0

_READ_PAUSE_S = 0.5
# Our photo costs some 50 ms of processor time: not more often than that.
_READ_EVERY_S = 2.0
# On a machine that is busy with something else it may take long.
_READ_TIMEOUT_S = 15.0
STANDSTILL_S = 20.0
# While photos without plates are answered, ours waits its turn behind them, and the largest
# take seconds each: whoever sends those must not have the server restarted.
BUSY_STANDSTILL_S = 90.0


class Prober:
    """Two threads that look at one Triton after the other, as they are restarted.

    Attributes:
        heard_at: When Triton last answered anything, on `time.monotonic`'s clock.
        read_at: When every model was last known to work, on the same clock.
        answered_at: When a photo, with plates or without, was last known to be answered.
    """

    def __init__(self, triton: Callable[[], TritonHttp], photo: bytes) -> None:
        """Nothing is asked yet.

        Args:
            triton: Gives the one that runs now.
            photo: With a plate, so that every model has work.
        """
        self.heard_at = self.read_at = self.answered_at = float("-inf")
        self._triton = triton
        self._photo = photo
        self._counts: dict[str, int] = {}
        self._answered = 0
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to ask, in threads that end with this process."""
        for ask, pause_s in ((self.listen, _LISTEN_PAUSE_S), (self.read, _READ_PAUSE_S)):
            threading.Thread(target=self._repeat, args=(ask, pause_s), daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._ended.set()

    def forget(self) -> None:
        """Take nothing that was read before for a sign of life."""
        self._counts = {}
        self._answered = 0
        self.read_at = self.answered_at = float("-inf")

    def listen(self) -> None:
        """Ask what was counted, and see whether all models have answered since last time."""
        before = self._counts
        try:
            counts = self._triton().successes(_LISTEN_TIMEOUT_S)
        except RequestError as error:
            if error.status is not None:
                self.heard_at = time.monotonic()
            return
        self.heard_at = time.monotonic()
        if self._counts is not before:
            return  # forgotten meanwhile
        if counts.get(PHOTO_MODEL, 0) > self._answered:
            self.answered_at = self.heard_at
        self._answered = counts.get(PHOTO_MODEL, 0)
        if before and all(counts.get(model, 0) > count for model, count in before.items()):
            self.read_at = self.heard_at
        elif before and all(counts.get(model, 0) >= count for model, count in before.items()):
            return  # some have answered, some haven't yet
        self._counts = counts

    def read(self) -> None:
        """Have our photo read, unless others' were."""
        if time.monotonic() - self.read_at < _READ_EVERY_S:
            return
        try:
            self._triton().read(self._photo, _READ_TIMEOUT_S)
        except RequestError as error:
            if error.status is not None:
                self.heard_at = time.monotonic()
        else:
            self.heard_at = self.read_at = time.monotonic()

    def _repeat(self, ask: Callable[[], None], pause_s: float) -> None:
        while not self._ended.wait(pause_s):
            ask()
