"""Asks Triton, again and again, whether photos are being read.

What Triton says of itself is worth little: it is ready while its models are dead. Photos
that come anyhow are proof enough, and cheap to look for; when there are none, or none with
plates, a photo of our own is read.
"""

import threading
import time
from collections.abc import Callable

from api.embedded.client import TritonHttp
from api.embedded.errors import RequestError

# Reading our photo costs some 50 ms of processor time.
_PAUSE_S = 1.5
_PAUSE_AFTER_FAILURE_S = 0.3
_STATISTICS_TIMEOUT_S = 2.0
_PHOTO_TIMEOUT_S = 3.0
# A server that is merely busy is heard more often.
SILENCE_S = _PAUSE_S + _PHOTO_TIMEOUT_S + 2 * _STATISTICS_TIMEOUT_S
# One that answers, but reads no photo, may be reading very large ones on a slow machine.
STANDSTILL_S = 20.0


class Prober:
    """A thread that looks at one Triton after the other, as they are restarted.

    Attributes:
        heard_at: When Triton last answered anything, on `time.monotonic`'s clock.
        read_at: When every model was last known to work, on the same clock.
    """

    def __init__(self, triton: Callable[[], TritonHttp], photo: bytes) -> None:
        """Nothing is asked yet.

        Args:
            triton: Gives the one that runs now.
            photo: With a plate, so that every model has work.
        """
        self._triton = triton
        self._photo = photo
        self._ended = threading.Event()
        self._counts: dict[str, int] = {}
        self.heard_at = self.read_at = time.monotonic()

    def start(self) -> None:
        """Begin to ask, in a thread that ends with this process."""
        threading.Thread(target=self._run, name="prober", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._ended.set()

    def probe(self) -> bool:
        """Find out whether photos are being read.

        Returns:
            Whether they are: since the last time all models have answered, or they just
            read the photo. A server under too much load reads others' photos instead.
        """
        triton = self._triton()
        try:
            counts = triton.successes(_STATISTICS_TIMEOUT_S)
            self.heard_at = time.monotonic()
            if not _all_more(counts, self._counts):
                triton.read(self._photo, _PHOTO_TIMEOUT_S)
                counts = triton.successes(_STATISTICS_TIMEOUT_S)
        except RequestError as error:
            if error.status is not None:
                self.heard_at = time.monotonic()
            return False
        self._counts = counts
        self.heard_at = self.read_at = time.monotonic()
        return True

    def _run(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            pause = _PAUSE_S if self.probe() else _PAUSE_AFTER_FAILURE_S


def _all_more(now: dict[str, int], then: dict[str, int]) -> bool:
    return bool(then) and all(now.get(model, 0) > count for model, count in then.items())
