"""Tables and picture of a read archive."""

from collections.abc import Sequence
from pathlib import Path

from plates.benchmarks.bulk_run import Memory, Watched
from plates.benchmarks.report import Verdict, figure, print_table

# Until then actors load, compile each shape that comes and fill what they keep.
WARM_UP = 0.25
# What it may grow in the time that is looked at, where it surely grows.
_MOST_GROWTH = 0.02


def _after_warm_up(memory: Sequence[Memory]) -> list[Memory]:
    """Without the beginning, and without the end, when processes stop."""
    if not memory:
        return []
    end = memory[-1].at_s
    return [m for m in memory if WARM_UP * end <= m.at_s <= 0.97 * end and m.actors > 0]


def memory_verdict(memory: Sequence[Memory]) -> Verdict | None:
    """Judge whether the memory of all processes stays as it is.

    Returns:
        None where the run was too short to tell.
    """
    import numpy as np

    from plates.benchmarks.trend import trend_of

    seen = _after_warm_up(memory)
    floor = f"no growth, or at most {_MOST_GROWTH:.0%} over the time"
    if len(seen) < 8:
        return None
    times, values = np.array([m.at_s for m in seen]), np.array([m.total for m in seen])
    trend, hours = trend_of(times, values), float(np.ptp(times)) / 3600
    grown = trend.slope * hours
    came = (
        f"{trend.level:.0f} MiB of PSS, {trend.slope:+.0f} MiB/h ({trend.low:+.0f} to "
        f"{trend.high:+.0f}), {grown:+.1f} MiB in {hours * 60:.1f} minutes"
    )
    holds = trend.low <= 0 or grown <= _MOST_GROWTH * trend.level
    return Verdict("flat memory", came, floor, holds)


def print_memory(memory: Sequence[Memory]) -> None:
    """Print what the run's processes held after the warm-up and at the end."""
    seen = _after_warm_up(memory)
    if not seen:
        print("too short for a judgement of its memory: give more --photos")
        return
    third = max(1, len(seen) // 3)
    rows = []
    for name in ("driver", "actors", "ray", "total"):
        early, late = (
            sorted(getattr(m, name) for m in part)[len(part) // 2]
            for part in (seen[:third], seen[-third:])
        )
        rows.append((name, f"{early:.0f}", f"{late:.0f}"))
    print_table(("PSS, MiB", "first third", "last third"), rows)


def draw_bulk(
    killed: Watched,
    resumed: Watched,
    paces: Sequence[tuple[float, float]],
    machine: str,
    path: Path,
) -> None:
    """Draw memory over time, and the paces beside each other.

    Args:
        killed: The run that was killed.
        resumed: The one that went on.
        paces: Pairs of `plates bulk` and plain processes, photos/s.
        machine: Where.
        path: Of the picture.
    """
    drawn = figure(13, 4.4)
    over_time, beside = drawn.subplots(1, 2, width_ratios=(3, 1))
    gap = killed.seconds
    for part, colour in (("driver", "C0"), ("actors", "C1"), ("ray", "C2"), ("total", "C3")):
        for run, offset in ((killed, 0.0), (resumed, gap)):
            times = [(m.at_s + offset) / 60 for m in run.memory]
            label = part if offset == 0 else None
            over_time.plot(times, [getattr(m, part) for m in run.memory], colour, label=label)
    over_time.axvline(gap / 60, color="black", ls="--", lw=1, label="kill -9 of the command")
    over_time.set(xlabel="minutes", ylabel="PSS, MiB", title="Memory of all processes")
    over_time.set_ylim(bottom=0)
    over_time.legend(fontsize=8)
    over_time.grid(alpha=0.3)
    turns = range(len(paces))
    for shift, index, label in ((-0.2, 0, "plates bulk"), (0.2, 1, "plain processes")):
        beside.bar([t + shift for t in turns], [pair[index] for pair in paces], 0.38, label=label)
    beside.set(xlabel="turn", ylabel="photos/s", title="Pace, in turns")
    beside.set_xticks(list(turns))
    beside.legend(fontsize=8, loc="lower center")
    drawn.suptitle(machine, fontsize=8)
    drawn.savefig(path, dpi=110)
