"""What it costs to decode each file of `photo_bombs`, or to refuse it.

A program, because a process without threads can fork. It prints a file's name, with its (height,
width) or slug, processor seconds, and the most MiB that were added.
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
        print(json.dumps((name, (result, seconds, peak / 2**20))), flush=True)
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
    refused = {name: make for name, (make, _) in REFUSED.items()}
    for name, make in {**refused, **CHEAP, **HEAVY}.items():
        _print_cost(name, make())
