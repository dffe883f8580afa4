"""One request on its way through the gateway: its id, its deadline, its client."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")


@dataclass(frozen=True)
class Deadline:
    """The moment by which a request has to be answered."""

    at: float  # in seconds, on the clock of `time.monotonic`

    @property
    def remaining_s(self) -> float:
        """Seconds that are left; zero when it has passed."""
        return max(0.0, self.at - time.monotonic())


class RequestContext:
    """What a request carries: one deadline for its upload, queue and recognition."""

    def __init__(self, request: Request, deadline: Deadline) -> None:
        self.request = request
        self.deadline = deadline
        self.take: Callable[[int], None]  # counts memory that is held until the answer is sent
        self._disconnect: asyncio.Task[None] | None = None

    @property
    def request_id(self) -> str:
        """Names the request in the answer, in the logs and in Triton's."""
        return str(self.request.state.request_id)

    async def cancel_on_disconnect(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work; cancel it and raise `ClientDisconnect` if the client disconnects.

        May be called several times for one request, also concurrently: all calls share one
        watch, because a request's messages must not be awaited by two tasks. The watch
        discards messages, so the body has to be complete before the first call.
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
            await _cancel(task)

    async def close(self) -> None:
        """Stop watching the client: the request is answered."""
        if self._disconnect is not None:
            await _cancel(self._disconnect)

    async def _until_disconnect(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass


async def _cancel(task: asyncio.Task[Any]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
