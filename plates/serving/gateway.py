"""The gateway's process, as the supervisor sees it: a child that serves on our socket.

The listening socket stays open here: while the process is restarted, clients wait in its backlog
instead of being refused.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from api.status import State, Status
from plates.serving.errors import StartError
from plates.serving.supervisor import RestartBudget

# Photos under way are finished in that time, or not at all.
STOP_S = 2.4
START_S = 60.0
# It gives a sign of life every second; see `plates.serving.gateway_process`.
SILENCE_S = 20.0
_KILL_S = 1.0
_POLL_S = 0.05
# -P: the current folder may hold another package named "api".
COMMAND = (sys.executable, "-P", "-m", "plates.serving.gateway_process")

log = logging.getLogger("plates.supervisor")


class GatewayWorker:
    """The supervisor's part that is the gateway; see `plates.serving.supervisor.Part`.

    At each start the environment is added to this process's. `stop` closes the listener.
    """

    def __init__(
        self, environment: Callable[[], Mapping[str, str]], listener: socket.socket
    ) -> None:
        self._environment = environment
        self._listener = listener
        self._state: State = "starting"
        self._restarts = 0
        self._budget = RestartBudget("The gateway")
        self._process: subprocess.Popen[bytes] | None = None
        self._signs = -1
        self._alive_at = self._start_at = 0.0

    @property
    def status(self) -> Status:
        """Its state and restarts."""
        return Status(self._state, {"gateway": self._restarts})

    def start(self) -> None:
        """Start the process and wait until it serves."""
        self._launch()
        while self._state != "ready":
            if problem := self._find_problem():
                raise StartError(f"The gateway can't be started: {problem}.")
            time.sleep(_POLL_S)

    def tick(self) -> None:
        """See whether it lives, and restart it if it does not."""
        if self._process is not None:
            if problem := self._find_problem():
                self._restart(problem)
        elif time.monotonic() >= self._start_at:
            try:
                self._launch()
            except StartError as error:
                self._restart(str(error))

    def stop(self) -> None:
        """Refuse new connections, let photos under way be finished, end the process."""
        self._listener.close()
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        self._kill()

    def _launch(self) -> None:
        self._signs, give = os.pipe()
        os.set_blocking(self._signs, False)
        listen = self._listener.fileno()
        options = f"--listen {listen} --alive {give} --parent {os.getpid()}"
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*COMMAND, *options.split()],
                stdin=subprocess.DEVNULL,
                env=os.environ | dict(self._environment()),
                pass_fds=(listen, give),
                # Ctrl-C in a terminal is for this process, which stops the gateway in order.
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(f"the gateway's process can't be made: {error}") from error
        finally:
            os.close(give)
        self._alive_at = time.monotonic()

    def _restart(self, reason: str) -> None:
        self._state = "healing"
        self._kill()
        pause_s = self._budget.spend(reason)
        log.error("Restarting the gateway: %s.", reason)
        self._restarts += 1
        self._start_at = time.monotonic() + pause_s

    def _kill(self) -> None:
        process, self._process = self._process, None
        signs, self._signs = self._signs, -1
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_S)
        if signs >= 0:
            os.close(signs)

    def _find_problem(self) -> str | None:
        """Take note of the signs of life since the last call; return what is wrong, if anything."""
        signs, now = b"", time.monotonic()
        with contextlib.suppress(BlockingIOError):
            signs = os.read(self._signs, 4096)
        if signs:
            self._state, self._alive_at = "ready", now
            self._budget.well()
            return None
        if self._process and (status := self._process.poll()) is not None:
            return f"it ended with status {status}"
        patience_s = SILENCE_S if self._state == "ready" else START_S
        if now - self._alive_at > patience_s:
            return f"it has given no sign of life for {patience_s:g} s"
        return None
