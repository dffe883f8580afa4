"""What it costs to decode a photo file, or to refuse it: time, memory, result.

As a program it measures the files of `photo_bombs`, in a process that has no threads and so can
fork; the large ones have the side of its argument.
"""

import json
import os
import resource
import subprocess
import sys
import time
from typing import NamedTuple

import psutil
from photo_bombs import CHEAP, HEAVY, REFUSED
from photo_files import GOOD

from plate_models import images


class Cost(NamedTuple):
    """Of one file: processor seconds, the most memory that was added, (height, width) or slug."""

    decode_s: float
    peak_mb: float
    result: list[int] | str


def costs(side):
    """The cost of every file, and what else was written: warnings, and what decoders did beside."""
    words = [sys.executable, __file__, str(side)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = map(json.loads, done.stdout.splitlines())
    return {name: Cost(*cost) for name, *cost in rows}, done.stderr


def _print_cost(name, data):
    """Measure in a child, whose peak of memory begins where ours is now."""
    child = os.fork()
    if child == 0:
        before, start = psutil.Process().memory_info().rss, time.process_time()
        sys.addaudithook(_report)
        try:
            result = images.decode(data).shape[:2]
        except images.ImageError as error:
            result = error.slug
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        print(json.dumps((name, seconds, peak / 2**20, result)), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"the process died over the file {name!r}")


def _report(event, arguments):
    """Decoders get bytes, and need nothing else of this machine."""
    if event in ("open", "subprocess.Popen", "os.system", "os.exec", "socket.connect"):
        print(event, arguments, file=sys.stderr)


if __name__ == "__main__":
    for photo in GOOD.values():  # so that nothing is left to be imported
        images.decode(photo)
    for name, (make, _) in REFUSED.items():
        _print_cost(name, make())
    for name, make in CHEAP.items():
        _print_cost(name, make())
    for name, make_large in HEAVY.items():
        _print_cost(name, make_large(int(sys.argv[1])))
