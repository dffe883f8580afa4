"""The service's own Python processes: each sends its supervisor a sign of life every second.

The option `--alive` is the descriptor of the pipe for these signs. The pipe breaks when the
supervisor ends.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from api.observing import logs
from api.settings import Settings
from api.status import State, Status
from plate_models.process import die_with_parent
from plates.serving.errors import GaveUp, StartError
from plates.serving.supervisor import RestartBudget, log

# Seconds from SIGTERM to SIGKILL: requests in progress can finish in this time.
STOP_S = 3.0
START_S = 60.0
SILENCE_S = 20.0
HEARTBEAT_S = 1.0
_KILL_S = 1.0
_POLL_S = 0.05
# The pause before the next start of an optional child that has used up its restarts.
_LONGEST_PAUSE_S = 60.0


def python(module: str) -> tuple[str, ...]:
    """The command that runs a module of this project."""
    # -P: the current folder may hold another package named "api".
    return sys.executable, "-P", "-m", module


class Child:
    """A process as a part of the service; see `plates.serving.supervisor.Part`.

    At each start its command line gets `--alive`, and its environment is this process's one plus
    the result of `environment`; it inherits the descriptors `passed`. If a `needed` child keeps
    failing, so does the service. Others are started without waiting, and restarted without limit.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        passed: Sequence[int] = (),
        needed: bool = True,
    ) -> None:
        self._name, self._environment, self._passed = name, environment, passed
        self._command = command
        self._needed = needed
        self._state: State = "starting"
        self._restarts = 0
        self._budget = RestartBudget(f"The {name}")
        self._process: subprocess.Popen[bytes] | None = None
        self._signs = -1
        self._silent_s = self._asked_at = self._start_at = 0.0

    @property
    def status(self) -> Status:
        """The state and the restarts; a child that is not needed is always "ready"."""
        return Status(self._state if self._needed else "ready", {self._name: self._restarts})

    def start(self) -> None:
        """Start the process; if it is needed, wait until it works. Raises StartError."""
        self._launch()
        while self._needed and self._state != "ready":
            if problem := self._find_problem():
                raise StartError(f"The {self._name} can't be started: {problem}.")
            time.sleep(_POLL_S)

    def tick(self) -> None:
        """Restart the process if it has ended or is silent."""
        if self._process is not None:
            if problem := self._find_problem():
                self._restart(problem)
        elif time.monotonic() >= self._start_at:
            try:
                self._launch()
            except StartError as error:
                self._restart(str(error))

    def stop(self) -> None:
        """End the process by SIGTERM, and after `STOP_S` by SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        self._kill()

    def _launch(self) -> None:
        try:
            self._signs, give = os.pipe()
            os.set_blocking(self._signs, False)
            with os.fdopen(give, "wb"):
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    [*self._command, "--alive", str(give)],
                    stdin=subprocess.DEVNULL,
                    env=os.environ | dict(self._environment()),
                    pass_fds=(*self._passed, give),
                    # Ctrl-C in a terminal is for this process, which stops the others in order.
                    start_new_session=True,
                )
        except OSError as error:
            raise StartError(f"the {self._name}'s process can't be made: {error}") from error
        self._silent_s, self._asked_at = 0.0, time.monotonic()

    def _restart(self, reason: str) -> None:
        self._state = "healing"
        self._kill()
        try:
            pause_s = self._budget.spend(reason)
        except GaveUp:
            if self._needed:
                raise
            pause_s = _LONGEST_PAUSE_S
        log.error("Restarting the %s: %s.", self._name, reason)
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
        """Read the signs of life since the last call; return the problem, or None."""
        signs, now = b"", time.monotonic()
        # A second at most: if this process was suspended meanwhile, so was the child.
        self._silent_s += min(now - self._asked_at, 1.0)
        self._asked_at = now
        with contextlib.suppress(BlockingIOError):
            signs = os.read(self._signs, 4096)
        if signs:
            self._state, self._silent_s = "ready", 0.0
            self._budget.well()
            return None
        if self._process and (status := self._process.poll()) is not None:
            return f"it ended with status {status}"
        patience_s = SILENCE_S if self._state == "ready" else START_S
        if self._silent_s > patience_s:
            return f"it has given no sign of life for {patience_s:g} s"
        return None


def begin(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Settings]:
    """Parse a child's options, let it die with its parent, and configure its logs."""
    parser.add_argument("--alive", type=int, required=True, help="descriptor for signs of life")
    options = parser.parse_args()
    os.set_blocking(options.alive, False)
    # SIGKILL, as the next supervisor needs this process's ports and files at once.
    die_with_parent(signal.SIGKILL)
    # Python's own handler would print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    settings = Settings()
    logs.configure(settings.log_format)
    return options, settings


def send_heartbeat(alive: int) -> bool:
    """Send a sign of life; returns False if the supervisor has ended."""
    try:
        os.write(alive, b".")
    except BlockingIOError:
        pass  # The pipe is full while the supervisor is suspended.
    except BrokenPipeError:
        return False
    return True
