"""`plates serve` as a child process, for commands and tests that need a service."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from plate_models.process import die_with_parent
from plates.cli import CommandError, health
from plates.cli.serve import LISTENING
from plates.serving.child import python

_STOP_S = 20.0
_ANSWER_S, _PAUSE_S = 15.0, 0.1
_LOG_TAIL_LINES = 40
# What the environment may set for another service: who may use it, what it follows and writes.
_ACCESS = ("TOKENS", "TOKENS_FILE", "RATE_LIMIT", "TLS_CERTIFICATE", "TLS_KEY")
_DEFAULTS = {f"PLATES_{name}": "" for name in (*_ACCESS, "CAMERAS", "STATUS_FILE")}
_DEFAULTS |= {"PLATES_HOST": "127.0.0.1", "PLATES_PORT": "0"}


@contextlib.contextmanager
def running_service(
    settings: Mapping[str, str], log: Path, show: Callable[[str], object] = lambda _: None
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Run `plates serve`, by default on a free port of this machine, and stop it.

    The settings are environment variables, added to this process's own, of which those for access,
    cameras and the status file are left out: they are meant for another service. The service's log
    goes to a file; `show` gets each piece of its output. Yields the process and its URL once it
    listens, but maybe before it is ready. Raises CommandError if it ends before.
    """
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(  # noqa: S603 - our own command
                [*python("plates.cli.main"), "serve"],
                stdin=subprocess.DEVNULL,
                # This pipe can't fill up: a service that listens prints only two more lines.
                stdout=subprocess.PIPE,
                # A file: a pipe that nobody reads would fill up and block the service.
                stderr=stack.enter_context(log.open("wb")),
                text=True,
                env=os.environ | _DEFAULTS | dict(settings),
                # Ctrl-C in a terminal is for this process, which stops the service in order.
                start_new_session=True,
                # Stops the service if this process is killed. Safe here: no thread holds a lock.
                preexec_fn=lambda: die_with_parent(signal.SIGTERM),
            )
        )
        stack.callback(_stop, process, show)
        for line in process.stdout or ():
            show(line)
            if line.startswith(LISTENING):
                yield process, line.removeprefix(LISTENING).split()[0]
                return
        raise CommandError(f"the service did not start:\n{tail(log)}")


def wait_until_ready(
    url: str,
    within_s: float,
    process: "subprocess.Popen[str] | None" = None,
    log: Path | None = None,
) -> None:
    """Wait until /readyz answers 200; CommandError if it does not in time, or the process ends."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            health.ask(f"{url}/readyz", False, _ANSWER_S)
            return
        except CommandError as error:
            if time.monotonic() > deadline or (process and process.poll() is not None):
                reason = f"{error}\n{tail(log)}" if log else str(error)
                raise CommandError(f"the service at {url} is not ready: {reason}") from error
        time.sleep(_PAUSE_S)


def _stop(process: "subprocess.Popen[str]", show: Callable[[str], object]) -> None:
    if process.stdout is None or process.stdout.closed:  # the caller has waited for its end
        return
    process.send_signal(signal.SIGTERM)
    try:
        rest, _ = process.communicate(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        rest, _ = process.communicate()
    show(rest)


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
