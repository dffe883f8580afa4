"""Times taken in turns: whatever else slows the machine slows all that is compared."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

Work = Callable[[], object]
T = TypeVar("T")

WARM_UP = 2
_LEAST = 3


@dataclass(frozen=True)
class Times:
    """Of one thing that was done again and again.

    Attributes:
        wall_ms: Elapsed milliseconds, one per turn.
        cpu_ms: Milliseconds of processor time that all threads of this process took in it.
    """

    wall_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]

    @property
    def p50_ms(self) -> float:
        """Median of the elapsed milliseconds."""
        return percentile(self.wall_ms, 50)

    @property
    def p95_ms(self) -> float:
        """95 of 100 turns took no longer, in milliseconds."""
        return percentile(self.wall_ms, 95)

    def to_dict(self) -> dict[str, Any]:
        """Turns, p50 and p95 of both as JSON-ready values."""
        return {
            "turns": len(self.wall_ms),
            "wall_ms": {"p50": self.p50_ms, "p95": self.p95_ms},
            "cpu_ms": {"p50": percentile(self.cpu_ms, 50), "p95": percentile(self.cpu_ms, 95)},
        }


def percentile(values: tuple[float, ...], percent: float) -> float:
    """The value that so many percent don't exceed, between two where it must be."""
    return float(np.percentile(values, percent))


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """Do something once.

    Returns:
        What it returned, its elapsed milliseconds and its milliseconds of processor time.
    """
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    wall_ms = 1000 * (time.perf_counter() - wall)
    return result, wall_ms, 1000 * (time.process_time() - cpu)


def one_turn(works: Mapping[str, Work], backwards: bool = False) -> dict[str, tuple[float, float]]:
    """Do each thing once.

    Args:
        works: What is compared, by name.
        backwards: Begin with the last one.

    Returns:
        Elapsed milliseconds and milliseconds of processor time of each.
    """
    order = list(works)[:: -1 if backwards else 1]
    return {name: timed(works[name])[1:] for name in order}


def take_turns(works: Mapping[str, Work], seconds: float, least: int = _LEAST) -> dict[str, Times]:
    """Do one thing after the other, again and again, every second time backwards.

    Backwards, because what is done after something heavy finds its own data gone from the
    caches: so none always comes after the same one.

    Args:
        works: What is compared, by name; at least one.
        seconds: To go on for, after ``WARM_UP`` turns that don't count.
        least: Turns to take even if they take longer.

    Returns:
        The times of each, by name.
    """
    for _ in range(WARM_UP):
        one_turn(works)
    turns: list[dict[str, tuple[float, float]]] = []
    end = time.perf_counter() + seconds
    while len(turns) < least or time.perf_counter() < end:
        turns.append(one_turn(works, backwards=len(turns) % 2 == 1))
    return times_of(turns)


def times_of(turns: list[dict[str, tuple[float, float]]]) -> dict[str, Times]:
    """Gather turns, at least one, by name."""
    pairs = {name: [turn[name] for turn in turns] for name in turns[0]}
    return {
        name: Times(tuple(wall for wall, _ in of), tuple(cpu for _, cpu in of))
        for name, of in pairs.items()
    }
