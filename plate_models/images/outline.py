"""What a file says of its picture, and the part of the file that makes the picture.

Written for files whose headers lie. A container may hold a megabyte of text in a
kilobyte, the same kilobyte under five thousand names, or a second picture that is larger
than the first: libraries unpack all of it. Here the containers are walked by their
lengths, without decompressing anything, and decoders get only what the picture needs.
"""

from dataclasses import dataclass
from typing import Literal

# A 20 MB photo has a few hundred segments. Files with many more keep a parser busy.
MAX_SEGMENTS = 20_000
# A progressive JPEG has ten scans, one of four inks eighteen; each visits every pixel.
MAX_SCANS = 20
# Tiles are padded at the picture's edges. Those of a small picture may be larger than it.
LARGE_TILE = 1024


class Defect(ValueError):
    """The file is damaged; the message is the end of the sentence "The file …"."""


class NotRead(ValueError):
    """The file is of a kind that is not read; the message is a sentence."""


@dataclass(frozen=True)
class Outline:
    """A picture as its file describes it."""

    width: int  # as it is stored, in pixels
    height: int
    core: bytes  # the file without what its first picture doesn't need
    orientation: int = 1  # by EXIF, 1 to 8; anything else means upright, too. The core has none.
    ended: bool = True  # False for a JPEG without its end marker: its last scan may be cut off


class Reader:
    """A place in a part of some bytes. Reading beyond the part's end raises Defect."""

    def __init__(
        self, data: bytes, place: int = 0, order: Literal["big", "little"] = "big"
    ) -> None:
        self.data, self.place, self.end, self._order = data, place, len(data), order

    def skip(self, count: int) -> None:
        """Pass the next bytes."""
        self.place += count
        if self.place > self.end:
            raise Defect("ends too early, or says a wrong length")

    def take(self, count: int) -> bytes:
        """The next bytes."""
        self.skip(count)
        return self.data[self.place - count : self.place]

    def number(self, size: int) -> int:
        """The next unsigned number of so many bytes."""
        return int.from_bytes(self.take(size), self._order)

    def part(self, count: int) -> "Reader":
        """The next bytes as a reader of their own, at their first byte."""
        part = Reader(self.data, self.place, self._order)
        self.skip(count)
        part.end = self.place
        return part

    def rest(self) -> bytes:
        """What is left."""
        return self.take(self.end - self.place)
