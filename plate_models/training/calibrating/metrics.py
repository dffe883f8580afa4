"""How honest probabilities are: calibration error, Brier score, risk and coverage.

Throughout, ``scores`` are (N,) float claims in [0, 1] and ``right`` are (N,) bool: whether
each came true. Nothing claimed is nothing wrong: all errors of an empty set are 0.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Bins:
    """Claims and what came true, in bins.

    Attributes:
        count: (B,) int64 claims in each bin.
        claimed: (B,) mean score.
        right: (B,) int64 claims that came true.
    """

    count: NDArray[np.int64]
    claimed: Floats
    right: NDArray[np.int64]


def equal_mass_bins(scores: Floats, right: Bools, bins: int = 15) -> Bins:
    """Sort claims by score and cut them into bins of the same size, give or take one.

    Fewer claims than bins make one bin each.
    """
    order = np.argsort(scores, kind="stable")
    return _bins(scores, right, np.array_split(order, bins))


def equal_width_bins(scores: Floats, right: Bools, bins: int = 10) -> Bins:
    """Cut [0, 1] into so many bins; those without a claim are left out."""
    places = np.minimum((scores * bins).astype(np.int64), bins - 1)
    return _bins(scores, right, [np.flatnonzero(places == place) for place in range(bins)])


def _bins(scores: Floats, right: Bools, parts: Iterable[NDArray[np.intp]]) -> Bins:
    filled = [part for part in parts if len(part)]
    return Bins(
        np.array([len(part) for part in filled], np.int64),
        np.array([scores[part].mean() for part in filled], np.float64),
        np.array([right[part].sum() for part in filled], np.int64),
    )


def ece_equal_mass(scores: Floats, right: Bools, bins: int = 15) -> float:
    """Expected calibration error: how far claims lie from the truth, averaged over bins.

    Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", with
    bins of equal mass, because nearly all scores of a good recognizer lie next to 1.
    """
    if not len(scores):
        return 0.0
    found = equal_mass_bins(scores, right, bins)
    gaps = np.abs(found.claimed * found.count - found.right)
    return float(gaps.sum() / len(scores))


def brier(scores: Floats, right: Bools) -> float:
    """Mean squared error of the claims (Brier 1950)."""
    return float(np.mean((scores - right) ** 2)) if len(scores) else 0.0


def brier_of_constant(right: Bools) -> float:
    """Brier score of who always claims the base rate: p (1 - p)."""
    rate = float(right.mean()) if len(right) else 0.0
    return rate * (1 - rate)


def log_loss(scores: Floats, right: Bools) -> float:
    """Mean negative log-likelihood in nats; a claim of exactly 0 or 1 counts as 1e-12 off."""
    if not len(scores):
        return 0.0
    claimed = np.clip(np.where(right, scores, 1 - scores), 1e-12, 1)
    return float(-np.log(claimed).mean())


def risk_coverage(scores: Floats, right: Bools) -> tuple[Floats, Floats, Floats]:
    """What share is wrong if only what scores enough is answered.

    El-Yaniv and Wiener 2010, "On the Foundations of Noise-free Selective Classification".

    Returns:
        For each different score from the highest down, (S,) each: the score as threshold,
        the share of claims that reach it, and the share of wrong ones among these. Equal
        scores can't be told apart, so they come together.
    """
    order = np.argsort(-scores, kind="stable")
    sorted_scores, wrong = scores[order], np.cumsum(~right[order])
    last = np.flatnonzero(np.diff(sorted_scores, append=-np.inf))
    answered = last + 1.0
    return sorted_scores[last], answered / max(len(scores), 1), wrong[last] / answered


def right_at_coverage(scores: Floats, right: Bools, coverage: float = 0.95) -> float:
    """Share of right ones among the most confident; of the least set that covers so many."""
    if not len(scores):
        return 1.0
    _, covered, risk = risk_coverage(scores, right)
    return float(1 - risk[np.searchsorted(covered, coverage - 1e-12)])


def pava(values: Floats, weights: Floats) -> list[tuple[int, int, float]]:
    """Pool adjacent violators: the non-decreasing sequence next to the values.

    Ayer et al. 1955, "An Empirical Distribution Function for Sampling with Incomplete
    Information"; least squares, in linear time.

    Args:
        values: (N,) float.
        weights: (N,) float, above 0.

    Returns:
        Blocks (first index, index after the last, mean), from left to right, means rising.
    """
    blocks: list[list[Any]] = []
    for index, (value, weight) in enumerate(zip(values.tolist(), weights.tolist(), strict=True)):
        blocks.append([index, index + 1, value, weight])
        while len(blocks) > 1 and blocks[-2][2] >= blocks[-1][2]:
            _, end, mean, mass = blocks.pop()
            before = blocks[-1]
            before[2] = (before[2] * before[3] + mean * mass) / (before[3] + mass)
            before[1], before[3] = end, before[3] + mass
    return [(first, end, mean) for first, end, mean, _ in blocks]
