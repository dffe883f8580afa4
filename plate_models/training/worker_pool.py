"""Work done by other processes, a little ahead of what reads its results."""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

import cv2

Item = TypeVar("Item")
Result = TypeVar("Result")

# Results that may wait for each worker.
_AHEAD = 4


def start_pool(workers: int) -> ProcessPoolExecutor:
    """Processes of one thread and low priority, for functions of modules."""
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, spawn, initializer=_use_one_thread)


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result]:
    """Call a function of a module for each item, in other processes; yields in their order.

    Each worker is a process of one thread; 0 workers means this process.
    """
    if not workers:
        yield from map(function, items)
        return
    pool = start_pool(workers)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _use_one_thread() -> None:
    os.nice(10)
    cv2.setNumThreads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when the function's module loads it
