"""The context of a request: its id, its deadline, its client's connection."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")


@dataclass(frozen=True)
class Deadline:
    """The time by which a request must be answered."""

    at: float  # seconds on the clock of `time.monotonic`

    @property
    def remaining_s(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self.at - time.monotonic())


class RequestContext:
    """A request with one deadline for its upload, its wait in the queue and its recognition."""

    def __init__(self, request: Request, deadline: Deadline) -> None:
        self.request = request
        self.deadline = deadline
        self.take: Callable[[int], None]  # accounts for bytes held until the answer is sent
        self._disconnect: asyncio.Task[None] | None = None

    @property
    def request_id(self) -> str:
        """The request's id in the answer, in the gateway's logs and in Triton's."""
        return str(self.request.state.request_id)

    async def cancel_on_disconnect(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work; cancel it and raise `ClientDisconnect` if the client disconnects.

        May be called several times for one request, also concurrently: all calls share one task
        that receives the request's messages, as two must not. This task discards the messages,
        so the body must be complete before the first call.
        """
        if self._disconnect is None:
            self._disconnect = asyncio.create_task(self._until_disconnect())
        if self._disconnect.done():
            work.close()
            raise ClientDisconnect
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self._disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientDisconnect
            return task.result()
        finally:
            task.cancel()

    async def close(self) -> None:
        """Stop watching the client's connection."""
        if self._disconnect is not None:
            self._disconnect.cancel()

    async def _until_disconnect(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
