"""Whether the time of a photo grows like a straight line with what is in it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plates.benchmarks.speed.turns import Times


@dataclass(frozen=True)
class Growth:
    """Times against something that grows.

    Attributes:
        unit: What grows, such as "plate".
        amounts: How much of it, rising; at least three different ones.
        times: For each.
    """

    unit: str
    amounts: tuple[float, ...]
    times: tuple[Times, ...]

    @property
    def p50_ms(self) -> list[float]:
        """Median milliseconds of each amount."""
        return [times.p50_ms for times in self.times]

    def line(self) -> tuple[float, float]:
        """Milliseconds per unit, and at none, of the straight line of least squares."""
        return _line(self.amounts, self.p50_ms)

    def deviation(self) -> float:
        """How far a median lies from the line at most, as a share of the line there."""
        slope, start = self.line()
        expected = slope * np.asarray(self.amounts) + start
        return float(np.max(np.abs(np.asarray(self.p50_ms) - expected) / expected))

    def steepening(self) -> float:
        """Cost of a unit between the two largest amounts, over that among all the smaller ones.

        1 for a straight line. What costs less and less has less than 1, and where more
        costs nothing until the largest amount it is infinite.
        """
        amounts, p50_ms = self.amounts, self.p50_ms
        small, _ = _line(amounts[:-1], p50_ms[:-1])
        large, _ = _line(amounts[-2:], p50_ms[-2:])
        if large <= 0:
            return 0.0
        return large / small if small > 0 else float("inf")


def _line(amounts: Sequence[float], p50_ms: Sequence[float]) -> tuple[float, float]:
    slope, start = np.polyfit(amounts, p50_ms, 1)
    return float(slope), float(start)
