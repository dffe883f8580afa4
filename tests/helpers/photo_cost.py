"""Measures what it costs to decode, or refuse, each file of `photo_bombs`.

It is a program of its own, because only a process without threads can fork safely. It prints for
each file the name, (height, width) or slug, processor seconds, and peak of added memory in MiB.
"""

import json
import os
import resource
import sys
import time

import psutil
from photo_bombs import CHEAP, HEAVY, REFUSED
from photo_files import GOOD

from plate_models import images


def _print_cost(name, data):
    """Measure in a forked child: its peak memory starts at the parent's memory now."""
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
        print(json.dumps((name, (result, seconds, peak / 2**20))), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"the process died over the file {name!r}")


def _report(event, arguments):
    """Print attempts to open files, run programs or connect: a decoder needs only its bytes."""
    if event in ("open", "subprocess.Popen", "os.system", "os.exec", "socket.connect"):
        print(event, arguments, file=sys.stderr)


if __name__ == "__main__":
    for photo in GOOD.values():  # so that all decoders are imported
        images.decode(photo)
    refused = {name: make for name, (make, _) in REFUSED.items()}
    for name, make in {**refused, **CHEAP, **HEAVY}.items():
        _print_cost(name, make())
