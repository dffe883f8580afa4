"""The structure of TIFF files (TIFF 6.0, section 2)."""

import struct
from typing import NamedTuple

from plate_models.images.jpeg import MAX_SCANS
from plate_models.images.outline import Defect, NotRead, Outline

_WIDTH, _HEIGHT, _COMPRESSION = 256, 257, 259
_STRIP_OFFSETS, _TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS = 273, 322, 323, 324
_ORIENTATION, _SAMPLES = 274, 277
_STRIP_SIZES, _TILE_SIZES = 279, 325
_HEADER_SIZE = 8
# What the pixels depend on. Other tags lead to further pictures and to private data.
_NEEDED = frozenset(
    {_WIDTH, _HEIGHT, 258, _COMPRESSION, 262, 266, _STRIP_OFFSETS, _SAMPLES, 278, 279, 284}
    | {317, 320, _TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, 325, 332, 338, 339, 347}
    | {529, 530, 531, 532}
)
# Bytes of each type of value.
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}
_SHORT, _LONG = 3, 4
# None, LZW, JPEG, deflate in two spellings, PackBits. Others are for faxes and archives.
_COMPRESSIONS = frozenset({1, 5, 7, 8, 32946, 32773})
_JPEG, _START_OF_SCAN = 7, b"\xff\xda"

MAX_STRIPS = 100_000
MAX_SAMPLES = 5  # CMYK and transparency
# Tiles are padded at the picture's edges. Those of a small picture may be larger than it.
_LARGE_TILE = 1024


class _Entry(NamedTuple):
    tag: int
    kind: int
    length: int
    raw: bytes


def outline(data: bytes) -> Outline:
    """Read the first directory.

    Args:
        data: The file, from its byte-order mark.

    Returns:
        Its outline; the core has one directory, of the needed tags.

    Raises:
        Defect: Cut off, contradictory, or made to keep a decoder busy.
        NotRead: A compression that photos don't have.
    """
    order = "<" if data[:2] == b"II" else ">"
    entries = _entries(data, order)
    width, height = _number(entries, _WIDTH, order), _number(entries, _HEIGHT, order)
    if width is None or height is None:
        raise Defect("does not tell its size")
    compression = _number(entries, _COMPRESSION, order) or 1
    if compression not in _COMPRESSIONS:
        raise NotRead(f"TIFFs of the compression {compression} are not read. Save it with LZW.")
    samples = _number(entries, _SAMPLES, order) or 1
    if samples > MAX_SAMPLES:
        raise NotRead(f"TIFFs of {samples} samples per pixel are not read. Save it in RGB.")
    for tag, side in ((_TILE_WIDTH, width), (_TILE_HEIGHT, height)):
        if (_number(entries, tag, order) or 0) > max(2 * side, _LARGE_TILE):
            raise Defect("has tiles that are larger than its picture")
    for tag in (_STRIP_OFFSETS, _TILE_OFFSETS):
        if tag in entries and entries[tag].length > MAX_STRIPS:
            raise Defect(f"has more than {MAX_STRIPS} strips or tiles")
    if compression == _JPEG:
        _check_scans(data, entries, order)
    orientation = _number(entries, _ORIENTATION, order) or 1
    needed = [entry for tag, entry in entries.items() if tag in _NEEDED]
    return Outline(width, height, _with_directory(data, needed, order), orientation)


def _entries(data: bytes, order: str) -> dict[int, _Entry]:
    """The needed entries of the first directory; of two with one tag, the first."""
    entries: dict[int, _Entry] = {}
    room = len(data)
    try:
        (start,) = struct.unpack_from(order + "I", data, 4)
        if start < _HEADER_SIZE:
            raise Defect("has its first directory inside its header")
        (count,) = struct.unpack_from(order + "H", data, start)
        end = start + 2 + 12 * count
        struct.unpack_from("I", data, end)  # where the next one would be
        for place in range(start + 2, end, 12):
            entry = _Entry(*struct.unpack_from(order + "HHI4s", data, place))
            if entry.tag in _NEEDED | {_ORIENTATION} and entry.tag not in entries:
                room -= entry.length * _TYPE_SIZES.get(entry.kind, 1)
                entries[entry.tag] = entry
    except struct.error as error:
        raise Defect("ends within its first directory") from error
    if room < 0:
        raise Defect("says of its tags that they hold more than the file")
    return entries


def _number(entries: dict[int, _Entry], tag: int, order: str) -> int | None:
    """The value of a tag that has one whole number; None where the tag is missing."""
    if tag not in entries:
        return None
    entry = entries[tag]
    if entry.length != 1 or entry.kind not in (_SHORT, _LONG):
        raise Defect(f"has something other than a number for the tag {tag}")
    code, size = ("H", 2) if entry.kind == _SHORT else ("I", 4)
    (value,) = struct.unpack(order + code, entry.raw[:size])
    return int(value)


def _check_scans(data: bytes, entries: dict[int, _Entry], order: str) -> None:
    """Refuse strips and tiles that visit their pixels more often than a JPEG file may.

    Raises:
        Defect: One of them does; or they overlap, or don't tell their sizes, so that one
            could do so behind the back of this.
    """
    tiled = _TILE_OFFSETS in entries
    places = _numbers(data, entries, _TILE_OFFSETS if tiled else _STRIP_OFFSETS, order)
    sizes = _numbers(data, entries, _TILE_SIZES if tiled else _STRIP_SIZES, order)
    if len(places) != len(sizes) or not all(sizes) or sum(sizes) > len(data):
        raise Defect("does not tell the sizes of its strips, or more than the file holds")
    for place, size in zip(places, sizes, strict=True):
        if data.count(_START_OF_SCAN, place, place + size) > MAX_SCANS:
            raise Defect(f"has more than {MAX_SCANS} scans in a strip")


def _numbers(data: bytes, entries: dict[int, _Entry], tag: int, order: str) -> tuple[int, ...]:
    """The values of a tag that has whole numbers; none where it is missing or too long."""
    entry = entries.get(tag)
    if entry is None or entry.kind not in (_SHORT, _LONG) or entry.length > MAX_STRIPS:
        return ()
    code, size = ("H", 2) if entry.kind == _SHORT else ("I", 4)
    (place,) = struct.unpack(order + "I", entry.raw)
    total = entry.length * size
    raw = entry.raw[:total] if total <= len(entry.raw) else data[place : place + total]
    return struct.unpack(f"{order}{entry.length}{code}", raw) if len(raw) == total else ()


def _with_directory(data: bytes, entries: list[_Entry], order: str) -> bytes:
    """The file with these entries in its first directory, which is the last one, too."""
    (start,) = struct.unpack_from(order + "I", data, 4)
    directory = struct.pack(order + "H", len(entries))
    for entry in sorted(entries):
        directory += struct.pack(order + "HHI4s", *entry)
    directory += bytes(4)
    return data[:start] + directory + data[start + len(directory) :]
