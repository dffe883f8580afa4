"""Readiness: whether Triton reads photos now, checked with a test photo if necessary."""

import asyncio
import time

from api.answers import Recognition
from api.errors import Problem
from api.triton import TritonClient
from plate_models.release import DEFAULT_GOLDEN


class Readiness:
    """Knows whether a photo with a plate was read recently, and reads a canary photo if none was.

    Triton's own ready endpoint reports success while models are dead. A client's photo is proof of
    readiness until Triton is unavailable or too slow for another one. The canary is only sent
    without proof: one at a time, and not again soon after a failure. It bypasses the queue, which
    may be full.
    """

    def __init__(self, client: TritonClient, max_age_s: float, timeout_s: float) -> None:
        self._client = client
        self._max_age_s, self._timeout_s = max_age_s, timeout_s
        # A small rendered street scene with a plate, so that all models run.
        self._photo = DEFAULT_GOLDEN.read_bytes()
        self._one_at_a_time = asyncio.Lock()
        self._read_at = self._failed_at = float("-inf")
        self._problem: Problem | None = None

    def note_read(self, recognition: Recognition) -> None:
        """Take a photo as proof if it has plates: without plates the later models did not run."""
        if recognition.plates:
            self._read_at = time.monotonic()

    def note_failed(self) -> None:
        """Discard the proof, as Triton was unavailable or too slow for a photo."""
        self._read_at = float("-inf")

    async def problem(self) -> Problem | None:
        """None if a photo was read recently or the canary is now; else the canary's problem."""
        # Before the lock: a slow canary holds it while clients' photos may succeed.
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
