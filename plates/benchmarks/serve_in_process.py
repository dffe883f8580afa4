"""Photos read in a process of one's own, without any service: what HTTP is compared with.

Called in a `MeasuringProcess`; the nets are loaded once in each.
"""

import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from plate_models.cores import THREADS

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets


@dataclass(frozen=True)
class Readings:
    """Photos read one after the other.

    Attributes:
        whole_s: Seconds for each, from the file's bytes to the texts.
        decode_s: Of these, for decoding the file.
        seconds: For all of them.
        idle_cpu_s: CPU time that this process has used since its last readings ended.
    """

    whole_s: list[float]
    decode_s: list[float]
    seconds: float
    idle_cpu_s: float

    @property
    def rate(self) -> float:
        """Photos per second."""
        return len(self.whole_s) / self.seconds


_cpu_at_end: list[float] = []


def environment(threads: int) -> dict[str, str]:
    """What the environment of a process must say, so that it computes with so many threads.

    Args:
        threads: For each net, and for what is no net.
    """
    # As the service's processes have it: threads that spin starve whoever computes next.
    return {THREADS: str(threads), "OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "0"}


def read_for(seconds: float, photo: bytes) -> Readings:
    """Read a photo again and again.

    Args:
        seconds: After which no further reading is begun; there is at least one.
        photo: A file's bytes.
    """
    idle_cpu_s = time.process_time() - _cpu_at_end.pop() if _cpu_at_end else 0.0
    nets = _nets()
    whole: list[float] = []
    decoding: list[float] = []
    start = time.perf_counter()
    while not whole or time.perf_counter() - start < seconds:
        began = time.perf_counter()
        image = _decoded(photo)
        decoding.append(time.perf_counter() - began)
        nets.read(image)
        whole.append(time.perf_counter() - began)
    took = time.perf_counter() - start
    _cpu_at_end.append(time.process_time())
    return Readings(whole, decoding, took, idle_cpu_s)


@cache
def _nets() -> "Nets":
    from plate_models.engines.nets import load_nets
    from plate_models.heap import keep_freed_memory

    keep_freed_memory()  # as `plate_recognition` does
    return load_nets("served")


def _decoded(photo: bytes) -> Any:
    from torch import from_numpy

    from plate_models.images import decode

    return from_numpy(decode(photo))
