"""Groups of labelled plates: by width, light, source and number of lines."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plate_models.training.evaluation.results import METRICS, PlateResult
from plate_models.training.figures import Count, edit_distance, proportion, ratio

# A property with more values than this tells photos apart, not groups.
_MOST_GROUPS = 8


@dataclass(frozen=True)
class Group:
    """Some of the plates: by what they are grouped, what they have in common, and they."""

    by: str
    name: str
    plates: tuple[PlateResult, ...]


def count_plates(plates: Sequence[PlateResult]) -> list[Count]:
    """The scoreboard's rows about labelled plates: the metrics and the character errors."""
    rows = [
        proportion(metric.name, [metric.right(plate) for plate in plates if metric.counts(plate)])
        for metric in METRICS
    ]
    legible = [plate for plate in plates if plate.legible]
    errors = ratio(
        "character error rate, labelled box",
        [edit_distance(plate.read_in_label, plate.text) for plate in legible],
        [len(plate.text) for plate in legible],
    )
    return [*rows, errors]


def width_bounds(widths: Sequence[float]) -> tuple[float, float]:
    """Bounds between the narrow, the middle and the wide third, in the widths' unit."""
    narrow, wide = np.quantile(widths, (1 / 3, 2 / 3))
    return float(narrow), float(wide)


def group(plates: Sequence[PlateResult]) -> list[Group]:
    """Group plates in every way that tells some of them apart.

    Returns:
        First the terciles of the label's width, with their bounds in the name; then by
        light, by source (the file name up to its first "_") and by lines. A way with one
        group only is left out: it would say the same as the whole.
    """
    if not plates:
        return []
    narrow, wide = width_bounds([plate.width for plate in plates])

    def tercile(plate: PlateResult) -> str:
        names = (f"under {narrow:.0f} px", f"{narrow:.0f} to {wide:.0f} px", f"over {wide:.0f} px")
        return names[int(plate.width >= narrow) + int(plate.width > wide)]

    in_order = sorted(plates, key=lambda plate: plate.width)
    groups = _split("width", in_order, [tercile(plate) for plate in in_order])
    groups += _split("light", plates, [plate.light or "not labelled" for plate in plates])
    groups += _split("source", plates, [plate.source or "other" for plate in plates])
    return groups + _split("lines", plates, [f"{plate.lines} in a plate" for plate in plates])


def _split(by: str, plates: Sequence[PlateResult], names: Sequence[str]) -> list[Group]:
    members: dict[str, list[PlateResult]] = defaultdict(list)
    for plate, name in zip(plates, names, strict=True):
        members[name].append(plate)
    if not 1 < len(members) <= _MOST_GROUPS:
        return []
    # The terciles come in their order, everything else by name.
    ordered = members if by == "width" else sorted(members)
    return [Group(by, name, tuple(members[name])) for name in ordered]
