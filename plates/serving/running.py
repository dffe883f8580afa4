"""`plates serve` as a process of one's own, for commands and tests that need a service."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from plates.cli import CommandError
from plates.cli.serve import LISTENING
from plates.cli.supervising import TRITON
from plates.serving.processes import die_with_parent

_STOP_S = 20.0
_LOG_TAIL_LINES = 40
_TRITON_ADDRESSES = re.compile(rf"^{TRITON}gRPC (\S+), HTTP (\S+)", re.MULTILINE)
_AS_IT_IS: Mapping[str, str] = {}


@dataclass(frozen=True)
class ServiceProcess:
    """A `plates serve` that listens.

    Attributes:
        process: It.
        url: http://host:port.
        told: What it has printed until then.
    """

    process: "subprocess.Popen[str]"
    url: str
    told: str

    @property
    def triton(self) -> tuple[str, str] | None:
        """host:port of its Triton's gRPC and HTTP; None where it started none."""
        found = _TRITON_ADDRESSES.search(self.told)
        return (found[1], found[2]) if found else None


def _drop(_: str) -> None:
    """Show nobody what the service prints."""


@contextlib.contextmanager
def running_service(
    settings: Mapping[str, str] = _AS_IT_IS,
    log: Path | None = None,
    show: Callable[[str], None] = _drop,
) -> Iterator[ServiceProcess]:
    """Run `plates serve`, on a free port of this machine unless told otherwise, and stop it.

    Args:
        settings: Environment variables, with their prefix, above this process's own.
        log: The file that its log goes to; None: where this process's stderr goes.
        show: Called with each piece of what it prints.

    Yields:
        The process, as soon as it says where it listens; whether it is ready is another
        question. Afterwards its status is in `process.returncode`.

    Raises:
        CommandError: It ended before it listened.
    """
    with _spawned(settings, log) as process:
        try:
            yield _listening(process, log, show)
        finally:
            _stop(process, show)


@contextlib.contextmanager
def _spawned(settings: Mapping[str, str], log: Path | None) -> "Iterator[subprocess.Popen[str]]":
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(
            subprocess.Popen(
                # -P: the folder we are called from may hold a package "api" of somebody else's.
                [sys.executable, "-P", "-m", "plates.cli.main", "serve"],
                stdin=subprocess.DEVNULL,
                # A pipe doesn't fill: once it listens it prints two lines more.
                stdout=subprocess.PIPE,
                # A file: nobody reads meanwhile, and a full pipe would stop it.
                stderr=stack.enter_context(log.open("wb")) if log else None,
                text=True,
                env=os.environ | {"PLATES_HOST": "127.0.0.1", "PLATES_PORT": "0"} | dict(settings),
                # Ctrl-C in a terminal is for this process: it stops the service in order.
                start_new_session=True,
                # If even this process is killed. Safe here: no thread of it holds a lock.
                preexec_fn=lambda: die_with_parent(signal.SIGTERM),
            )
        )


def _listening(
    process: "subprocess.Popen[str]", log: Path | None, show: Callable[[str], None]
) -> ServiceProcess:
    told = ""
    for line in process.stdout or ():
        show(line)
        told += line
        if line.startswith(LISTENING):
            return ServiceProcess(process, line.removeprefix(LISTENING).split()[0], told)
    raise CommandError("the service did not start" + (f":\n{tail(log)}" if log else "; see above"))


def _stop(process: "subprocess.Popen[str]", show: Callable[[str], None]) -> None:
    if process.stdout is None or process.stdout.closed:  # ended, and read to the end
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
