"""A file's description of its picture, and the part of the file that makes the picture.

This protects libraries from hostile files. A container may have a megabyte of text in a
kilobyte, the same kilobyte under five thousand names, or a second picture that is larger
than the first: libraries unpack everything. Here containers are walked by their lengths,
without decompressing anything, and decoders get only the data that the picture needs.
"""

from dataclasses import dataclass
from typing import Literal

# A 20 MB photo has a few hundred segments. Files with many more keep a parser busy.
MAX_SEGMENTS = 20_000
# A progressive JPEG has ten scans, one in CMYK eighteen; each scan visits every pixel.
MAX_SCANS = 20
# Tiles are padded at the picture's edges, so that a small picture's may be larger than it.
LARGE_TILE = 1024
SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap width and height


class Defect(ValueError):
    """The file is damaged; the message completes the sentence "The file …"."""


class NotRead(ValueError):
    """Files of this kind are not read; the message is a sentence."""


@dataclass(frozen=True)
class Outline:
    """A picture as its file describes it."""

    width: int  # in pixels, before the picture is turned
    height: int
    core: bytes  # the file, with only the data that its first picture needs, without EXIF
    orientation: int = 1  # by EXIF, 1 to 8; any other value means upright
    ended: bool = True  # False for a JPEG without its end marker: its last scan may be cut off


class Reader:
    """Reads numbers and bytes of a part of some data. Raises Defect at the part's end."""

    def __init__(
        self, data: bytes, place: int = 0, order: Literal["big", "little"] = "big"
    ) -> None:
        self.data, self.place, self.end, self._order = data, place, len(data), order

    def skip(self, count: int) -> None:
        """Skip bytes."""
        self.place += count
        if self.place > self.end:
            raise Defect("ends too early, or gives a wrong length")

    def take(self, count: int) -> bytes:
        """Read bytes."""
        self.skip(count)
        return self.data[self.place - count : self.place]

    def number(self, size: int) -> int:
        """Read an unsigned number of `size` bytes."""
        return int.from_bytes(self.take(size), self._order)

    def part(self, count: int) -> "Reader":
        """Skip bytes, and return a reader for them."""
        part = Reader(self.data, self.place, self._order)
        self.skip(count)
        part.end = self.place
        return part

    def rest(self) -> bytes:
        """Read all bytes that are left."""
        return self.take(self.end - self.place)
