"""Counts with their 95 % intervals, and the edit distance between texts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_Z = 1.959964
_RESAMPLES = 2000


@dataclass(frozen=True)
class Count:
    """So many of so many, with its uncertainty.

    Attributes:
        name: What was counted.
        hits: How often.
        total: Of how many.
        interval_95: Bounds of the rate; None if nothing was counted.
    """

    name: str
    hits: int
    total: int
    interval_95: tuple[float, float] | None

    @property
    def rate(self) -> float | None:
        """Hits per total; None if nothing was counted."""
        return self.hits / self.total if self.total else None


def proportion(name: str, hits: Sequence[bool]) -> Count:
    """Share of hits, with the score interval of Wilson 1927."""
    n, k = len(hits), sum(hits)
    if not n:
        return Count(name, 0, 0, None)
    p = k / n
    centre = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n * n))
    return Count(name, k, n, (max(0.0, centre - half), min(1.0, centre + half)))


def events(name: str, hits: int, exposure: int) -> Count:
    """Events per unit, such as false plates per photo, which may exceed 1.

    With Byar's approximation of the exact Poisson interval (Breslow and Day 1987,
    "Statistical Methods in Cancer Research II").
    """
    if not exposure:
        return Count(name, hits, 0, None)

    def bound(k: int, sign: int) -> float:
        return k * (1 - 1 / (9 * k) + sign * _Z / (3 * math.sqrt(k))) ** 3 if k else 0.0

    interval = (bound(hits, -1) / exposure, bound(hits + 1, 1) / exposure)
    return Count(name, hits, exposure, interval)


def ratio(name: str, hits: Sequence[int], totals: Sequence[int]) -> Count:
    """Ratio of two sums over plates, such as wrong characters over characters.

    Errors come in bunches, one plate several, so plates are resampled (percentile
    bootstrap, Efron 1979), not characters.
    """
    if not sum(totals):
        return Count(name, sum(hits), 0, None)
    drawn = np.random.default_rng(0).integers(0, len(hits), (_RESAMPLES, len(hits)))
    rates = np.asarray(hits)[drawn].sum(axis=1) / np.asarray(totals)[drawn].sum(axis=1)
    low, high = np.percentile(rates, (2.5, 97.5))
    return Count(name, sum(hits), sum(totals), (float(low), float(high)))


def edit_distance(found: str, right: str) -> int:
    """Levenshtein distance: insertions, deletions and substitutions."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(found, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]
