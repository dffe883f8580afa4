"""The structure of PNG files (PNG specification, third edition, 5)."""

import zlib
from collections.abc import Iterator

from plate_models.images.jpeg import orientation_of
from plate_models.images.outline import MAX_SEGMENTS, Defect, Outline

_SIGNATURE_SIZE, _HEADER_SIZE = 8, 13
# Other chunks hold texts and profiles, compressed, and the frames of an animation.
_NEEDED = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
# Samples per pixel of each colour type (11.2.1).
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# A kilobyte holds a megabyte of zeros at most: no step takes more than that many of them.
_STEP = 16 * 1024
# Some encoders write a little more than is needed.
_SLACK = 64 * 1024


def outline(data: bytes) -> Outline:
    """Walk the chunks of a file to IEND; texts, profiles and animation are left out.

    Raises:
        Defect: Cut off, contradictory, or made to keep a decoder busy.
    """
    position, pieces = _SIGNATURE_SIZE, [data[:_SIGNATURE_SIZE]]
    size_wh: tuple[int, int] | None = None
    exif = b""
    seen: set[bytes] = set()
    for _ in range(MAX_SEGMENTS):
        start, kind = position, data[position + 4 : position + 8]
        position += 12 + int.from_bytes(data[position : position + 4], "big")
        if len(kind) < 4 or position > len(data):
            raise Defect("ends before its IEND chunk")
        if (kind == b"IHDR") != (size_wh is None):
            raise Defect("has no header, or more than one")
        if kind == b"IHDR":
            if position != _SIGNATURE_SIZE + 12 + _HEADER_SIZE:
                raise Defect(f"has a header of other than {_HEADER_SIZE} bytes")
            width, height = data[start + 8 : start + 12], data[start + 12 : start + 16]
            size_wh = int.from_bytes(width, "big"), int.from_bytes(height, "big")
        elif kind == b"eXIf":
            exif = exif or data[start + 8 : position - 4]
        # Of the others the first counts. libpng writes a line to stderr for each further one.
        if kind == b"IDAT" or kind in _NEEDED - seen:
            pieces.append(data[start:position])
            seen.add(kind)
        if kind == b"IEND" and size_wh:
            depth = pieces[1][16]  # of the header's chunk, which comes first
            return Outline(*size_wh, b"".join(pieces), orientation_of(exif), depth)
    raise Defect(f"has more than {MAX_SEGMENTS} chunks")


def check_amount(core: bytes) -> None:
    """Raise Defect for a picture with more rows than its header says, before it is decoded.

    What follows the last row, libpng unpacks to its end: a gigabyte for each megabyte of
    the file. Here the rows are unpacked without being kept, and no further than they may go.
    """
    width, height = int.from_bytes(core[16:20], "big"), int.from_bytes(core[20:24], "big")
    depth, colour = core[24], core[25]
    row = -(-width * depth * _SAMPLES.get(colour, 4) // 8)
    # Each row begins with a byte for its filter; interlaced ones come in pieces (8.1).
    left = height * (row + 4) + _SLACK
    unpacker = zlib.decompressobj()
    for piece in _image_data(core):
        try:
            left -= len(unpacker.decompress(piece))
        except zlib.error:  # no decoder gets beyond this
            return
        if left < 0:
            raise Defect("has more image data than its header says")
        if unpacker.eof:
            return


def _image_data(core: bytes) -> Iterator[memoryview]:
    """The contents of the IDAT chunks, in small pieces."""
    position = _SIGNATURE_SIZE
    while position < len(core):
        end = position + 8 + int.from_bytes(core[position : position + 4], "big")
        if core[position + 4 : position + 8] == b"IDAT":
            for start in range(position + 8, end, _STEP):
                yield memoryview(core)[start : min(start + _STEP, end)]
        position = end + 4
