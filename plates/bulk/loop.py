"""The yardstick: the same photos read by plain processes, one for each core, without Ray."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plate_models.images import ImageError
from plates.bulk.chunks import Job, load_alone, read_file

if TYPE_CHECKING:
    from plate_models.pipeline import Plate

_STARTS_WITHIN_S = 120


@dataclass(frozen=True)
class Share:
    """What one process did.

    Attributes:
        photos: How many it was given.
        began, ended: In seconds since 1970, from its first photo to its last.
    """

    photos: int
    began: float
    ended: float


def read_in_processes(paths: Sequence[Path], job: Job, processes: int) -> list[Share]:
    """Read photos in plain processes that begin together, and time each.

    Args:
        paths: Local photos; each process takes every so-manyth.
        job: Names engine and weights.
        processes: How many.

    Returns:
        What each did.

    Raises:
        RuntimeError: A process ended without an answer.
    """
    context = get_context("spawn")
    barrier, answers = context.Barrier(processes), context.SimpleQueue()
    started = [
        context.Process(
            target=_read_share, args=(paths[n::processes], job, barrier, answers), daemon=True
        )
        for n in range(processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
    if any(process.exitcode for process in started):
        raise RuntimeError(f"exit codes of the loop: {[p.exitcode for p in started]}")
    return [answers.get() for _ in started]


def _read_share(paths: Sequence[Path], job: Job, barrier: Any, answers: Any) -> None:
    nets = load_alone(job)
    barrier.wait(_STARTS_WITHIN_S)
    began = time.time()
    for path in paths:
        try:
            read_file(path.read_bytes(), nets)
        except ImageError:
            continue
    answers.put(Share(len(paths), began, time.time()))


def read_here(paths: Sequence[Path], job: Job) -> "list[list[Plate] | None]":
    """Read photos in this process, one after the other.

    Returns:
        The plates of each; None where it can't be decoded.
    """
    nets = load_alone(job)
    found: list[list[Plate] | None] = []
    for path in paths:
        try:
            found.append(read_file(path.read_bytes(), nets)[1])
        except ImageError:
            found.append(None)
    return found
