"""Process trees, parent-death signals and stale shared memory, on Linux."""

import contextlib
import ctypes
import os
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Triton's choice
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02


def die_with_parent(signal_number: int) -> None:
    """Have the kernel signal this process when the thread that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def become_subreaper() -> None:
    """Adopt the orphans among this process's descendants, instead of init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


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
    while (living := [*filter(is_alive, found)]) and time.monotonic() < deadline:
        _kill(living)
        time.sleep(_POLL_S)
        found |= mentioning(word)


def kill_children(timeout: float) -> None:
    """SIGKILL and reap all descendants of this process, until none is left or time is up."""
    deadline = time.monotonic() + timeout
    while found := psutil.Process().children(recursive=True):
        _kill(found)
        psutil.wait_procs(found, _POLL_S)
        if time.monotonic() > deadline:
            break


def _kill(living: Iterable[psutil.Process]) -> None:
    for process in living:
        # It may have ended meanwhile, or belong to another user.
        with contextlib.suppress(psutil.Error):
            process.kill()


def leftovers(prefix: str) -> list[Path]:
    """List the shared-memory segments whose name begins with a server's prefix."""
    return sorted(SHARED_MEMORY.glob(f"{prefix}*")) if prefix else []


def sweep(prefix: str) -> None:
    """Remove the shared memory of a server that has ended."""
    for segment in leftovers(prefix):
        segment.unlink(missing_ok=True)
