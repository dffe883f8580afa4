"""The structure of TIFF files (TIFF 6.0, section 2), and the orientation in EXIF, also a TIFF."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from plate_models.images.outline import LARGE_TILE, MAX_SCANS, Defect, NotRead, Outline

_WIDTH, _HEIGHT, _COMPRESSION, _ORIENTATION, _SAMPLES = 256, 257, 259, 274, 277
_STRIP_OFFSETS, _STRIP_SIZES, _TILE_OFFSETS, _TILE_SIZES = 273, 279, 324, 325
_TILE_WIDTH, _TILE_HEIGHT, _SUBFILE = 322, 323, 254
# Tags that the pixels depend on. Others lead to further pictures and to private data.
_NEEDED = frozenset(
    {_WIDTH, _HEIGHT, 258, _COMPRESSION, 262, 266, _STRIP_OFFSETS, _SAMPLES, 278, 279, 284}
    | {317, 320, _TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, 325, 332, 338, 339, 347}
    | {529, 530, 531, 532}
)
# Size in bytes of each type of value.
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}
_SHORT, _LONG = 3, 4
# None, LZW, JPEG, deflate in two spellings, PackBits. Others are for faxes and archives.
_COMPRESSIONS = frozenset({1, 5, 7, 8, 32946, 32773})
_JPEG, _START_OF_SCAN = 7, b"\xff\xda"

_HEADER_SIZE = 8
_MAX_STRIPS = 100_000
_MAX_SAMPLES = 5  # CMYK and transparency


class Entry(NamedTuple):
    """An entry of a directory: a tag, and its values or their place in the file."""

    tag: int
    kind: int
    length: int
    raw: bytes
    order: str

    def numbers(self, data: bytes) -> tuple[int, ...]:
        """The values; none if they are missing, too many, or not whole numbers."""
        if self.kind not in (_SHORT, _LONG) or self.length > _MAX_STRIPS:
            return ()
        (place,) = struct.unpack(self.order + "I", self.raw)
        size = self.length * _TYPE_SIZES[self.kind]
        raw = self.raw[:size] if size <= len(self.raw) else data[place : place + size]
        code = f"{self.order}{self.length}{'H' if self.kind == _SHORT else 'I'}"
        return struct.unpack(code, raw) if len(raw) == size else ()


def outline(data: bytes) -> Outline:
    """Read the first directory of a TIFF; the core has only this one, with the needed tags.

    Raises:
        Defect: Truncated, contradictory, or made to keep a decoder busy.
        NotRead: A compression or number of samples that photos don't have, or a thumbnail first.
    """
    entries: dict[int, Entry] = {}
    for entry in entries_of(data):
        if entry.tag in _NEEDED | {_ORIENTATION, _SUBFILE}:
            entries.setdefault(entry.tag, entry)
    held = sum(entry.length * _TYPE_SIZES.get(entry.kind, 1) for entry in entries.values())
    if held > len(data):
        raise Defect("has tags with more bytes than the file")

    def number(tag: int, default: int = 0) -> int:
        values = entries[tag].numbers(data) if tag in entries else (default,)
        if len(values) != 1:
            raise Defect(f"has something other than one number for the tag {tag}")
        return values[0]

    width, height = number(_WIDTH), number(_HEIGHT)
    if _SUBFILE in entries and is_preview(entries[_SUBFILE], data):
        raise NotRead("RAW files are not read. Convert the photo to JPEG.")
    compression, samples = number(_COMPRESSION, 1), number(_SAMPLES, 1)
    if compression not in _COMPRESSIONS:
        raise NotRead(f"TIFFs of the compression {compression} are not read. Save it with LZW.")
    if samples > _MAX_SAMPLES:
        raise NotRead(f"TIFFs of {samples} samples per pixel are not read. Save it in RGB.")
    for tag, side in ((_TILE_WIDTH, width), (_TILE_HEIGHT, height)):
        if number(tag) > max(2 * side, LARGE_TILE):
            raise Defect("has tiles that are larger than its picture")
    for tag in (_STRIP_OFFSETS, _TILE_OFFSETS):
        if tag in entries and entries[tag].length > _MAX_STRIPS:
            raise Defect(f"has more than {_MAX_STRIPS} strips or tiles")
    if compression == _JPEG:
        _check_scans(data, entries)
    needed = [entry for tag, entry in entries.items() if tag in _NEEDED]
    return Outline(width, height, _with_directory(data, needed), number(_ORIENTATION, 1))


def is_preview(entry: Entry, data: bytes) -> bool:
    """Whether the entry marks its picture as a small preview, as the first one in RAW files is."""
    return entry.tag == _SUBFILE and any(value & 1 for value in entry.numbers(data))


def orientation_of(block: bytes) -> int:
    """Find the orientation, 1 to 8, in the first directory of an EXIF block.

    The result is 1 if the orientation is missing or damaged, as in viewers. A library would unpack
    every tag, and five thousand tags may share the same bytes. The block is a TIFF structure
    (Exif 2.32, 4.5), with or without "Exif" before it.
    """
    block = block.removeprefix(b"Exif\0\0")
    try:
        entry = next(entry for entry in entries_of(block) if entry.tag == _ORIENTATION)
    except (Defect, StopIteration):
        return 1
    values = entry.numbers(block)
    return values[0] if len(values) == 1 and 1 <= values[0] <= 8 else 1


def entries_of(data: bytes) -> Iterator[Entry]:
    """The entries of the first directory, in order; raises Defect if it is truncated."""
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    try:
        (start,) = struct.unpack_from(f"{order}I", data, 4)
        if start < _HEADER_SIZE:
            raise Defect("has its first directory inside its header")
        (count,) = struct.unpack_from(f"{order}H", data, start)
        for place in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, length, raw = struct.unpack_from(f"{order}HHI4s", data, place)
            yield Entry(tag, kind, length, raw, f"{order}")
    except struct.error as error:
        raise Defect("ends within its first directory") from error


def _check_scans(data: bytes, entries: dict[int, Entry]) -> None:
    """Refuse strips and tiles with more scans than a JPEG file may have.

    Also refuse those that overlap or don't give their sizes: their scans can't be counted.
    """
    tiled = _TILE_OFFSETS in entries
    tags = (_TILE_OFFSETS, _TILE_SIZES) if tiled else (_STRIP_OFFSETS, _STRIP_SIZES)
    places, sizes = (entries[tag].numbers(data) if tag in entries else () for tag in tags)
    if len(places) != len(sizes) or not all(sizes) or sum(sizes) > len(data):
        raise Defect("does not give its strips' sizes, or gives more bytes than the file has")
    for place, size in zip(places, sizes, strict=True):
        if data.count(_START_OF_SCAN, place, place + size) > MAX_SCANS:
            raise Defect(f"has more than {MAX_SCANS} scans in a strip")


def _with_directory(data: bytes, entries: list[Entry]) -> bytes:
    """The file with these entries in its first directory, and no other directory."""
    order = "<" if data.startswith(b"II") else ">"
    (start,) = struct.unpack_from(order + "I", data, 4)
    directory = struct.pack(order + "H", len(entries))
    for entry in sorted(entries):
        directory += struct.pack(order + "HHI4s", *entry[:4])
    directory += bytes(4)
    return data[:start] + directory + data[start + len(directory) :]
