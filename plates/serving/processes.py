"""Process trees, parent-death signals and stale shared memory, on Linux."""

import contextlib
import ctypes
import time
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Triton's choice
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.02


def die_with_parent(signal_number: int) -> None:
    """Have the kernel signal this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal_number)


def is_alive(process: psutil.Process | int) -> bool:
    """Report whether a process exists and has not ended.

    A zombie with living threads has not: they still hold its ports.
    """
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
        return process.is_running() and (not is_zombie(process) or process.num_threads() > 1)
    except psutil.NoSuchProcess:
        return False


def is_zombie(process: psutil.Process) -> bool:
    """Report whether a process has ended and was not reaped."""
    try:
        return process.is_running() and process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def children(pid: int) -> list[psutil.Process]:
    """List the direct children of a process, zombies included."""
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []


def mentioning(word: str) -> set[psutil.Process]:
    """Find the processes with a word in their arguments; the empty word finds none."""
    found = set()
    for process in psutil.process_iter() if word else ():
        with contextlib.suppress(psutil.Error):
            if any(word in argument for argument in process.cmdline()):
                found.add(process)
    return found


def kill_mentioning(word: str, timeout: float) -> None:
    """SIGKILL the processes with a word in their arguments, until none lives or time is up."""
    deadline = time.monotonic() + timeout
    # Remembered: a process that is about to end has no arguments any more.
    found = mentioning(word)
    found = found.union(*(children(process.pid) for process in found))
    while (living := [*filter(is_alive, found)]) and time.monotonic() < deadline:
        for process in living:
            # It may have ended meanwhile, or belong to another user.
            with contextlib.suppress(psutil.Error):
                process.kill()
        # In a container, whose first process this is, it reaps them as well.
        psutil.wait_procs(found, _POLL_S)
        found |= mentioning(word)


def leftovers(prefix: str) -> list[Path]:
    """List the shared-memory segments whose name begins with a server's prefix."""
    return sorted(SHARED_MEMORY.glob(f"{prefix}*")) if prefix else []


def sweep(prefix: str) -> None:
    """Remove the shared memory of a server that has ended."""
    for segment in leftovers(prefix):
        segment.unlink(missing_ok=True)
