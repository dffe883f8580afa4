"""How many threads there is room for, whatever holds the process."""

import os
from pathlib import Path

THREADS = "PLATES_THREADS"
_CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Count the cores that this process may keep busy.

    Args:
        cgroup: Where the control group's files are.

    Returns:
        The cores it may run on, or fewer where a container's quota of processor time
        (cgroup v2, ``cpu.max``) allows fewer; at least 1.
    """
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        cores = min(cores, int(quota) // int(period))  # "max" is no number
    except (OSError, ValueError, ZeroDivisionError):
        pass
    return max(1, cores)


def choose_threads(configured: int = 0) -> int:
    """Decide how many threads one graph computes with.

    Args:
        configured: What a model's configuration says; 0 leaves it open.

    Returns:
        That, or ``PLATES_THREADS``, or all usable cores; never more than those.

    Raises:
        ValueError: ``PLATES_THREADS`` is not a whole number of at least 1.
    """
    given = os.environ.get(THREADS, "")
    if given and not (given.isdecimal() and int(given) > 0):
        raise ValueError(f"{THREADS}: expected a whole number of at least 1, got {given!r}")
    cores = usable_cores()
    return min(configured or int(given or cores), cores)
