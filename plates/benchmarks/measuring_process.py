"""Processes that measure: what they import, hold and compute is not the tool's own.

The service's memory is shared out over all who map the same libraries, and the tool itself
would be one of them. So whatever needs more than the standard library is done in a process of
its own, and these are gone before memory is measured.
"""

import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from plates.serving.processes import die_with_parent

P = ParamSpec("P")
T = TypeVar("T")


class MeasuringProcess:
    """Calls functions for us, one after the other, and sleeps in between."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Describe it; it starts with the first call.

        Args:
            environment: Variables that it sees above this process's own.
        """
        self._pool = ProcessPoolExecutor(
            1, get_context("spawn"), initializer=_begin, initargs=(dict(environment),)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Have a function of a module called there, and don't wait for it."""
        return self._pool.submit(function, *args, **kwargs)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Have a function of a module called there.

        Returns:
            What it returned; what it raised is raised here.
        """
        return self.start(function, *args, **kwargs).result()


def _begin(environment: dict[str, str]) -> None:
    die_with_parent(signal.SIGKILL)
    # Ctrl-C in a terminal is for the tool, which lets what is under way end first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environment)
