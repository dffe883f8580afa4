"""Draws what was measured in this process."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from plates.benchmarks.report import figure

if TYPE_CHECKING:
    from plates.benchmarks.speed.arithmetic import NetFloor
    from plates.benchmarks.speed.published import SideBySide
    from plates.benchmarks.speed.scaling import Growth
    from plates.benchmarks.speed.stages import StageTimes


def draw_stages(found: "dict[str, StageTimes]", machine: str, path: Path) -> None:
    """Draw one stacked bar for each engine: the p50 of each stage."""
    drawn = figure(11, 1.6 + 0.8 * len(found))
    axes = drawn.subplots()
    names = list(found)
    starts = [0.0] * len(names)
    for index, stage in enumerate(next(iter(found.values())).stages):
        widths = [max(0.0, found[name].stages[stage].p50_ms) for name in names]
        colour = f"C{index}" if stage != "rest" else "lightgrey"
        axes.barh(names, widths, left=starts, label=stage, color=colour)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.invert_yaxis()
    axes.legend(ncols=5, fontsize=8)
    axes.set(xlabel="p50, ms per photo", title="Where a photo's time goes")
    _save(drawn, machine, path)


def draw_side_by_side(found: "dict[str, SideBySide]", machine: str, path: Path) -> None:
    """Draw the times of all, for each set of photos."""
    drawn = figure(5.5 * len(found) + 1, 4.2)
    for axes, (name, side) in zip(
        drawn.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
    ):
        names = list(side.times)
        axes.boxplot(
            [side.times[one].wall_ms for one in names], tick_labels=names, showfliers=False
        )
        axes.set(ylabel="ms per photo", title=name)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3, axis="y")
    _save(drawn, machine, path)


def draw_floors(floors: "list[NetFloor]", machine: str, path: Path) -> None:
    """Draw the measured time of each net beside its floors."""
    drawn = figure(8, 4.2)
    axes = drawn.subplots()
    places = range(len(floors))
    bars = {
        "measured": [one.times.p50_ms for one in floors],
        "floor in float32": [one.floor_ms("float32") for one in floors],
        "floor in its precision": [one.floor_ms(one.precision) for one in floors],
    }
    for index, (name, heights) in enumerate(bars.items()):
        axes.bar([place + 0.27 * (index - 1) for place in places], heights, 0.25, label=name)
    axes.set_xticks(list(places), [f"{one.net}, {one.precision}" for one in floors])
    axes.set(ylabel="ms", title="Nets against the arithmetic they need")
    axes.legend()
    _save(drawn, machine, path)


def draw_growths(growths: "list[Growth]", machine: str, path: Path) -> None:
    """Draw p50 and p95 with the straight line through the medians."""
    drawn = figure(6 * len(growths), 4.2)
    for axes, growth in zip(
        drawn.subplots(1, len(growths), squeeze=False)[0], growths, strict=True
    ):
        slope, start = growth.line()
        ends = (0.0, growth.amounts[-1])
        axes.plot(growth.amounts, growth.p50_ms, "o", label="p50")
        axes.plot(growth.amounts, [times.p95_ms for times in growth.times], "^", label="p95")
        axes.plot(
            ends, [start + slope * end for end in ends], lw=1, label=f"{slope:.2f} ms/{growth.unit}"
        )
        axes.set(xlabel=f"{growth.unit}s", ylabel="ms per photo")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
    _save(drawn, machine, path)


def _save(drawn: Any, machine: str, path: Path) -> None:
    drawn.suptitle(machine, fontsize=8)
    drawn.savefig(path, dpi=110)
