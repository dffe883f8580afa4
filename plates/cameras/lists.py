"""Lists of known plates, such as residents.csv."""

import csv
import logging
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

log = logging.getLogger("plates.cameras")

# Letters of Cyrillic and German plates, and the Latin letters that the recognizer reads for them.
_TO_LATIN = str.maketrans("АВЕІКМНОРСТУХÄÖÜ", "ABEIKMHOPCTYXAOU", " \u00a0-.·")
_CHECK_EVERY_S = 5.0  # whether the file has changed


def latin(text: str) -> str:
    """Normalize a text to the form in passes: Latin capitals, without spaces and hyphens."""
    return text.upper().translate(_TO_LATIN)


class PlateList:
    """Known plates from a CSV file: its column "plate", or the first if there is no header.

    Spaces, hyphens, case and Cyrillic look-alikes don't matter. Lines without a plate are ignored
    and logged. Changes take effect some seconds later. While the file can't be read, the list stays
    as it was: at first empty.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name, self._path, self._times = name, path, (-1, -1)
        self._by_part: dict[str, tuple[str, ...]] = {}
        self._check()

    def near(self, texts: Iterable[str]) -> set[str]:
        """The listed texts that equal one of these texts or differ from it by one character."""
        if time.monotonic() - self._checked >= _CHECK_EVERY_S:
            self._check()
        parts = {part for text in texts for part in _parts(text)}
        return set[str]().union(*(self._by_part.get(part, ()) for part in parts))

    def _check(self) -> None:
        self._checked = time.monotonic()
        try:
            status = self._path.stat()  # A copy may keep the time of its content's change.
            if (times := (status.st_mtime_ns, status.st_ctime_ns)) == self._times:
                return
            texts = set(_read(self._path))
        except OSError as error:
            log.warning("list %s can't be read, and stays as it was: %s", self.name, error)
            return
        by_part: dict[str, tuple[str, ...]] = {}
        for text in texts:
            for part in _parts(text):
                by_part[part] = (*by_part.get(part, ()), text)
        self._by_part, self._times = by_part, times


def _read(path: Path) -> Iterator[str]:
    content = path.read_bytes()
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:  # Excel's CSV on a Russian Windows
        lines = content.decode("cp1251", "replace").splitlines()
    # Spreadsheets write semicolons where commas are decimal points. Excel may add a line `sep=;`.
    first = 2 if lines and lines[0].lower().startswith("sep=") else 1
    delimiter = max(",;\t", key="\n".join(lines[:1]).count)
    column = 0
    for number, line in enumerate(lines[first - 1 :], first):
        # Parse each line by itself: a quote that isn't closed would swallow all lines after it.
        row = [cell.strip() for cell in next(csv.reader([line[:1000]], delimiter=delimiter), [])]
        header = [cell.lower() for cell in row] if number == first else []
        if "plate" in header:
            column = header.index("plate")
        elif any(row):
            text = latin(row[column] if column < len(row) else "")
            if 2 < len(text) <= 12 and text.isascii() and text.isalnum():
                yield text
            else:
                log.warning("%s, line %d holds no plate", path, number)


def _parts(text: str) -> list[str]:
    """The text, and the text without each one of its characters."""
    return [text, *(text[:at] + text[at + 1 :] for at in range(len(text)))]
