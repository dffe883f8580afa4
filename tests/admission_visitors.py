"""Visitors of the queue before Triton, for its tests."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from patience import Clock

from api.admission import Admission
from api.errors import Overloaded
from api.request import Deadline

PATIENT_S = 1000.0
HANG_S = 20.0


class Visitor:
    """Somebody who wants a place, keeps it until told to leave, and remembers the times."""

    def __init__(self, admission: Admission, patience_s: float = PATIENT_S) -> None:
        self.inside = asyncio.Event()
        self.go = asyncio.Event()
        self._admission, self._deadline = admission, Deadline.after(patience_s)
        self.task = asyncio.create_task(self._visit())

    async def _visit(self) -> None:
        async with self._admission.place(self._deadline):
            self.inside.set()
            await self.go.wait()

    async def leave(self) -> None:
        self.go.set()
        await self.task


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S):
            await test()

    asyncio.run(bounded())


def assert_empty(admission: Admission) -> None:
    assert (admission.in_flight, admission.waiting) == (0, 0)


async def refusal_of(admission: Admission, patience_s: float = PATIENT_S) -> Overloaded:
    with pytest.raises(Overloaded) as refused:
        async with admission.place(Deadline.after(patience_s)):
            pass
    return refused.value


async def serve(admission: Admission, clock: Clock, seconds: float) -> None:
    """One visit that takes so long."""
    async with admission.place(Deadline.after(PATIENT_S)):
        clock.now += seconds
