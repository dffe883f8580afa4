"""Which machine a figure comes from: without it the figure says nothing."""

import os
import platform
from datetime import date
from pathlib import Path


def describe_machine() -> str:
    """Name processor, cores, memory, system and date in one line."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    cores = len(os.sched_getaffinity(0))
    parts = (
        _processor(),
        f"{cores} core{'s' * (cores != 1)}",
        f"{memory:.0f} GiB",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
        date.today().isoformat(),
    )
    return ", ".join(parts)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
