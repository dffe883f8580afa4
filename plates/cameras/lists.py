"""Lists of known plates, such as residents.csv."""

import csv
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger("plates.cameras")

_COLUMNS = ("plate", "text", "number", "licence", "license")
# Cyrillic letters that Russian plates have, and the Latin ones by which they are read.
_LATIN = str.maketrans("АВЕКМНОРСТУХ", "ABEKMHOPCTYX", " -.·")


@dataclass(frozen=True)
class PlateList:
    """Known plates by a name."""

    name: str
    texts: frozenset[str]
    _by_part: dict[str, set[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_part: dict[str, set[str]] = {}
        for text in self.texts:
            for part in _parts(text):
                by_part.setdefault(part, set()).add(text)
        object.__setattr__(self, "_by_part", by_part)

    def near(self, texts: Iterable[str]) -> set[str]:
        """The listed texts that differ from one of these by a character, or by none."""
        parts = {part for text in texts for part in _parts(text)}
        return set[str]().union(*(self._by_part.get(part, ()) for part in parts))


def load_list(name: str, path: Path) -> PlateList:
    """Read a CSV file: its column "plate", or the first one where there is no header.

    Spaces, hyphens, case and Cyrillic look-alikes don't matter. Lines that hold no plate are named
    in the log and passed over. A file that can't be read is an OSError.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return PlateList(name, frozenset(_read(csv.reader(file), path)))


def _read(rows: Iterable[list[str]], path: Path) -> Iterator[str]:
    column = 0
    for number, row in enumerate(rows, 1):
        if number == 1 and (named := [i for i, c in enumerate(row) if c.lower() in _COLUMNS]):
            column = named[0]
        elif any(row):
            cell = row[column] if column < len(row) else ""
            text = cell.upper().translate(_LATIN)
            if 2 < len(text) <= 12 and text.isascii() and text.isalnum():
                yield text
            else:
                log.warning("%s, line %d holds no plate: %.40r", path, number, ",".join(row))


def _parts(text: str) -> list[str]:
    """The text, and what is left of it without one of its characters."""
    return [text, *(text[:at] + text[at + 1 :] for at in range(len(text)))]
