"""Sample scenes and a clip, and the texts that must be read in them.

A folder of samples has a file plates.csv with the columns `photo` (file name) and `text`,
one row per plate.
"""

import csv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from plates.cli import CommandError, printable

SAMPLES = Path(__file__).resolve().parents[2] / "tests" / "samples"
# One car crosses a street that is empty before and after.
CLIP = SAMPLES.parent / "clips" / "crossing.mp4"


def expected_texts(photos: Iterable[Path]) -> dict[Path, list[str]]:
    """The texts of photos that a plates.csv beside them lists; CommandError for a bad table."""
    wanted, expected = set(photos), dict[Path, list[str]]()
    for table in filter(Path.is_file, {photo.parent / "plates.csv" for photo in wanted}):
        with table.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            rows = csv.DictReader(file, restval="")
            if not {"photo", "text"} <= set(rows.fieldnames or ()):
                raise CommandError(f"{printable(table)}: expected the columns photo and text")
            for row in rows:
                if (photo := table.parent / row["photo"]) in wanted:
                    expected.setdefault(photo, []).append(row["text"])
    return expected


def missing_texts(expected: Iterable[str], found: Iterable[str]) -> list[str]:
    """The expected texts that were not found; two plates with the same text must be found twice."""
    return list((Counter(expected) - Counter(found)).elements())
