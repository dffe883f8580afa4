"""Draws how honest the scores are: reliability diagram and risk-coverage curve."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from plate_models.calibrating.metrics import Bools, Floats, equal_mass_bins, risk_coverage
from plate_models.figures import proportion

# Shown in place of "none at all", which a logarithmic axis can't.
_LEAST = 1e-5

Curves = Mapping[str, tuple[Floats, Bools]]


def _figure(size: tuple[float, float]) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_reliability(curves: Curves, path: Path, bins: int = 15) -> None:
    """Draw what was claimed against what came true.

    Nearly all scores lie next to 1, so the second panel shows the other end: the claimed
    and the true share of wrong texts, both logarithmic, with 95 % intervals.

    Args:
        curves: By name, (N,) scores and (N,) whether each is right; N >= 1.
        path: Of the picture.
        bins: Of equal mass.
    """
    figure = _figure((11, 5))
    plain, wrong = figure.subplots(1, 2)
    for name, (scores, right) in curves.items():
        found = equal_mass_bins(scores, right, bins)
        plain.plot(found.claimed, found.right / found.count, "o-", label=name, ms=4, lw=1)
        misses = (found.count - found.right).tolist()
        counts = [
            proportion(name, [True] * miss + [False] * (count - miss))
            for miss, count in zip(misses, found.count.tolist(), strict=True)
        ]
        rates = np.array([count.rate or 0.0 for count in counts])
        ends = np.array([count.interval_95 or (0, 1) for count in counts]).T
        shown = np.clip(rates, _LEAST, 1)
        reach = np.abs(np.clip(ends, _LEAST, 1) - shown)
        claims = np.clip(1 - found.claimed, _LEAST, 1)
        wrong.errorbar(claims, shown, yerr=reach, fmt="o", label=name, ms=4, lw=1)
    for axes in (plain, wrong):
        axes.plot([_LEAST, 1], [_LEAST, 1], color="grey", lw=0.8, ls="--")
        axes.grid(alpha=0.3)
        axes.legend()
    plain.set(xlabel="score", ylabel="share of right texts", title="Reliability")
    wrong.set(xscale="log", yscale="log", xlabel="1 - score", ylabel="share of wrong texts")
    wrong.set(title=f"The same for wrong texts (below {_LEAST:g} drawn there)")
    figure.savefig(path, dpi=110)


def draw_risk_coverage(curves: Curves, path: Path, readable_from: float) -> None:
    """Draw what share is wrong if only the most confident texts are answered.

    Args:
        curves: By name, (N,) scores and (N,) whether each is right; N >= 1.
        path: Of the picture.
        readable_from: Threshold to mark on each curve.
    """
    figure = _figure((8, 5))
    axes = figure.subplots()
    for name, (scores, right) in curves.items():
        thresholds, coverage, risk = risk_coverage(scores, right)
        (line,) = axes.plot(coverage, np.maximum(risk, _LEAST), label=name, lw=1.2)
        reaching = np.flatnonzero(thresholds >= readable_from)
        if len(reaching):
            place = reaching[-1]
            at = [coverage[place]], [max(risk[place], _LEAST)]
            axes.plot(*at, "o", color=line.get_color())
    axes.plot([0.95], [0.005], "k+", ms=12, label="aim: 99.5 % right at 95 % coverage")
    axes.set(xlabel="coverage: share of plates answered", yscale="log")
    axes.set(ylabel="risk: share of wrong texts among them")
    axes.set(title=f"Risk and coverage; dots: score {readable_from:.3f}, where readable begins")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.savefig(path, dpi=110)
