"""What it costs to look at a photo file and to decode it: time, memory, result.

As a program it prints that as JSON for every file of `photo_bombs`, the large ones with this side:

    .venv/bin/python tests/photo_cost.py 8000
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import psutil
from photo_bombs import CHEAP, HEAVY, REFUSED

from plate_models import images


class Cost(NamedTuple):
    """Of one file.

    Attributes:
        header_s: To refuse or accept it by its header.
        decode_s: To decode it, header included.
        peak_mb: The most memory that was added meanwhile.
        result: Height and width, or the slug of the refusal.
    """

    header_s: float
    decode_s: float
    peak_mb: float
    result: list[int] | str


def costs(side: int) -> dict[str, tuple[int, Cost]]:
    """Bytes and cost of every file, measured in a program that has no threads and so can fork."""
    words = [sys.executable, __file__, str(side)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = map(json.loads, done.stdout.split("\n")[:-1])
    return {name: (size, Cost(*cost)) for name, size, cost in rows}


def _print_cost(name: str, data: bytes) -> None:
    """Measure in a child, whose peak of memory begins where ours is now."""
    child = os.fork()
    if child == 0:
        before = psutil.Process().memory_info().rss
        header_s, _ = _timed(images.check_header, data)
        decode_s, result = _timed(images.decode, data)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        cost = Cost(header_s, decode_s, peak / 2**20, result)
        print(json.dumps((name, len(data), cost)), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"the process died over the file {name!r}")


def _timed(read: Callable[[bytes], object], data: bytes) -> tuple[float, list[int] | str]:
    start = time.perf_counter()
    try:
        result = list(getattr(read(data), "shape", ()))[:2]
    except images.ImageError as error:
        result = error.slug
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    return time.perf_counter() - start, result


if __name__ == "__main__":
    files = {name: make for name, (make, _) in REFUSED.items()} | CHEAP
    files |= {name: partial(make, int(sys.argv[1])) for name, make in HEAVY.items()}
    for name, make in files.items():
        _print_cost(name, make())
