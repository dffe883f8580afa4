"""Numbers of threads and photos in parallel that suit the cores, also in a container."""

import os
from pathlib import Path

THREADS = "PLATES_THREADS"
# While this many photos wait for a net, the cores work on the others. Each further photo would
# take another 17 MB (at two megapixels) and gain nothing.
_WAITING_PHOTOS = 1


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Count the cores that this process may use, at least 1.

    These are the cores of its CPU affinity, or fewer if a container's quota of processor time
    (cgroup v2, ``cpu.max``) is lower.
    """
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, int(quota) // int(period))  # "max" is no number
    except (OSError, ValueError, ZeroDivisionError):
        pass  # no quota
    return max(1, cores)


def choose_threads(configured: int = 0) -> int:
    """Return the number of threads for one graph, given the one in its configuration.

    The limit is ``PLATES_THREADS``, or if that is not set, the usable cores; 0 in the configuration
    stands for the limit. Raises ValueError if ``PLATES_THREADS`` is no whole number of at least 1.
    """
    given = os.environ.get(THREADS, "")
    if given and not (given.isdecimal() and int(given) > 0):
        raise ValueError(f"{THREADS}: expected a whole number of at least 1, got {given!r}")
    most = int(given) if given else usable_cores()
    return min(configured, most) if configured else most


def photos_at_once(threads: int, processes: int = 1) -> int:
    """Number of photos that each process works on in parallel, given the threads per net."""
    return max(1, (threads + _WAITING_PHOTOS) // processes)
