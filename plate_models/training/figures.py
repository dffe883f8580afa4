"""Counts with their 95 % intervals, paired comparisons, and alignments of texts."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

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

    def to_dict(self) -> dict[str, Any]:
        """The fields and the rate as JSON-ready values."""
        return {**asdict(self), "rate": self.rate}


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
    bootstrap, Efron 1979), not characters. No hit at all leaves nothing to resample: then
    the bound is that of `events`, as if a bad plate had one error.
    """
    if not sum(hits) or not sum(totals):
        return events(name, sum(hits), sum(totals))
    drawn = np.random.default_rng(0).integers(0, len(hits), (_RESAMPLES, len(hits)))
    rates = np.asarray(hits)[drawn].sum(axis=1) / np.asarray(totals)[drawn].sum(axis=1)
    low, high = np.percentile(rates, (2.5, 97.5))
    return Count(name, sum(hits), sum(totals), (float(low), float(high)))


def median_ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Median of ``a`` over the median of ``b``, measured in pairs.

    Args:
        a: Such as milliseconds per photo; at least one.
        b: The other way's, on the same photos in the same order, above 0.

    Returns:
        The ratio and its 95 % interval: pairs are resampled (percentile bootstrap, Efron
        1979), because a photo that is slow for one is slow for both.

    Raises:
        ValueError: There is nothing to compare, or not the same number of each.
    """
    if not a or len(a) != len(b):
        raise ValueError(f"expected as many of a as of b and at least one: {len(a)}, {len(b)}")
    first, second = np.asarray(a), np.asarray(b)
    drawn = np.random.default_rng(0).integers(0, len(a), (_RESAMPLES, len(a)))
    ratios = np.median(first[drawn], axis=1) / np.median(second[drawn], axis=1)
    low, high = np.percentile(ratios, (2.5, 97.5))
    return float(np.median(first) / np.median(second)), (float(low), float(high))


def mcnemar_p(wins: int, losses: int) -> float:
    """How likely wins and losses differ at least this much if both versions are equal.

    The exact two-sided test of McNemar 1947: given how many plates changed, each change
    is a win with probability one half. In [0, 1]; 1 where nothing changed.
    """
    changed = wins + losses
    tail = sum(math.comb(changed, k) for k in range(min(wins, losses) + 1))
    # Whole numbers divide exactly: as a float, 2**changed would overflow from 1024 on.
    return min(1.0, float(2 * tail / 2**changed))


def edit_distance(found: str, right: str) -> int:
    """Levenshtein distance: insertions, deletions and substitutions."""
    return sum(a != b for a, b in align(found, right))


def align(found: str, right: str) -> list[tuple[str, str]]:
    """Put two texts side by side with as few differences as can be.

    Returns:
        Pairs (character of ``found``, character of ``right``) in order; "" stands for
        nothing: ("", "7") was missed, ("7", "") is too much.
    """
    costs = _edit_costs(found, right)
    pairs, i, j = [], len(found), len(right)
    while i or j:
        here = costs[i][j]
        if i and j and here == costs[i - 1][j - 1] + (found[i - 1] != right[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((found[i], right[j]))
        elif i and here == costs[i - 1][j] + 1:
            i -= 1
            pairs.append((found[i], ""))
        else:
            j -= 1
            pairs.append(("", right[j]))
    return pairs[::-1]


def _edit_costs(found: str, right: str) -> list[list[int]]:
    """Edit distance of every pair of beginnings: [length of found][length of right]."""
    costs = [list(range(len(right) + 1))]
    for i, a in enumerate(found, 1):
        row, above = [i], costs[-1]
        for j, b in enumerate(right, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
        costs.append(row)
    return costs
