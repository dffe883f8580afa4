"""The gateway's process, as the supervisor sees it: a child that serves on our socket.

The socket that listens stays open here. While the worker is being restarted, callers wait
in its backlog instead of being refused.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from api.status import State
from plates.serving.budget import RestartBudget
from plates.serving.errors import StartError

# Photos under way are finished in that time, or are not.
STOP_SECONDS = 2.4
START_SECONDS = 60.0
# The worker gives a sign of life every second; see `plates.serving.gateway_process`.
SILENCE_SECONDS = 20.0
_POLL_SECONDS = 0.05
_PART = "gateway"

log = logging.getLogger("plates.supervisor")


class GatewayWorker:
    """The supervisor's part that is the gateway; see `plates.serving.supervisor.Part`."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        listener: socket.socket,
    ) -> None:
        """Nothing is started yet.

        Args:
            command: Run with `--listen`, `--alive` and `--parent` behind it: two file
                descriptors, and the process whose end is its own.
            environment: Gives what is added to this process's, at each start.
            listener: Listens already; closed by :meth:`stop`.
        """
        self.state: State = "starting"
        self.restarts: Counter[str] = Counter({_PART: 0})
        self.release: int | None = None
        self.refused: Mapping[str, str] = {}
        self._command = command
        self._environment = environment
        self._listener = listener
        self._process: subprocess.Popen[bytes] | None = None
        self._signs: int | None = None
        self._alive_at = self._start_at = 0.0
        self._budget = RestartBudget("The gateway")

    def start(self) -> None:
        """Start the worker and wait until it serves.

        Raises:
            StartError: It can't be started, ended, or doesn't serve in time.
        """
        self._launch()
        while not self._has_given_signs():
            status = self._process.poll() if self._process else None
            if status is not None:
                raise StartError(f"The gateway ended with status {status} while it started.")
            if time.monotonic() - self._alive_at > START_SECONDS:
                raise StartError(f"The gateway does not serve after {START_SECONDS:g} s.")
            time.sleep(_POLL_SECONDS)
        self.state = "ready"

    def tick(self) -> None:
        """Look whether it lives, and start it again if it doesn't.

        Raises:
            GaveUp: It was started too often.
        """
        if self._process is None:
            self._launch_when_due()
        elif (status := self._process.poll()) is not None:
            self._restart(f"it ended with status {status}")
        elif self._has_given_signs():
            self.state = "ready"
            self._budget.well()
        else:
            patience = SILENCE_SECONDS if self.state == "ready" else START_SECONDS
            if time.monotonic() - self._alive_at > patience:
                self._restart(f"it has given no sign of life for {patience:g} s")

    def stop(self) -> None:
        """Refuse new connections, let photos under way be finished, end the worker."""
        self._listener.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.send_signal(signal.SIGTERM)
                self._process.wait(STOP_SECONDS)
        self._kill()

    def _launch_when_due(self) -> None:
        if time.monotonic() < self._start_at:
            return
        try:
            self._launch()
        except StartError as error:
            self._restart(str(error))

    def _launch(self) -> None:
        """Start the process; raises `StartError` where the machine has no room for it."""
        try:
            self._signs = self._spawn()
        except OSError as error:
            raise StartError(f"the gateway's process can't be made: {error}") from error
        self._alive_at = time.monotonic()

    def _spawn(self) -> int:
        """Make the process; returns the descriptor from which its signs of life are read."""
        signs, give = os.pipe()
        os.set_blocking(signs, False)
        descriptors = {
            "--listen": self._listener.fileno(),
            "--alive": give,
            "--parent": os.getpid(),
        }
        arguments = [word for pair in descriptors.items() for word in map(str, pair)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                env=os.environ | dict(self._environment()),
                pass_fds=(self._listener.fileno(), give),
                # Ctrl-C in a terminal is for us alone: we stop the worker in order.
                start_new_session=True,
            )
        except BaseException:
            os.close(signs)
            raise
        finally:
            os.close(give)
        return signs

    def _restart(self, reason: str) -> None:
        self.state = "healing"
        self._kill()
        pause = self._budget.spend(reason)
        log.error("Restarting the gateway: %s.", reason)
        self.restarts[_PART] += 1
        self._start_at = time.monotonic() + pause

    def _kill(self) -> None:
        process, self._process = self._process, None
        signs, self._signs = self._signs, None
        if process is not None:
            process.kill()
            process.wait()
        if signs is not None:
            os.close(signs)

    def _has_given_signs(self) -> bool:
        """Take note of the signs of life since the last call."""
        if self._signs is None:
            return False
        try:
            signs = os.read(self._signs, 4096)
        except BlockingIOError:
            return False
        if signs:
            self._alive_at = time.monotonic()
        return bool(signs)
