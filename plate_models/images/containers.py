"""The structure of WebP, GIF, TIFF and BMP files; each function finds a file's first picture.

All raise Defect where a file is cut off, contradictory, or made to keep a decoder busy.
"""

import io
import struct
from collections.abc import Iterator
from typing import NamedTuple

from PIL.BmpImagePlugin import BmpImageFile

from plate_models.images.jpeg import MAX_SCANS, orientation_of
from plate_models.images.outline import MAX_SEGMENTS, Defect, NotRead, Outline

_RIFF_SIZE = 12
_WEBP_NEEDED = frozenset({b"VP8X", b"ALPH", b"VP8 ", b"VP8L", b"ANIM", b"ANMF"})
# Of VP8X: animation, and transparency. The others announce chunks that are left out.
_FLAGS_KEPT = 0x12

_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_GRAPHIC_CONTROL = 0xF9
# Encoders fill their blocks of 255 bytes; a 20 MB file has 80,000 of them.
_MAX_BLOCKS = 200_000

_WIDTH, _HEIGHT, _COMPRESSION = 256, 257, 259
_STRIP_OFFSETS, _TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS = 273, 322, 323, 324
_ORIENTATION, _SAMPLES = 274, 277
_STRIP_SIZES, _TILE_SIZES = 279, 325
_HEADER_SIZE = 8
# What the pixels depend on. Other tags lead to further pictures and to private data.
_TIFF_NEEDED = frozenset(
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

_MAX_STRIPS = 100_000
_MAX_SAMPLES = 5  # CMYK and transparency
# Tiles are padded at the picture's edges. Those of a small picture may be larger than it.
_LARGE_TILE = 1024


def bmp(data: bytes) -> Outline:
    """Read the header of a BMP."""
    try:
        return Outline(*BmpImageFile(io.BytesIO(data)).size, data)
    except Exception as error:  # Pillow raises all kinds.
        raise Defect("has a damaged header") from error


def webp(data: bytes) -> Outline:
    """Walk the chunks of a WebP (RFC 9649, 2); profiles, XMP and further frames are left out."""
    end = 8 + int.from_bytes(data[4:8], "little")
    if len(data) < end:
        raise Defect("is shorter than its RIFF header says")
    pieces: list[bytes] = []
    size_wh: tuple[int, int] | None = None
    exif = b""
    seen: set[bytes] = set()
    for kind, chunk in _webp_chunks(data[:end]):
        if kind == b"EXIF":
            exif = exif or chunk[8:]
        if kind not in _WEBP_NEEDED or kind in seen:
            continue
        seen.add(kind)
        size_wh = size_wh or _webp_size(kind, chunk)
        pieces.append(_without_announcements(chunk) if kind == b"VP8X" else chunk)
    if size_wh is None:
        raise Defect("holds no picture")
    core = b"WEBP" + b"".join(pieces)
    core = b"RIFF" + len(core).to_bytes(4, "little") + core
    return Outline(*size_wh, core, orientation_of(exif))


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and bytes, header and padding included, of each chunk."""
    position = _RIFF_SIZE
    for _ in range(MAX_SEGMENTS):
        if position + 8 > len(data):
            return
        size = int.from_bytes(data[position + 4 : position + 8], "little")
        chunk = data[position : position + 8 + size + size % 2]
        if len(chunk) < 8 + size:
            raise Defect("ends within a chunk")
        yield chunk[:4], chunk
        position += len(chunk)
    raise Defect(f"has more than {MAX_SEGMENTS} chunks")


def _webp_size(kind: bytes, chunk: bytes) -> tuple[int, int] | None:
    """Width and height, where this chunk tells them (RFC 9649, 2.5 to 2.7)."""
    if kind == b"VP8X" and len(chunk) >= 18:
        sides = chunk[12:15], chunk[15:18]
        return int.from_bytes(sides[0], "little") + 1, int.from_bytes(sides[1], "little") + 1
    if kind == b"VP8 " and len(chunk) >= 18:
        return _two_of_14_bits(int.from_bytes(chunk[14:18], "little"), 16)
    if kind == b"VP8L" and len(chunk) >= 13:
        width, height = _two_of_14_bits(int.from_bytes(chunk[9:13], "little"), 14)
        return width + 1, height + 1
    return None


def _two_of_14_bits(bits: int, shift: int) -> tuple[int, int]:
    """Two numbers of 14 bits each, the second one `shift` bits after the first."""
    return bits & 0x3FFF, bits >> shift & 0x3FFF


def _without_announcements(chunk: bytes) -> bytes:
    """A VP8X chunk that announces only what stays."""
    return chunk[:8] + bytes([chunk[8] & _FLAGS_KEPT]) + chunk[9:] if len(chunk) > 8 else chunk


class _GifWalk:
    """A place in the file, and how many data blocks were passed."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position, self._blocks = data, position, 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        taken = self.data[self.position : self.position + count]
        self.position += count
        if len(taken) < count:
            raise Defect("ends before its first picture does")
        return taken

    def pass_blocks(self) -> None:
        """Go to the end of a chain of data blocks (15)."""
        while size := self.take(1)[0]:
            self.position += size
            self._blocks += 1
            if self._blocks > _MAX_BLOCKS:
                raise Defect(f"has more than {_MAX_BLOCKS} data blocks")


def gif(data: bytes) -> Outline:
    """Walk the blocks of a GIF (GIF89a) to the end of the first picture.

    Comments and further frames are left out. The size is that of the screen, or of the first
    picture where it reaches beyond.
    """
    walk = _GifWalk(data, 6)
    screen = walk.take(7)
    walk.take(_table_size(screen[4]))
    head, control = data[: walk.position], b""
    for _ in range(MAX_SEGMENTS):
        start, kind = walk.position, walk.take(1)[0]
        if kind == _EXTENSION:
            label = walk.take(1)[0]
            walk.pass_blocks()
            if label == _GRAPHIC_CONTROL:  # Tells which colour is transparent.
                control = data[start : walk.position]
        elif kind == _IMAGE:
            place = walk.take(9)
            walk.take(_table_size(place[8]) + 1)  # and the code size of LZW
            walk.pass_blocks()
            core = head + control + data[start : walk.position] + bytes([_TRAILER])
            left, top, width, height = _shorts(place[:8])
            reach = left + width, top + height
            sides = [max(pair) for pair in zip(_shorts(screen[:4]), reach, strict=True)]
            return Outline(sides[0], sides[1], core)
        elif kind == _TRAILER:
            raise Defect("holds no picture")
    raise Defect(f"has more than {MAX_SEGMENTS} blocks before its first picture")


def _shorts(data: bytes) -> list[int]:
    return [int.from_bytes(data[i : i + 2], "little") for i in range(0, len(data), 2)]


def _table_size(flags: int) -> int:
    """Bytes of the colour table that the flags announce (18)."""
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


class _Entry(NamedTuple):
    tag: int
    kind: int
    length: int
    raw: bytes


def tiff(data: bytes) -> Outline:
    """Read the first directory of a TIFF (TIFF 6.0, section 2).

    The core has one directory, of the needed tags. NotRead stands for a compression that
    photos don't have.
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
    if samples > _MAX_SAMPLES:
        raise NotRead(f"TIFFs of {samples} samples per pixel are not read. Save it in RGB.")
    for tag, side in ((_TILE_WIDTH, width), (_TILE_HEIGHT, height)):
        if (_number(entries, tag, order) or 0) > max(2 * side, _LARGE_TILE):
            raise Defect("has tiles that are larger than its picture")
    for tag in (_STRIP_OFFSETS, _TILE_OFFSETS):
        if tag in entries and entries[tag].length > _MAX_STRIPS:
            raise Defect(f"has more than {_MAX_STRIPS} strips or tiles")
    if compression == _JPEG:
        _check_scans(data, entries, order)
    orientation = _number(entries, _ORIENTATION, order) or 1
    needed = [entry for tag, entry in entries.items() if tag in _TIFF_NEEDED]
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
            if entry.tag in _TIFF_NEEDED | {_ORIENTATION} and entry.tag not in entries:
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

    Also those that overlap or don't tell their sizes: their scans can't be counted.
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
    if entry is None or entry.kind not in (_SHORT, _LONG) or entry.length > _MAX_STRIPS:
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
