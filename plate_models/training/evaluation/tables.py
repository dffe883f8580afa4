"""Counts as tables for a terminal."""

from collections.abc import Iterable, Sequence

from plate_models.training.evaluation.groups import Group, count_plates
from plate_models.training.figures import Count

# Column heads for the rows of `count_plates`, in their order.
_HEADS = ("IoU 0.5", "IoU 0.7", "labelled box", "end to end", "no wrong text", "characters")


def count_lines(counts: Iterable[Count]) -> list[str]:
    """A head and one line per count: its name, count, rate and 95 % interval."""
    lines = [f"{'':<44} {'count':>12} {'rate':>7}   95 % interval"]
    for count in counts:
        of = f"{count.hits} of {count.total}"
        if count.rate is None or count.interval_95 is None:
            lines.append(f"{count.name:<44} {of:>12}   nothing to count")
            continue
        low, high = count.interval_95
        lines.append(f"{count.name:<44} {of:>12} {count.rate:>7.1%}   {low:.1%} to {high:.1%}")
    return lines


def group_lines(groups: Sequence[Group]) -> list[str]:
    """One line per group with a column per count; empty without groups."""
    if not groups:
        return []
    lines = ["By group: count, and the 95 % interval of the rate in per cent"]
    by = ""
    for group in groups:
        if group.by != by:
            by = group.by
            lines += ["", f"{by:<16}" + "".join(f"{head:>17}" for head in _HEADS)]
        cells = (_cell(count) for count in count_plates(group.plates))
        lines.append(f"  {group.name:<14}" + "".join(f"{cell:>17}" for cell in cells))
    return lines


def _cell(count: Count) -> str:
    if count.interval_95 is None:
        return "nothing to count"
    low, high = (100 * bound for bound in count.interval_95)
    # Tenths matter for small rates only: the intervals of a group are wide.
    interval = "-".join(f"{bound:.0f}" if bound >= 10 else f"{bound:.1f}" for bound in (low, high))
    return f"{count.hits}/{count.total} {interval:>7}"
