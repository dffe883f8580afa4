"""Fits calibrations, chooses between them, and sets the threshold of what is readable."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from plate_models.recognition.calibration import LOGIT_LIMIT, Calibration, logit
from plate_models.training.calibrating.metrics import (
    Bools,
    Floats,
    brier,
    brier_of_constant,
    ece_equal_mass,
    log_loss,
    pava,
    right_at_coverage,
    risk_coverage,
)

Fit = Callable[[Floats, Bools], Calibration]
FOLDS = 5


@dataclass(frozen=True)
class Quality:
    """How good scores are as probabilities.

    Attributes:
        crops: Number of readings.
        right: Share of right ones: the base rate.
        claimed: Mean score.
        ece: Expected calibration error, 15 bins of equal mass.
        ece_doubtful: The same for the least confident tenth alone: among all, those who are
            sure and right hide what the doubtful claim.
        brier, brier_constant: Brier score, and that of the base rate as every score.
        log_loss: In nats.
        right_at_95: Share of right ones among the most confident 95 %.
    """

    crops: int
    right: float
    claimed: float
    ece: float
    ece_doubtful: float
    brier: float
    brier_constant: float
    log_loss: float
    right_at_95: float

    def to_dict(self) -> dict[str, float]:
        """JSON-ready, rounded to what the sample sizes bear."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


def quality_of(scores: Floats, right: Bools) -> Quality:
    """Measure scores against what came true."""
    doubtful = np.argsort(scores, kind="stable")[: math.ceil(len(scores) / 10)]
    return Quality(
        crops=len(scores),
        right=float(right.mean()) if len(right) else 0.0,
        claimed=float(scores.mean()) if len(scores) else 0.0,
        ece=ece_equal_mass(scores, right),
        ece_doubtful=ece_equal_mass(scores[doubtful], right[doubtful]),
        brier=brier(scores, right),
        brier_constant=brier_of_constant(right),
        log_loss=log_loss(scores, right),
        right_at_95=right_at_coverage(scores, right),
    )


def apply_all(calibration: Calibration, raw: Floats) -> Floats:
    """Calibrate (N,) raw scores."""
    return np.array([calibration.apply(score) for score in raw.tolist()], np.float64)


def identity(raw: Floats, right: Bools) -> Calibration:  # noqa: ARG001  one signature for all
    """Leave scores as they are: what the others are compared with."""
    return Calibration()


def temperature(raw: Floats, right: Bools) -> Calibration:
    """Divide logits by the temperature that makes what came true likeliest.

    Guo et al. 2017, "On Calibration of Modern Neural Networks".

    Args:
        raw: (N,) raw scores in [0, 1].
        right: (N,) whether each reading is right.
    """
    if not len(raw):
        return Calibration()
    logits = np.array([logit(score) for score in raw.tolist()])
    signed = np.where(right, logits, -logits)

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0, -signed * np.exp(-log_temperature)).mean())

    divisor = float(np.exp(_minimum(loss, np.log(0.05), np.log(50.0))))
    reach = LOGIT_LIMIT * min(1.0, divisor)
    highest = _limited(reach / divisor)
    return Calibration(((-reach, -highest), (reach, highest)))


def _limited(log_odds: float) -> float:
    """Undo what rounding adds to a logit that lies at a limit."""
    return min(max(log_odds, -LOGIT_LIMIT), LOGIT_LIMIT)


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Golden-section search (Kiefer 1953) for the minimum of a unimodal function."""
    share = (5**0.5 - 1) / 2
    for _ in range(60):
        left, right = high - share * (high - low), low + share * (high - low)
        if function(left) < function(right):
            high = right
        else:
            low = left
    return (low + high) / 2


def isotonic(raw: Floats, right: Bools) -> Calibration:
    """Find the monotone map next to what came true, with straight lines for its steps.

    Zadrozny and Elkan 2002, "Transforming Classifier Scores into Accurate Multiclass
    Probability Estimates". A step holds for all of its readings, so its knot stands at their
    mean logit; between knots the map rises, because a higher score should stay a higher
    score. A step of k right out of n counts as (k + 1/2) / (n + 1): even where all are right,
    the next one may be wrong.

    Args:
        raw: (N,) raw scores in [0, 1].
        right: (N,) whether each reading is right.
    """
    logits = np.array([logit(score) for score in raw.tolist()])
    places, group = np.unique(logits, return_inverse=True)
    if len(places) < 2:
        return Calibration()
    mass = np.bincount(group).astype(np.float64)
    hits = np.bincount(group, weights=right.astype(np.float64))
    knots = []
    highest = -LOGIT_LIMIT
    for first, end, _ in pava(hits / mass, mass):
        count, true = mass[first:end].sum(), hits[first:end].sum()
        place = _limited(float(np.average(places[first:end], weights=mass[first:end])))
        # Counting a half more moves small steps more than large ones: keep them in order.
        highest = max(highest, logit(float((true + 0.5) / (count + 1))))
        knots.append((place, highest))
    if len(knots) == 1:
        # All alike: right or wrong does not depend on the score.
        knots = [(float(places[0]), highest), (float(places[-1]), highest)]
    return Calibration(tuple(knots))


METHODS: Mapping[str, Fit] = {
    "identity": identity,
    "temperature": temperature,
    "isotonic": isotonic,
}


def cross_validate(
    raw: Floats, right: Bools, rng: np.random.Generator, folds: int = FOLDS
) -> dict[str, Quality]:
    """Measure every method on readings that it was not fitted to.

    Args:
        raw: (N,) raw scores.
        right: (N,) whether each reading is right.
        rng: Deals the readings to the folds.
        folds: Parts; each is measured once, with a map fitted to the others.
    """
    fold = rng.permutation(len(raw)) % folds
    found = {}
    for name, fit in METHODS.items():
        scores = np.zeros(len(raw))
        for index in range(folds):
            held_out = fold == index
            scores[held_out] = apply_all(fit(raw[~held_out], right[~held_out]), raw[held_out])
        found[name] = quality_of(scores, right)
    return found


def choose(found: Mapping[str, Quality]) -> str:
    """Name the method with the least log loss: it punishes false certainty the most."""
    return min(found, key=lambda name: found[name].log_loss)


def threshold_of(scores: Floats, right: Bools, most_wrong: float, least: float = 0.5) -> float:
    """Find from which score on so few are wrong.

    Args:
        scores: (N,) calibrated scores of the readings that may count as readable.
        right: (N,) whether each is right.
        most_wrong: Share of wrong ones that is accepted among those that are readable.
        least: No reading that scores less is readable, however few were wrong: what is
            no plate at all is not among these readings, and it scores low.

    Returns:
        The lowest such score that is at least ``least``; 1 if there is none.
    """
    thresholds, _, risk = risk_coverage(scores, right)
    accepted = thresholds[(risk <= most_wrong) & (thresholds >= least)]
    if not len(accepted):
        return 1.0
    return float(accepted.min())
