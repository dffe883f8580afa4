"""When a photo was taken, as its camera wrote into it."""

import re
import struct
from datetime import datetime

_EXIF = b"Exif\0\0"
_SEGMENT = re.compile(rb"\xff[\xc0-\xfe]")
_SOS, _APP1 = 0xDA, 0xE1
_SEGMENTS, _TAGS = 200, 1000
_SUB_DIRECTORY, _TAKEN, _ASCII = 0x8769, 0x9003, 2
_FORM = "%Y:%m:%d %H:%M:%S"


def taken_at(data: bytes) -> datetime | None:
    """Find DateTimeOriginal (Exif 2.32, 4.6.5) in a JPEG or TIFF file.

    Args:
        data: The file.

    Returns:
        The camera's local time; None where it is missing or makes no sense.
    """
    block = data if data[:4] in (b"II*\0", b"MM\0*") else _exif_of_jpeg(data)
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        return None
    try:
        (start,) = struct.unpack_from(order + "I", block, 4)
        below = _find(block, order, start, _SUB_DIRECTORY)
        entry = below and _find(block, order, below[2], _TAKEN)
        if not entry or entry[0] != _ASCII:
            return None
        text = block[entry[2] : entry[2] + 19].decode("ascii")
        return datetime.strptime(text, _FORM)
    except (struct.error, ValueError):  # damaged, or "0000:00:00 00:00:00"
        return None


def _exif_of_jpeg(data: bytes) -> bytes:
    """The first EXIF block before the picture (ITU-T T.81, B.1.1)."""
    position = 2
    for _ in range(_SEGMENTS):
        if not _SEGMENT.match(data, position) or data[position + 1] == _SOS:
            break
        end = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        if data[position + 1] == _APP1 and data.startswith(_EXIF, position + 4):
            return data[position + 4 + len(_EXIF) : end]
        position = end
    return b""


def _find(block: bytes, order: str, start: int, tag: int) -> tuple[int, int, int] | None:
    """Type, count and value of a tag in the directory at `start`."""
    (count,) = struct.unpack_from(order + "H", block, start)
    for place in range(start + 2, start + 2 + 12 * min(count, _TAGS), 12):
        found, kind, number, value = struct.unpack_from(order + "HHII", block, place)
        if found == tag:
            return kind, number, value
    return None
