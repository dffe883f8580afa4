"""Counts with their 95 % intervals, paired comparisons, and alignments of texts."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest, chi2

_RESAMPLES = 2000


@dataclass(frozen=True)
class Count:
    """So many hits out of a total."""

    name: str  # what was counted
    hits: int  # how often
    total: int  # of how many
    interval_95: tuple[float, float] | None  # bounds of the rate; None if nothing was counted

    @property
    def rate(self) -> float | None:
        """Hits per total; None if nothing was counted."""
        return self.hits / self.total if self.total else None

    def to_dict(self) -> dict[str, Any]:
        """The fields and the rate as JSON-ready values."""
        return {**asdict(self), "rate": self.rate}


def proportion(name: str, hits: Sequence[bool]) -> Count:
    """Share of hits, with the score interval of Wilson 1927."""
    if not hits:
        return Count(name, 0, 0, None)
    found = binomtest(sum(hits), len(hits)).proportion_ci(method="wilson")
    return Count(name, sum(hits), len(hits), (float(found.low), float(found.high)))


def events(name: str, hits: int, exposure: int) -> Count:
    """Events per unit, such as false plates per photo, which may exceed 1.

    With the exact Poisson interval (Garwood 1936).
    """
    if not exposure:
        return Count(name, hits, 0, None)
    low = float(chi2.ppf(0.025, 2 * hits)) / 2 if hits else 0.0
    high = float(chi2.ppf(0.975, 2 * hits + 2)) / 2
    return Count(name, hits, exposure, (low / exposure, high / exposure))


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
    """Median of ``a`` over the median of ``b``, measured in pairs, and its 95 % interval.

    Pairs are resampled (percentile bootstrap), because a photo that is slow for one is slow
    for both.

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

    The exact two-sided test of McNemar 1947; 1 where nothing changed.
    """
    return float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def edit_distance(found: str, right: str) -> int:
    """Levenshtein distance: insertions, deletions and substitutions."""
    return sum(a != b for a, b in align(found, right))


def align(found: str, right: str) -> list[tuple[str, str]]:
    """Put two texts side by side with as few differences as can be.

    Returns:
        Pairs (character of ``found``, character of ``right``) in order; "" stands for
        nothing: ("", "7") was missed, ("7", "") is too much.
    """
    costs = np.add.outer(np.arange(len(found) + 1), np.arange(len(right) + 1))
    for i, a in enumerate(found, 1):
        for j, b in enumerate(right, 1):
            around = costs[i - 1, j] + 1, costs[i, j - 1] + 1, costs[i - 1, j - 1] + (a != b)
            costs[i, j] = min(around)
    pairs, i, j = [], len(found), len(right)
    while i or j:
        if i and j and costs[i, j] == costs[i - 1, j - 1] + (found[i - 1] != right[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((found[i], right[j]))
        elif i and costs[i, j] == costs[i - 1, j] + 1:
            i -= 1
            pairs.append((found[i], ""))
        else:
            j -= 1
            pairs.append(("", right[j]))
    return pairs[::-1]
