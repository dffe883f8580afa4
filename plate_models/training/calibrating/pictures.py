"""Draws how honest the scores are: reliability diagram and risk-coverage curve."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from plate_models.training.calibrating.metrics import (
    Bins,
    Bools,
    Floats,
    equal_mass_bins,
    equal_width_bins,
    risk_coverage,
)
from plate_models.training.figures import proportion

# Shown in place of "none at all", which a logarithmic axis can't.
_LEAST = 1e-5

Curves = Mapping[str, tuple[Floats, Bools]]


def _figure(size: tuple[float, float]) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_reliability(curves: Curves, path: Path) -> None:
    """Draw what was claimed against what came true, with 95 % intervals.

    Nearly all scores lie next to 1. So the left panel has ten bins of equal width, in which
    the doubtful can be seen, and the right one fifteen of equal mass, and the other end: the
    claimed and the true share of wrong texts, both logarithmic.

    Args:
        curves: By name, (N,) scores and (N,) whether each is right; N >= 1.
        path: Of the picture.
    """
    figure = _figure((11, 5))
    plain, wrong = figure.subplots(1, 2)
    for name, (scores, right) in curves.items():
        _draw_bins(plain, equal_width_bins(scores, right), name, of_wrong=False)
        _draw_bins(wrong, equal_mass_bins(scores, right), name, of_wrong=True)
    for axes in (plain, wrong):
        axes.plot([_LEAST, 1], [_LEAST, 1], color="grey", lw=0.8, ls="--")
        axes.grid(alpha=0.3)
        axes.legend()
    plain.set(xlabel="score", ylabel="share of right texts", title="Ten bins of equal width")
    wrong.set(xscale="log", yscale="log", xlabel="1 - score", ylabel="share of wrong texts")
    wrong.set(title="Fifteen bins of equal mass (triangle: none is wrong)")
    figure.savefig(path, dpi=110)


def _draw_bins(axes: Any, bins: Bins, name: str, of_wrong: bool) -> None:
    claims = np.clip(1 - bins.claimed if of_wrong else bins.claimed, _LEAST, 1)
    hits = bins.count - bins.right if of_wrong else bins.right
    pairs = list(zip(hits.tolist(), bins.count.tolist(), strict=True))
    counts = [proportion(name, [True] * n + [False] * (of - n)) for n, of in pairs]
    ends = np.array([count.interval_95 for count in counts])
    some = (hits > 0) | (not of_wrong)
    rates = (hits / bins.count)[some]
    reach = np.abs(ends[some] - rates[:, None]).T
    dots = axes.errorbar(claims[some], rates, yerr=reach, fmt="o", label=name, ms=4, lw=1)
    colour = dots.lines[0].get_color()
    axes.plot(claims[~some], ends[~some, 1], "v", color=colour, ms=5, mfc="none")


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
    axes.set(xlabel="coverage: share of plates answered", yscale="log", xlim=(0.5, 1.01))
    axes.set(ylabel="risk: share of wrong texts among them")
    axes.set(title=f"Risk and coverage; dots: score {readable_from:.3f}, where readable begins")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.savefig(path, dpi=110)
