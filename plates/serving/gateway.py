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
from collections.abc import Callable, Mapping, Sequence

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
    """The supervisor's part that is the gateway; see `plates.serving.supervisor.Part`."""

    def __init__(
        self,
        environment: Callable[[], Mapping[str, str]],
        listener: socket.socket,
        command: Sequence[str] = COMMAND,
    ) -> None:
        """Start nothing yet.

        Args:
            environment: Returns what is added to this process's, at each start.
            listener: A listening socket; closed by `stop`.
            command: Run with `--listen`, `--alive` and `--parent` behind it: two file
                descriptors, and the process with which it ends.
        """
        self._environment = environment
        self._listener = listener
        self._command = command
        self._state: State = "starting"
        self._restarts = 0
        self._budget = RestartBudget("The gateway")
        self._process: subprocess.Popen[bytes] | None = None
        self._signs: int | None = None
        self._alive_at = self._start_at = 0.0

    @property
    def status(self) -> Status:
        """Its state and restarts."""
        return Status(self._state, {"gateway": self._restarts})

    def start(self) -> None:
        """Start the process and wait until it serves."""
        self._launch()
        while not self._read_signs():
            status = self._process.poll() if self._process else None
            if status is not None:
                raise StartError(f"The gateway ended with status {status} while it started.")
            if time.monotonic() - self._alive_at > START_S:
                raise StartError(f"The gateway does not serve after {START_S:g} s.")
            time.sleep(_POLL_S)
        self._state = "ready"

    def tick(self) -> None:
        """See whether it lives, and restart it if it does not."""
        if self._process is None:
            if time.monotonic() >= self._start_at:
                try:
                    self._launch()
                except StartError as error:
                    self._restart(str(error))
        elif (status := self._process.poll()) is not None:
            self._restart(f"it ended with status {status}")
        elif self._read_signs():
            self._state = "ready"
            self._budget.well()
        else:
            patience_s = SILENCE_S if self._state == "ready" else START_S
            if time.monotonic() - self._alive_at > patience_s:
                self._restart(f"it has given no sign of life for {patience_s:g} s")

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
        descriptors = (self._listener.fileno(), give)
        options = ["--listen", str(descriptors[0]), "--alive", str(give)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*self._command, *options, "--parent", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                env=os.environ | dict(self._environment()),
                pass_fds=descriptors,
                # Ctrl-C in a terminal is for this process, which stops the gateway in order.
                start_new_session=True,
            )
        except OSError as error:
            self._kill()
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
        signs, self._signs = self._signs, None
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_S)
        if signs is not None:
            os.close(signs)

    def _read_signs(self) -> bool:
        """Take note of the signs of life since the last call."""
        if self._signs is None:
            return False
        with contextlib.suppress(BlockingIOError):
            if os.read(self._signs, 4096):
                self._alive_at = time.monotonic()
                return True
        return False
