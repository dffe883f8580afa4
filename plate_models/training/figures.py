"""Counts and ratios with their 95 % intervals."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

_RESAMPLES = 2000

Interval = tuple[float, float]


@dataclass(frozen=True)
class Count:
    """So many hits out of a total."""

    name: str  # what was counted
    hits: int
    total: int
    interval_95: Interval | None = None  # bounds of the rate, where hits are independent

    @property
    def cell(self) -> str:
        """For a table: hits, total, and the interval in per cent."""
        bounds = "-".join(f"{bound:.1%}".rstrip("%") for bound in self.interval_95 or ())
        return f"{self.hits}/{self.total} {bounds}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """The fields and the rate, None if nothing was counted, as JSON-ready values."""
        return {**asdict(self), "rate": self.hits / self.total if self.total else None}


def proportion(name: str, hits: Sequence[bool]) -> Count:
    """Share of hits, with the score interval of Wilson 1927."""
    if not hits:
        return Count(name, 0, 0)
    found = binomtest(sum(hits), len(hits)).proportion_ci(method="wilson")
    return Count(name, sum(hits), len(hits), (float(found.low), float(found.high)))


def median_ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, Interval]:
    """Median of ``a`` over the median of ``b``, measured in pairs, and its 95 % interval.

    Pairs are resampled, because a photo that is slow for one is slow for both.
    """
    # The percentile bootstrap of Efron 1979.
    drawn = np.random.default_rng(0).integers(0, len(a), (_RESAMPLES, len(a)))
    ratios = np.median(np.array(a)[drawn], axis=1) / np.median(np.array(b)[drawn], axis=1)
    low, high = np.percentile(ratios, (2.5, 97.5)).tolist()
    return float(np.median(a) / np.median(b)), (low, high)
