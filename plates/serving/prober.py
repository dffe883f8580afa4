"""Finds out whether Triton reads photos.

Triton says that it is ready while its models are dead. Clients' photos are proof, and cheap to
see: Triton's statistics count them, so a server under heavy load is not taken for one that hangs.
When none come, or none with plates, a photo of our own is read.
"""

import threading
import time
from collections.abc import Callable

from plates.serving.client import TritonHttp
from plates.serving.errors import RequestError

_LISTEN_PAUSE_S = 1.0
_LISTEN_TIMEOUT_S = 2.0
# Longer than two questions without an answer.
SILENCE_S = 6.0
_READ_PAUSE_S = 0.5
# Our photo costs some 50 ms of processor time: not more often than that.
_READ_EVERY_S = 2.0
# Ours waits behind clients' photos. The largest take seconds each, and must not cause a restart.
_READ_TIMEOUT_S = 40.0
STANDSTILL_S = 45.0


class Prober:
    """Two threads that ask the Triton that runs at the moment.

    It last answered anything at `heard_at`; all models were last known to work at `read_at`, both
    on `time.monotonic`'s clock.
    """

    def __init__(self, triton: Callable[[], TritonHttp], photo: bytes) -> None:
        """Ask nothing yet; the photo must show a plate, so that every model has work."""
        self.heard_at = self.read_at = float("-inf")
        self._triton = triton
        self._photo = photo
        self._counts: dict[str, int] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start asking."""
        for ask, pause_s in ((self.listen, _LISTEN_PAUSE_S), (self.read, _READ_PAUSE_S)):
            threading.Thread(target=self._repeat, args=(ask, pause_s), daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def forget(self) -> None:
        """Let nothing that was read before count as proof: Triton was restarted."""
        self._counts = {}
        self.read_at = float("-inf")

    def listen(self) -> None:
        """Fetch the statistics, and see whether all models have answered since last time."""
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
        if before and all(counts.get(model, 0) > count for model, count in before.items()):
            self.read_at = self.heard_at
        elif before and all(counts.get(model, 0) >= count for model, count in before.items()):
            return  # some have answered, some haven't yet
        self._counts = counts

    def read(self) -> None:
        """Have our photo read, unless clients' photos were."""
        if time.monotonic() - self.read_at < _READ_EVERY_S:
            return
        try:
            self._triton().plates(self._photo, _READ_TIMEOUT_S)
        except RequestError as error:
            if error.status is not None:
                self.heard_at = time.monotonic()
        else:
            self.heard_at = self.read_at = time.monotonic()

    def _repeat(self, ask: Callable[[], None], pause_s: float) -> None:
        while not self._stopped.wait(pause_s):
            ask()
