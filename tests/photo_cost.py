"""What it costs to look at a photo file and to decode it: time, memory, result.

As a program it prints the table for all files of `photo_bombs`, the large ones at the
largest size that is allowed:

    .venv/bin/python tests/photo_cost.py
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from photo_bombs import CHEAP, HEAVY, REFUSED

from plate_models import images
from plate_models.spec import LIMITS

LARGEST_SIDE = int(LIMITS.max_pixels**0.5)


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


def cost_of(data: bytes) -> Cost:
    """Measure in a child, whose peak of memory begins where ours is now."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(_measured(data)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    if not said:
        raise RuntimeError("the process died over this file")
    return Cost(*json.loads(said))


def _measured(data: bytes) -> Cost:
    before = _status_mb("VmRSS")
    header_s, _ = _timed(images.check_header, data)
    decode_s, result = _timed(images.decode, data)
    return Cost(header_s, decode_s, _status_mb("VmHWM") - before, result)


def _timed(read: Callable[[bytes], object], data: bytes) -> tuple[float, list[int] | str]:
    start = time.perf_counter()
    try:
        result = list(getattr(read(data), "shape", ()))[:2]
    except images.ImageError as error:
        result = error.slug
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    return time.perf_counter() - start, result


def _status_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def costs(side: int = LARGEST_SIDE) -> dict[str, tuple[int, Cost]]:
    """Bytes and cost of every file, the heavy ones in this size.

    Measured in a program of its own: whoever calls may have threads, and can't fork then.
    """
    words = [sys.executable, __file__, "--json", str(side)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return {
        name: (size, Cost(*cost))
        for name, size, cost in map(json.loads, done.stdout.split("\n")[:-1])
    }


def _rows(side: int) -> Iterator[tuple[str, int, Cost]]:
    files = {name: make for name, (make, _) in REFUSED.items()} | CHEAP
    files |= {name: partial(make, side) for name, make in HEAVY.items()}
    for name, make in files.items():
        data = make()
        yield name, len(data), cost_of(data)


def main(words: list[str]) -> None:
    side = int(words[-1]) if words else LARGEST_SIDE
    if "--json" in words:
        for row in _rows(side):
            print(json.dumps(row))
        return
    print(f"{'file':42}{'bytes':>12}{'header':>10}{'decoding':>11}{'memory':>10}  result")
    for name, size, cost in _rows(side):
        times = f"{cost.header_s * 1000:7.0f} ms{cost.decode_s * 1000:8.0f} ms"
        print(f"{name:42}{size:12,}{times}{cost.peak_mb:7.0f} MB  {cost.result}")


if __name__ == "__main__":
    main(sys.argv[1:])
