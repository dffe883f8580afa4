"""What it costs to decode a photo file, or to refuse it: time, memory, result.

As a program it prints that as JSON for every file of `photo_bombs`, the large ones with this side:

    .venv/bin/python tests/photo_cost.py 8000
"""

import json
import os
import resource
import subprocess
import sys
import time
from functools import partial
from typing import NamedTuple

import psutil
from photo_bombs import CHEAP, HEAVY, REFUSED

from plate_models import images


class Cost(NamedTuple):
    """Of one file: seconds, the most memory that was added meanwhile, (height, width) or slug."""

    decode_s: float
    peak_mb: float
    result: list[int] | str


def costs(side: int) -> dict[str, Cost]:
    """The cost of every file, measured in a program that has no threads and so can fork."""
    words = [sys.executable, __file__, str(side)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = map(json.loads, done.stdout.split("\n")[:-1])
    return {name: Cost(*cost) for name, *cost in rows}


def _print_cost(name: str, data: bytes) -> None:
    """Measure in a child, whose peak of memory begins where ours is now."""
    child = os.fork()
    if child == 0:
        before, start = psutil.Process().memory_info().rss, time.perf_counter()
        try:
            result = images.decode(data).shape[:2]
        except images.ImageError as error:
            result = error.slug
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        print(json.dumps((name, seconds, peak / 2**20, result)), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"the process died over the file {name!r}")


if __name__ == "__main__":
    files = {name: make for name, (make, _) in REFUSED.items()} | CHEAP
    files |= {name: partial(make, int(sys.argv[1])) for name, make in HEAVY.items()}
    for name, make in files.items():
        _print_cost(name, make())
