"""Whether photos are being read right now, tried with a photo."""

import asyncio
import time

from api.answers import Recognition
from api.errors import Problem
from api.triton import TritonClient
from plate_models.release import DEFAULT_GOLDEN


class Readiness:
    """Knows whether a photo with a plate was read lately, and tries one if none was.

    Triton's own ready endpoint says yes while its models are dead. Clients' photos are proof,
    until one fails for want of a recognizer; only without proof is the canary sent to Triton, one
    at a time, and after a failure not at once again. It bypasses the queue, which may be full.
    """

    def __init__(self, client: TritonClient, max_age_s: float, timeout_s: float) -> None:
        self._client = client
        self._max_age_s = max_age_s
        self._timeout_s = timeout_s
        # A small rendered street scene with a plate, so that every model has work.
        self._photo = DEFAULT_GOLDEN.read_bytes()
        self._one_at_a_time = asyncio.Lock()
        self._read_at = self._failed_at = float("-inf")
        self._problem: Problem | None = None

    def note_read(self, recognition: Recognition) -> None:
        """Count a photo as proof, if it has plates: without them the later models had no work."""
        if recognition.plates:
            self._read_at = time.monotonic()

    def note_failed(self) -> None:
        """Discard the proof: the recognizer was away or too slow for a photo."""
        self._read_at = float("-inf")

    async def problem(self) -> Problem | None:
        """None if a photo was read lately, or the canary is now; else why the canary was not."""
        # Not behind the lock: a slow canary holds it while other photos are read.
        if self._is_young(self._read_at):
            return None
        async with self._one_at_a_time:
            if self._is_young(self._read_at):
                return None
            if not self._is_young(self._failed_at):
                self._problem = await self._try_canary()
            return self._problem

    def _is_young(self, moment: float) -> bool:
        return time.monotonic() - moment <= self._max_age_s

    async def _try_canary(self) -> Problem | None:
        started = time.monotonic()
        try:
            await self._client.recognize(self._photo, self._timeout_s, "canary")
        except Problem as problem:
            if self._read_at >= started:
                return None
            self._failed_at = time.monotonic()
            return problem
        self._read_at = time.monotonic()
        return None
