"""Linux processes and shared memory: families, last wills and leftovers."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Triton's choice
# Of the fields of /proc/*/stat that follow the parent's.
_THREADS, _BEGAN = 15, 17
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Process:
    """One line of the process table.

    Attributes:
        pid, parent: Process ids.
        state: The kernel's letter: "R", "S", "D", … "Z" is dead and not reaped.
        threads: How many there are.
        began: When it did, in clock ticks since the machine did: ids are given away again.
        command: Arguments; empty for a zombie.
    """

    pid: int
    parent: int
    state: str
    threads: int
    began: int
    command: tuple[str, ...]

    @property
    def dead(self) -> bool:
        """Whether it has ended and waits for its parent to notice.

        The first thread of a killed process may end before the others, which still hold
        its ports.
        """
        return self.state in "ZX" and self.threads <= 1


def die_with_parent(signal_number: int) -> None:
    """Have the kernel signal this process when the thread that made it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def become_subreaper() -> None:
    """Adopt the orphans among this process's descendants, instead of init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def process_table() -> list[Process]:
    """List all processes that can be seen."""
    folders = (folder for folder in Path("/proc").iterdir() if folder.name.isdecimal())
    return [process for folder in folders if (process := _read_process(folder))]


def _read_process(folder: Path) -> Process | None:
    try:
        stat = (folder / "stat").read_text(errors="replace")
        command = (folder / "cmdline").read_bytes().decode(errors="replace")
    except OSError:  # ended while we looked
        return None
    # The name may hold spaces and brackets: fields count from the last bracket.
    state, parent, *others = stat.rpartition(")")[2].split()
    threads, began = int(others[_THREADS]), int(others[_BEGAN])
    words = tuple(command.split("\0")[:-1])
    return Process(int(folder.name), int(parent), state, threads, began, words)


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and has not ended; cheap, unlike the whole table."""
    process = _read_process(Path("/proc") / str(pid))
    return process is not None and not process.dead


def is_zombie(pid: int) -> bool:
    """Tell whether a process has ended and its parent has not taken note of it."""
    process = _read_process(Path("/proc") / str(pid))
    return process is not None and process.dead


def children(pid: int) -> list[Process]:
    """List the direct children of a process, dead ones included."""
    return [process for process in process_table() if process.parent == pid]


def descendants(pid: int) -> list[Process]:
    """List children, their children and so on, parents first."""
    by_parent: dict[int, list[Process]] = {}
    for process in process_table():
        by_parent.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    queue = [pid]
    while queue:
        offspring = by_parent.get(queue.pop(0), [])
        found += offspring
        queue += [process.pid for process in offspring]
    return found


def mentioning(word: str) -> list[Process]:
    """List the living processes whose arguments contain a word, orphans included."""
    return [process for process in process_table() if _mentions(process, word)]


def _mentions(process: Process, word: str) -> bool:
    return any(word in part for part in process.command)


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL processes that may be gone already, or that are another user's."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_mentioning(word: str, timeout: float) -> set[int]:
    """SIGKILL every process with a word in its arguments, until none lives or time is up.

    Returns:
        The process ids of all that had it.
    """
    deadline = time.monotonic() + timeout
    found: set[tuple[int, int]] = set()
    while time.monotonic() < deadline:
        table = process_table()
        # Remembered: who is about to end has no arguments any more.
        found |= {(process.pid, process.began) for process in table if _mentions(process, word)}
        living = [p.pid for p in table if (p.pid, p.began) in found and not p.dead]
        if not living:
            break
        kill_all(living)
        time.sleep(0.02)
    return {pid for pid, _ in found}


def reap(pids: Iterable[int]) -> None:
    """Take leave of those that have ended and are children of this process.

    The first process of a container inherits all orphans, and nobody else does that for it.
    """
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def kill_adopted(timeout: float) -> None:
    """SIGKILL and reap every child of this process, until none is left or time is up."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        kill_all(process.pid for process in descendants(os.getpid()))
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # no child is left
            return
        time.sleep(0.02)


def leftovers(prefix: str) -> list[Path]:
    """List the shared-memory segments whose name begins with a server's prefix."""
    return sorted(SHARED_MEMORY.glob(f"{prefix}*")) if prefix else []


def sweep(prefix: str) -> None:
    """Remove the shared memory of a server that is gone."""
    for segment in leftovers(prefix):
        segment.unlink(missing_ok=True)


def sweep_unmapped(prefix: str, min_age_s: float) -> list[Path]:
    """Remove the shared memory of a living server that none of its processes maps.

    Args:
        prefix: Of the server's segments; also in the arguments of all its processes.
        min_age_s: Younger segments stay: one that was just made is about to be mapped.

    Returns:
        What was removed.
    """
    found = [path for path in leftovers(prefix) if _age_s(path) >= min_age_s]
    mapped = mapped_by((process.pid for process in process_table()), prefix)
    unmapped = [path for path in found if path not in mapped]
    for path in unmapped:
        path.unlink(missing_ok=True)
    return unmapped


def mapped_by(pids: Iterable[int], prefix: str) -> set[Path]:
    """Find the shared memory that processes map.

    Args:
        pids: Of the processes; those of other users and those that have ended map none.
        prefix: Of the segments.
    """
    mapped: set[Path] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
            mapped |= {Path(line.split()[-1]) for line in maps.splitlines() if prefix in line}
    return mapped


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_ctime
    except OSError:  # removed while we looked
        return 0.0
