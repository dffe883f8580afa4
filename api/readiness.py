"""Whether photos are being read right now, asked with a photo."""

import asyncio
import time
from importlib.resources import files
from typing import Protocol

from api.errors import Problem
from api.triton import Recognition


class Recognizer(Protocol):
    """What can read a photo."""

    async def recognize(self, photo: bytes, timeout_s: float | None = None) -> Recognition:
        """See `api.triton.TritonClient.recognize`."""
        ...


def canary_photo() -> bytes:
    """A small street scene with a plate, drawn by us, so that every model has work."""
    return (files("api") / "canary.jpg").read_bytes()


class Readiness:
    """Sends the canary to Triton, at most once in a while and one at a time.

    Triton's own ready endpoint says yes while its models are dead.
    """

    def __init__(self, recognizer: Recognizer, max_age_s: float) -> None:
        self._recognizer = recognizer
        self._max_age_s = max_age_s
        self._photo = canary_photo()
        self._one_at_a_time = asyncio.Lock()
        self._asked_at = float("-inf")
        self._reason: str | None = None

    async def reason_not_ready(self) -> str | None:
        """Ask, unless there is an answer that is young enough.

        Returns:
            None if the canary was answered; otherwise why not.
        """
        async with self._one_at_a_time:
            if time.monotonic() - self._asked_at > self._max_age_s:
                self._reason = await self._ask()
                self._asked_at = time.monotonic()
            return self._reason

    async def _ask(self) -> str | None:
        try:
            await self._recognizer.recognize(self._photo, timeout_s=self._max_age_s)
        except Problem as problem:
            return problem.detail
        return None
