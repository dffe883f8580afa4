"""Time in tests: waiting on however slow a machine, and a clock that waits for the test."""

import time
from collections.abc import Callable
from typing import Any

from api.request import Deadline


def wait_until(condition: Callable[[], Any], seconds: float = 30) -> None:
    """Look again and again; fail when it has not happened in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def deadline_in(seconds: float) -> Deadline:
    return Deadline(time.monotonic() + seconds)
