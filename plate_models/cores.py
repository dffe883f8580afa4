"""How many threads there is room for, in a container too."""

import os
from pathlib import Path

THREADS = "PLATES_THREADS"
# While one photo waits for a net, the cores have others to work on; each further one would
# hold another 17 MB (of two megapixels) and gain nothing.
_WAITING_PHOTOS = 1
_CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Count the cores that this process may keep busy, at least 1.

    They are those it may run on, or fewer where a container's quota of processor time
    (cgroup v2, ``cpu.max``) allows fewer.
    """
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, int(quota) // int(period))  # "max" is no number
    except (OSError, ValueError, ZeroDivisionError):
        pass  # no quota
    return max(1, cores)


def choose_threads(configured: int = 0) -> int:
    """Decide how many threads one graph computes with.

    That is what its configuration says, 0 for as many as possible; never more than
    ``PLATES_THREADS`` (a ValueError if that is no whole number of at least 1), or without it
    the usable cores.
    """
    given = os.environ.get(THREADS, "")
    if given and not (given.isdecimal() and int(given) > 0):
        raise ValueError(f"{THREADS}: expected a whole number of at least 1, got {given!r}")
    most = int(given) if given else usable_cores()
    return min(configured, most) if configured else most


def photos_at_once(threads: int, processes: int = 1) -> int:
    """How many photos each process works on at a time, by so many threads for each net."""
    return max(1, (threads + _WAITING_PHOTOS) // processes)
