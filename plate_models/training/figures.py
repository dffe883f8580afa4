"""Counts and ratios with 95 % confidence intervals."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

_RESAMPLES = 2000

Interval = tuple[float, float]


@dataclass(frozen=True)
class Count:
    """A number of hits out of a total."""

    name: str
    hits: int
    total: int
    interval_95: Interval | None = None  # bounds of the rate, if hits are independent

    @property
    def cell(self) -> str:
        """Text for a table: hits, total, and the interval in per cent."""
        bounds = "-".join(f"{bound:.1%}".rstrip("%") for bound in self.interval_95 or ())
        return f"{self.hits}/{self.total} {bounds}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """The fields and the rate (None if the total is 0) as JSON-ready values."""
        return {**asdict(self), "rate": self.hits / self.total if self.total else None}


def proportion(name: str, hits: Sequence[bool]) -> Count:
    """Count the hits, with the score interval of Wilson 1927."""
    if not hits:
        return Count(name, 0, 0)
    found = binomtest(sum(hits), len(hits)).proportion_ci(method="wilson")
    return Count(name, sum(hits), len(hits), (float(found.low), float(found.high)))


def median_ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, Interval]:
    """Median of ``a`` over the median of ``b``, measured in pairs, and its 95 % interval.

    The percentile bootstrap (Efron 1979) resamples pairs: a photo slow for one is slow for both.
    """
    drawn = np.random.default_rng(0).integers(0, len(a), (_RESAMPLES, len(a)))
    ratios = np.median(np.array(a)[drawn], axis=1) / np.median(np.array(b)[drawn], axis=1)
    low, high = np.percentile(ratios, (2.5, 97.5)).tolist()
    return float(np.median(a) / np.median(b)), (low, high)
