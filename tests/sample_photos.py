"""The rendered sample scenes: which photos there are, and what stands where in them."""

import csv
from dataclasses import dataclass
from pathlib import Path

SAMPLES = Path(__file__).parent / "samples"


@dataclass(frozen=True)
class SamplePlate:
    """A plate's text and its box x0, y0, x1, y1 in pixels."""

    text: str
    box: tuple[float, float, float, float]


def read_samples() -> dict[str, list[SamplePlate]]:
    """Read photo names and their plates, in the table's order."""
    samples: dict[str, list[SamplePlate]] = {}
    with (SAMPLES / "plates.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            x0, y0, x1, y1 = (float(row[side]) for side in ("x0", "y0", "x1", "y1"))
            plate = SamplePlate(row["text"], (x0, y0, x1, y1))
            samples.setdefault(row["photo"], []).append(plate)
    return samples
