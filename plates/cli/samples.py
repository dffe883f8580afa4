"""Sample scenes and the texts that must be read in them.

A folder of samples has a file plates.csv with the columns `photo` (file name) and `text`,
one row per plate.
"""

import csv
from collections.abc import Iterable
from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[2] / "tests" / "samples"
EXPECTATIONS = "plates.csv"


def expected_texts(photos: Iterable[Path]) -> dict[Path, list[str]]:
    """Look up what must be read in photos that are samples.

    Args:
        photos: Any photos.

    Returns:
        The texts of each photo that a plates.csv beside it names.

    Raises:
        ValueError: A plates.csv lacks a column.
    """
    by_folder: dict[Path, list[Path]] = {}
    for photo in photos:
        by_folder.setdefault(photo.parent, []).append(photo)
    expected: dict[Path, list[str]] = {}
    for folder, members in by_folder.items():
        table = folder / EXPECTATIONS
        if table.is_file():
            texts = _read_table(table)
            expected |= {photo: texts[photo.name] for photo in members if photo.name in texts}
    return expected


def _read_table(path: Path) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if not {"photo", "text"} <= set(reader.fieldnames or ()):
            raise ValueError(f"{path}: expected the columns photo and text")
        for row in reader:
            texts.setdefault(row["photo"], []).append(row["text"])
    return texts


def missing_texts(expected: Iterable[str], found: Iterable[str]) -> list[str]:
    """Compare as multisets: two plates with one text must be read twice.

    Args:
        expected: What must be read.
        found: What was read.

    Returns:
        The expected texts that were not.
    """
    left = list(found)
    missing = []
    for text in expected:
        if text in left:
            left.remove(text)
        else:
            missing.append(text)
    return missing
