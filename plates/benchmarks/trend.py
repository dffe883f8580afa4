"""Does a series grow? A robust slope, with an interval that knows that neighbours are alike.

Theil-Sen: the median of the slopes between all pairs of points (Sen 1968), which a few
outliers don't move. Its 95 % interval: the spread of the slopes of resampled residuals,
widened by sqrt((1 + r) / (1 - r)), where r is the residuals' correlation from one point to
the next (Bartlett 1946; r corrected for its bias in short series, Kendall 1954). Memory
moves in steps that last: an interval that took the points for independent would call every
third flat series a leak. (A moving-block bootstrap was tried: one in ten.)
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SECONDS_PER_HOUR = 3600.0
_RESAMPLES = 300
# More points don't make the slope surer, and all pairs of them are compared.
_MOST_POINTS = 120
_FEWEST_POINTS = 8
_MOST_CORRELATED = 0.98


@dataclass(frozen=True)
class Trend:
    """How a series moves, in its unit per hour.

    Attributes:
        slope: The median one.
        low, high: Ends of the 95 % interval of the slope.
        level: The series' median.
    """

    slope: float
    low: float
    high: float
    level: float

    def within_noise(self, tolerance: float) -> bool:
        """Whether it does not grow: the interval reaches down to zero, or to next to nothing.

        Args:
            tolerance: What it may grow in an hour, at most, where it surely grows.
        """
        return self.low <= 0 or self.high <= tolerance


def trend_of(times_s: Floats, values: Floats, seed: int = 0) -> Trend:
    """Find how a series moves.

    Args:
        times_s: (N,) float64, seconds, rising; N >= 8.
        values: (N,) float64.
        seed: Of the resampling.

    Raises:
        ValueError: There are fewer points, or the two differ in number.
    """
    if times_s.shape != values.shape or len(times_s) < _FEWEST_POINTS:
        raise ValueError(
            f"a trend needs {_FEWEST_POINTS} points or more with one value each, got "
            f"{times_s.shape} and {values.shape}: measure longer or more often"
        )
    hours, thinned = _thin(times_s / SECONDS_PER_HOUR, values)
    slope = _median_slope(hours, thinned)
    reach = 1.96 * _standard_error(hours, thinned - slope * hours, seed)
    return Trend(slope, slope - reach, slope + reach, float(np.median(values)))


def _standard_error(hours: Floats, residuals: Floats, seed: int) -> float:
    """How far slopes of such residuals lie from zero, one standard deviation."""
    if not np.ptp(residuals):
        return 0.0
    dice = np.random.default_rng(seed)
    count = len(residuals)
    slopes = [_median_slope(hours, dice.choice(residuals, count)) for _ in range(_RESAMPLES)]
    centred = residuals - residuals.mean()
    found = float(centred[:-1] @ centred[1:] / (centred @ centred))
    correlation = min(max(found + (1 + 4 * found) / count, 0.0), _MOST_CORRELATED)
    return float(np.std(slopes) * np.sqrt((1 + correlation) / (1 - correlation)))


def _thin(hours: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Take medians of neighbours where there are more points than are needed."""
    groups = min(len(hours), _MOST_POINTS)
    return (
        np.array([np.mean(part) for part in np.array_split(hours, groups)]),
        np.array([np.median(part) for part in np.array_split(values, groups)]),
    )


def _median_slope(hours: Floats, values: Floats) -> float:
    first, second = np.triu_indices(len(hours), 1)
    return float(np.median((values[second] - values[first]) / (hours[second] - hours[first])))
