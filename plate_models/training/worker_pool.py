"""Pools of worker processes of one thread each, which render and read many pictures."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import starmap
from typing import Any, TypeVar

import cv2

from plate_models.process import die_with_parent

Result = TypeVar("Result")


def start_pool(workers: int) -> ProcessPoolExecutor:
    """A pool of processes of one thread and low priority, for module-level functions."""
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, spawn, initializer=_use_one_thread)


def map_ahead(
    function: Callable[..., Result], workers: int, *arguments: Iterable[Any]
) -> Generator[Result]:
    """Like `map`, with a module-level function, in other processes; without arguments, no results.

    Each worker is a process of one thread; 0 workers means this process.
    """
    if workers:
        with start_pool(workers) as pool:
            yield from pool.map(function, *arguments)
    else:
        yield from starmap(function, zip(*arguments, strict=False))


def _use_one_thread() -> None:
    os.nice(10)
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # at Ctrl-C end at once, without a traceback
    cv2.setNumThreads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when the function's module imports torch
