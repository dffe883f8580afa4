"""Watches over the parts of the service, heals them, and gives up when that fails.

Used by `plates serve` (Triton and the gateway's worker) and fit for either part alone.
One thread does all that starts and ends processes; what may block asks Triton over HTTP,
in threads of its own.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from api.status import State, Status, worst_of, write_status
from plates.serving.errors import GaveUp

TICK_S = 0.1

log = logging.getLogger("plates.supervisor")


class Part(Protocol):
    """What the supervisor watches over."""

    @property
    def state(self) -> State:
        """How it is."""
        ...

    @property
    def restarts(self) -> Mapping[str, int]:
        """How often it, or a part of it, was restarted, by name."""
        ...

    @property
    def release(self) -> int | None:
        """The version of the models that it serves; None if it serves none."""
        ...

    @property
    def refused(self) -> Mapping[str, str]:
        """Versions that it could serve, and why it doesn't."""
        ...

    def start(self) -> None:
        """Start it and wait until it runs.

        Raises:
            EmbeddedTritonError: It can't be started.
        """
        ...

    def tick(self) -> None:
        """Look at it and do what is due, without waiting.

        Raises:
            GaveUp: It can't be healed.
        """
        ...

    def stop(self) -> None:
        """End it, whatever it is doing; again is harmless."""
        ...


class Supervisor:
    """Starts parts in order, keeps them well, stops them in the opposite order."""

    def __init__(self, parts: Sequence[Part], status_file: Path) -> None:
        """Nothing is started yet.

        Args:
            parts: Later ones need earlier ones.
            status_file: Kept up to date; see `api.status`.
        """
        self._parts = parts
        self._status_file = status_file
        self._told: Status | None = None

    def start(self) -> None:
        """Start all parts.

        Raises:
            EmbeddedTritonError: One of them can't be started.
        """
        self._tell()
        for part in self._parts:
            part.start()
        self._tell()

    def run(self) -> NoReturn:
        """Watch over the parts, until an exception from elsewhere ends it.

        Raises:
            GaveUp: A part can't be healed.
        """
        try:
            while True:
                for part in self._parts:
                    part.tick()
                self._tell()
                time.sleep(TICK_S)
        except GaveUp:
            self._write(self._status("failed"))
            raise

    def stop(self) -> None:
        """End all parts."""
        for part in reversed(self._parts):
            part.stop()

    def _status(self, state: State) -> Status:
        restarts = {name: count for part in self._parts for name, count in part.restarts.items()}
        release = next((p.release for p in self._parts if p.release is not None), None)
        refused = {version: why for part in self._parts for version, why in part.refused.items()}
        return Status(state, restarts, release, refused)

    def _tell(self) -> None:
        state = worst_of(part.state for part in self._parts)
        status = self._status(state)
        if status != self._told:
            if self._told is None or state != self._told.state:
                log.info("The service is %s.", state)
            self._write(status)

    def _write(self, status: Status) -> None:
        self._told = status
        try:
            write_status(self._status_file, status)
        except OSError as error:  # a full disk must not end the service
            log.warning("The status file can't be written: %s.", error)
