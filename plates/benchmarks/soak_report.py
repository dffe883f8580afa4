"""Tables and picture of a soak."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plates.benchmarks.report import figure, print_table
from plates.benchmarks.soaking import Sample, Soak


def print_answers(found: Soak) -> None:
    """Print how many requests of each kind got which answers."""
    rows = [
        (kind, str(sum(found.answers[kind].values())), _counts(found, kind))
        for kind in sorted(found.answers)
    ]
    print_table(("kind", "sent", "answers"), rows)
    print()


def print_memory(found: Soak) -> None:
    """Print what each process held after the warm-up and at the end."""
    warm = [sample for sample in found.samples if sample.at_s >= found.warm_up_s]
    if not warm:
        return
    first, last = warm[0], warm[-1]
    rows = [(part, *map(_mib, (first.rss.get(part), last.rss.get(part)))) for part in last.rss]
    rows += [(name, _mib(before), _mib(after)) for name, before, after in _totals(first, last)]
    print_table(("MiB", "after warm-up", "at the end"), rows)


def _totals(first: Sample, last: Sample) -> Iterator[tuple[str, float, float]]:
    yield "all, RSS", first.total_rss, last.total_rss
    yield "all, PSS", first.pss, last.pss
    yield "shared memory", first.shared, last.shared


def _counts(found: Soak, kind: str) -> str:
    return ", ".join(f"{status}: {n}" for status, n in sorted(found.answers[kind].items()))


def _mib(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def draw_soak(found: Soak, path: Path) -> None:
    """Draw the memory of each process, of all together, and /dev/shm over time.

    Args:
        found: What was measured.
        path: Of the picture.
    """
    drawn = figure(15, 4.6)
    each, total, shared = drawn.subplots(1, 3)
    minutes = [sample.at_s / 60 for sample in found.samples]
    for part in found.samples[-1].rss:
        # A process that began later has no memory before.
        values = [sample.rss.get(part, float("nan")) for sample in found.samples]
        each.plot(minutes, values, lw=1, label=part)
    each.set(title="Resident memory of each process", ylabel="MiB")
    total.plot(minutes, [sample.total_rss for sample in found.samples], label="sum of RSS")
    total.plot(minutes, [sample.pss for sample in found.samples], label="sum of PSS")
    _draw_trend(total, found)
    total.set(title="All processes", ylabel="MiB")
    shared.plot(minutes, [sample.shared for sample in found.samples], label="shared memory, MiB")
    shared.plot(minutes, [sample.files for sample in found.samples], label="open files")
    shared.set(title="Shared memory and open files")
    for axes in (each, total, shared):
        axes.axvspan(0, found.warm_up_s / 60, color="grey", alpha=0.15, label="warm-up")
        axes.set(xlabel="minutes")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    drawn.savefig(path, dpi=110)


def _draw_trend(axes: Any, found: Soak) -> None:
    trend = found.trends()["resident memory, MiB"]
    middle = (found.warm_up_s + found.seconds) / 2
    ends = (found.warm_up_s, found.seconds)
    line = [trend.level + trend.slope * (end - middle) / 3600 for end in ends]
    label = f"{trend.slope:+.1f} MiB/h ({trend.low:+.1f} to {trend.high:+.1f})"
    axes.plot([end / 60 for end in ends], line, "--", color="black", lw=1, label=label)
