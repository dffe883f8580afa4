"""The benchmark's photos, rendered by other processes while this one reads them."""

import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor

import cv2

from plate_models.synthetic.benchmark.photos import SEED, BenchmarkPhoto, render_photo

# Photos that may wait for each worker: enough to keep it busy, few to keep in memory.
_AHEAD = 8


def render_photos(
    numbered: Iterable[tuple[str, int]], workers: int, seed: int = SEED
) -> Iterator[BenchmarkPhoto]:
    """Render photos in the order asked for.

    Args:
        numbered: Kind and number of each.
        workers: Processes; 0 renders in this one.
        seed: Of the whole benchmark.
    """
    if not workers:
        yield from (render_photo(kind, index, seed) for kind, index in numbered)
        return
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, spawn, initializer=_use_one_thread)
    waiting: deque[Future[BenchmarkPhoto]] = deque()
    try:
        for kind, index in numbered:
            waiting.append(pool.submit(render_photo, kind, index, seed))
            if len(waiting) >= _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _use_one_thread() -> None:
    """Workers are as many as there shall be threads."""
    cv2.setNumThreads(1)
