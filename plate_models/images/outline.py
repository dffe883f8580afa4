"""What a file says of its picture, and the part of the file that makes the picture.

Written for files whose headers lie. A container may hold a megabyte of text in a
kilobyte, the same kilobyte under five thousand names, or a second picture that is larger
than the first: libraries unpack all of it. Here the containers are walked by their
lengths, without decompressing anything, and decoders get only what the picture needs.
"""

from dataclasses import dataclass

# A 20 MB photo has a few hundred segments. Files with many more keep a parser busy.
MAX_SEGMENTS = 20_000


class Defect(ValueError):
    """The file is damaged; the message is the end of the sentence "The file …"."""


class NotRead(ValueError):
    """The file is of a kind that is not read; the message is a sentence."""


@dataclass(frozen=True)
class Outline:
    """A picture as its file describes it.

    Attributes:
        width: Of the picture as it is stored, in pixels.
        height: Of the picture as it is stored, in pixels.
        core: The file without what its first picture doesn't need.
        orientation: By EXIF, 1 to 8; anything else means upright, too. The core has none.
        depth: Bits per sample, where they change how a PNG is decoded.
        ended: False for a JPEG without its end marker: its last scan may be cut off.
    """

    width: int
    height: int
    core: bytes
    orientation: int = 1
    depth: int = 8
    ended: bool = True
