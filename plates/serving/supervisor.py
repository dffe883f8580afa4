"""Keeps the parts of the service running, reports their state, and gives up if they keep failing.

`plates serve` has two parts, Triton and the gateway, and more with cameras; `plates triton` one.
"""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, Protocol

from api.status import State, Status, merge, write_status
from plates.serving.errors import GaveUp

TICK_S = 0.1
MAX_IN_A_ROW = 5
MAX_IN_WINDOW = 10
WINDOW_S = 120.0
_RECENTLY_S = 15.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 8.0

log = logging.getLogger("plates.supervisor")


class Part(Protocol):
    """A part of the service."""

    @property
    def status(self) -> Status:
        """The part's state, restarts and model versions."""

    def start(self) -> None:
        """Start the part and wait until it runs; raises `EmbeddedTritonError` if it can't."""

    def tick(self) -> None:
        """Do what is due without waiting; raises `GaveUp` if the part keeps failing."""

    def stop(self) -> None:
        """Stop the part in any state; a second call does nothing."""


class Supervisor:
    """Starts the parts in order and stops the first one last, as the others need it."""

    def __init__(self, parts: Sequence[Part], status_file: Path) -> None:
        self._parts, self._status_file = parts, status_file
        self._written: Status | None = None
        self._is_saved = True  # whether the status file has it

    def run(self, announce: Callable[[], None]) -> NoReturn:
        """Start all parts, call `announce`, and keep the parts running.

        Raises `EmbeddedTritonError` if a part can't be started, `GaveUp` if one keeps failing.
        """
        try:
            self._write()
            for part in self._parts:
                part.start()
            self._write()
            announce()
            while True:
                for part in self._parts:
                    part.tick()
                self._write()
                time.sleep(TICK_S)
        except Exception:
            self._write("failed")
            raise

    def stop(self) -> None:
        """Stop all parts, the first one last."""
        # In parallel: each takes a second or more, and a container engine kills the rest after ten.
        with ThreadPoolExecutor(len(self._parts)) as pool:
            list(pool.map(lambda part: part.stop(), self._parts[1:]))
        self._parts[0].stop()
        if self._written and self._written.state != "failed":
            self._write("stopped")

    def _write(self, state: State | None = None) -> None:
        status = merge([part.status for part in self._parts])
        status = replace(status, state=state or status.state)
        if status == self._written and self._is_saved:
            return
        if self._written is None or status.state != self._written.state:
            log.info("The service is %s.", status.state)
        self._written, was_saved, self._is_saved = status, self._is_saved, True
        try:
            write_status(self._status_file, status)
        except OSError as error:  # A full disk must not end the service; it may have space later.
            self._is_saved = False
            if was_saved:
                log.warning("The status file can't be written: %s.", error)


class RestartBudget:
    """Limits the restarts of a part, and delays them."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._times: list[float] = []
        self._in_a_row = 0

    def spend(self, reason: str) -> float:
        """Count a restart; returns the seconds to wait first. Raises `GaveUp` after too many."""
        now = time.monotonic()
        self._times = [moment for moment in self._times if now - moment < WINDOW_S]
        if self._in_a_row >= MAX_IN_A_ROW or len(self._times) >= MAX_IN_WINDOW:
            count = max(self._in_a_row, len(self._times))
            raise GaveUp(f"{self._part} can't be healed: after {count} restarts {reason}")
        recent = sum(now - moment < _RECENTLY_S for moment in self._times)
        self._times.append(now)
        self._in_a_row += 1
        return float(min(_FIRST_PAUSE_S * 2 ** (recent - 1), _LONGEST_PAUSE_S)) if recent else 0.0

    def well(self) -> None:
        """Note that the part works again."""
        self._in_a_row = 0
