"""What one request carries through the gateway: its id, its deadline, its sender."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from api.services import ServicesOfApp

T = TypeVar("T")

_TimeoutHeader = Annotated[
    float | None,
    Header(
        alias="X-Request-Timeout",
        gt=0,
        allow_inf_nan=False,
        description="For how many seconds the sender waits for the answer, counted from this "
        "request's head. The service's own limit holds where it is shorter.",
    ),
]


@dataclass(frozen=True)
class Deadline:
    """The moment until which the sender waits.

    Attributes:
        at: On the clock of `time.monotonic`, in seconds.
    """

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """The moment in so many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def remaining_s(self) -> float:
        """Seconds that are left; zero when it has passed."""
        return max(0.0, self.at - time.monotonic())


class Sender:
    """Whoever waits for the answer to one request, and may hang up before it comes.

    A request's messages must not be awaited by two at once, whatever is read for it and
    however much of that side by side: one watch, begun when it is first needed, serves
    them all until the request ends. It takes whatever still comes, so the body has to be
    complete before the first call.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watch: asyncio.Task[None] | None = None

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """Work for the sender, and stop when nobody waits for the result any more.

        Args:
            work: Cancelled when the sender hangs up; awaited until it has ended.

        Returns:
            Its result.

        Raises:
            ClientDisconnect: The sender has hung up.
        """
        if self._watch is None:
            self._watch = asyncio.create_task(self._hung_up())
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self._watch}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientDisconnect
            return task.result()
        finally:
            await _end(task)

    async def release(self) -> None:
        """End the watch: the request is answered."""
        if self._watch is not None:
            await _end(self._watch)

    async def _hung_up(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _end(task: asyncio.Task[Any]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True)
class RequestContext:
    """What a request carries with it from the first byte to the answer.

    Attributes:
        request: As it came.
        request_id: Names it in the answer, in the logs and in Triton's.
        deadline: One for all: upload, queue, and recognition.
        sender: Whom the answer is for.
    """

    request: Request
    request_id: str
    deadline: Deadline
    sender: Sender


async def _context(
    request: Request,
    services: ServicesOfApp,
    timeout_s: _TimeoutHeader = None,
) -> AsyncGenerator[RequestContext]:
    limit_s = services.settings.request_timeout_s
    state = request.scope.get("state", {})
    started = state.get("started", time.monotonic())
    deadline = Deadline(started + min(timeout_s or limit_s, limit_s))
    request_id = state.get("request_id") or str(uuid.uuid4())
    sender = Sender(request.receive)
    try:
        yield RequestContext(request, request_id, deadline, sender)
    finally:
        await sender.release()


ContextOfRequest = Annotated[RequestContext, Depends(_context)]
