"""`plates serve` as a child process, for commands and tests that need a service."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from plates.cli import CommandError
from plates.cli.serve import LISTENING, TRITON
from plates.serving.processes import die_with_parent

_STOP_S = 20.0
_LOG_TAIL_LINES = 40
_TRITON_ADDRESSES = re.compile(rf"^{TRITON}gRPC (\S+), HTTP (\S+)", re.MULTILINE)
_DEFAULTS = {"PLATES_HOST": "127.0.0.1", "PLATES_PORT": "0"}


@dataclass(frozen=True)
class ServiceProcess:
    """A `plates serve` that listens at a URL, and what it has printed until then."""

    process: "subprocess.Popen[str]"
    url: str
    output: str

    @property
    def triton(self) -> tuple[str, str] | None:
        """host:port of its Triton's gRPC and HTTP; None where it started none."""
        found = _TRITON_ADDRESSES.search(self.output)
        return (found[1], found[2]) if found else None


@contextlib.contextmanager
def running_service(
    settings: Mapping[str, str] = MappingProxyType({}),
    log: Path | None = None,
    show: Callable[[str], object] = lambda _: None,
) -> Iterator[ServiceProcess]:
    """Run `plates serve`, by default on a free port of this machine, and stop it.

    The settings are environment variables above this process's own. Its log goes to a file, else
    where this process's stderr goes; `show` gets each piece of what it prints. It listens when it
    is yielded, and may not be ready yet.

    Raises:
        CommandError: It ended before it listened.
    """
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                # -P: the current folder may hold another package named "api".
                [sys.executable, "-P", "-m", "plates.cli.main", "serve"],
                stdin=subprocess.DEVNULL,
                # A pipe doesn't fill: once it listens it prints two lines more.
                stdout=subprocess.PIPE,
                # A file: a pipe that is not read would fill up and stop it.
                stderr=stack.enter_context(log.open("wb")) if log else None,
                text=True,
                env=os.environ | _DEFAULTS | dict(settings),
                # Ctrl-C in a terminal is for this process, which stops the service in order.
                start_new_session=True,
                # For the case that this process is killed. Safe here: no thread holds a lock.
                preexec_fn=lambda: die_with_parent(signal.SIGTERM),
            )
        )
        stack.callback(_stop, process, show)
        output = ""
        for line in process.stdout or ():
            show(line)
            output += line
            if line.startswith(LISTENING):
                yield ServiceProcess(process, line.removeprefix(LISTENING).split()[0], output)
                return
        reason = f":\n{tail(log)}" if log else "; see above"
        raise CommandError(f"the service did not start{reason}")


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
