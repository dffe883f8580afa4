"""Process trees and stale shared memory, on Linux."""

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Triton's choice
_POLL_S = 0.02


def is_zombie(process: psutil.Process) -> bool:
    """Report whether a process has ended but is not reaped yet."""
    try:
        return process.is_running() and process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_group(leader: int, timeout: float) -> None:
    """SIGKILL the processes of a group until none is left or the time is up.

    They are reaped, too: in a container orphans become children of its first process.
    """
    deadline = time.monotonic() + timeout
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(leader, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-leader, os.WNOHANG)
            time.sleep(_POLL_S)


def leftovers(prefix: str) -> list[Path]:
    """List the shared-memory segments whose name begins with a server's prefix."""
    return sorted(SHARED_MEMORY.glob(f"{prefix}*")) if prefix else []
