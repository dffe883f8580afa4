"""Whether photos are being read right now, asked with a photo."""

import asyncio
import time
from importlib.resources import files
from typing import Protocol

from api.errors import Problem
from api.triton import Recognition


class Recognizer(Protocol):
    """What can read a photo."""

    async def recognize(self, photo: bytes, timeout_s: float, request_id: str = "") -> Recognition:
        """See `api.triton.TritonClient.recognize`."""
        ...


def canary_photo() -> bytes:
    """A small street scene with a plate, drawn by us, so that every model has work."""
    return (files("plate_models") / "golden.jpg").read_bytes()


class Readiness:
    """Knows whether a photo with a plate was read lately, and tries it if none was.

    Triton's own ready endpoint says yes while its models are dead. Photos that come
    anyhow are proof enough, until one fails for want of a recognizer; only when there is no
    proof is the canary sent to Triton, one at a time, and after a failure not at once again.
    It waits in no queue of the gateway's, which may be full of photos without plates.
    """

    def __init__(self, recognizer: Recognizer, max_age_s: float, timeout_s: float) -> None:
        self._recognizer = recognizer
        self._max_age_s = max_age_s
        self._timeout_s = timeout_s
        self._photo = canary_photo()
        self._one_at_a_time = asyncio.Lock()
        self._read_at = self._failed_at = float("-inf")
        self._reason: str | None = None

    def note_read(self, recognition: Recognition) -> None:
        """Take note of a photo that was read; without plates it says little.

        Args:
            recognition: What came of it. The later models see only photos with plates.
        """
        if recognition.texts:
            self._read_at = time.monotonic()

    def note_failed(self) -> None:
        """Take note of a photo for which the recognizer was away or too slow.

        What was read before proves nothing any more: the canary has to tell.
        """
        self._read_at = float("-inf")

    async def reason_not_ready(self) -> str | None:
        """Ask, unless there is an answer that is young enough.

        Returns:
            None if a photo was read; otherwise why the canary was not.
        """
        # Not behind the lock: a slow canary holds it while other photos are read.
        if self._is_young(self._read_at):
            return None
        async with self._one_at_a_time:
            if self._is_young(self._read_at):
                return None
            if not self._is_young(self._failed_at):
                self._reason = await self._ask()
            return self._reason

    def _is_young(self, moment: float) -> bool:
        return time.monotonic() - moment <= self._max_age_s

    async def _ask(self) -> str | None:
        started = time.monotonic()
        try:
            await self._recognizer.recognize(self._photo, self._timeout_s, "canary")
        except Problem as problem:
            if self._read_at >= started:
                return None
            self._failed_at = time.monotonic()
            return problem.detail
        self._read_at = time.monotonic()
        return None
