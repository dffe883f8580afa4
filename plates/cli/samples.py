"""Sample scenes, and the texts that must be read in them.

A folder of samples has a file plates.csv with the columns `photo` (file name) and `text`,
one row per plate.
"""

import csv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[2] / "tests" / "samples"


def expected_texts(photos: Iterable[Path]) -> dict[Path, list[str]]:
    """The texts of each photo that a plates.csv beside it names.

    Raises:
        ValueError: A plates.csv lacks a column.
    """
    expected: dict[Path, list[str]] = {}
    wanted = set(photos)
    for table in {photo.parent / "plates.csv" for photo in wanted}:
        for name, text in _rows(table) if table.is_file() else ():
            if (photo := table.with_name(name)) in wanted:
                expected.setdefault(photo, []).append(text)
    return expected


def _rows(table: Path) -> list[tuple[str, str]]:
    with table.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if not {"photo", "text"} <= set(reader.fieldnames or ()):
            raise ValueError(f"{table}: expected the columns photo and text")
        return [(row["photo"], row["text"]) for row in reader]


def missing_texts(expected: Iterable[str], found: Iterable[str]) -> list[str]:
    """The expected texts that were not found; two plates with one text must be read twice."""
    return list((Counter(expected) - Counter(found)).elements())
