"""Draws what an overload did to a service, and how it came back."""

from pathlib import Path
from typing import Any

from plates.benchmarks.report import figure
from plates.benchmarks.sweep import Overload, Phase


def draw_overload(found: Overload, path: Path) -> None:
    """Draw goodput and refusals, latencies, and the way back.

    Args:
        found: What was measured.
        path: Of the picture.
    """
    drawn = figure(15, 4.6)
    rates, times, back = drawn.subplots(1, 3)
    _draw_rates(rates, found)
    _draw_times(times, found)
    _draw_recovery(back, found)
    for axes in (rates, times, back):
        axes.grid(alpha=0.3)
        axes.set_ylim(bottom=0)
        axes.legend()
    drawn.suptitle(found.machine, fontsize=9)
    drawn.savefig(path, dpi=110)


def _offered(phases: list[Phase]) -> list[float]:
    return [phase.summary.offered_rate for phase in phases]


def _draw_rates(axes: Any, found: Overload) -> None:
    offered = _offered(found.phases)
    refused = [
        phase.summary.refused / phase.summary.requests * phase.summary.offered_rate
        for phase in found.phases
    ]
    axes.plot(offered, [phase.summary.goodput for phase in found.phases], "o-", label="goodput")
    axes.plot(offered, refused, "s--", label="refused (429)")
    axes.axvline(found.capacity, color="grey", lw=0.8, ls=":", label="capacity")
    axes.set(xlabel="offered, photos/s", ylabel="photos/s", title="Goodput and refusals")


def _draw_times(axes: Any, found: Overload) -> None:
    offered = _offered(found.phases)
    for name, marker in (("p50_s", "o-"), ("p99_s", "^-")):
        seconds = [getattr(phase.summary, name) for phase in found.phases]
        known = [(rate, value) for rate, value in zip(offered, seconds, strict=True) if value]
        if known:
            axes.plot(*zip(*known, strict=True), marker, label=name.removesuffix("_s"))
    axes.axhline(found.deadline_s, color="tab:red", lw=1, label="deadline")
    axes.set(xlabel="offered, photos/s", ylabel="s", title="Latency of accepted photos")


def _draw_recovery(axes: Any, found: Overload) -> None:
    back = found.recovery
    if back.windows:
        axes.plot(*zip(*back.windows, strict=True), "o-", ms=3, label="p95 of 2 s from here")
    axes.axhline(back.normal_p95_s, color="tab:green", lw=1, label="normal")
    if back.refused_at:
        axes.plot(
            back.refused_at, [0.0] * len(back.refused_at), "x", color="tab:red", label="refused"
        )
    if back.seconds is not None:
        axes.axvline(back.seconds, color="grey", ls=":", label=f"normal after {back.seconds:.1f} s")
    axes.set(xlabel="s after the overload", ylabel="s", title="The way back")
