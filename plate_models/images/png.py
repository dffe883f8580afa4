"""The structure of PNG files (PNG specification, third edition, 5)."""

import zlib

from plate_models.images.outline import MAX_SEGMENTS, Defect, Outline, Reader
from plate_models.images.tiff import orientation_of

_SIGNATURE_SIZE, _HEADER_SIZE = 8, 13
# Other chunks hold texts and profiles, compressed, and the frames of an animation.
_NEEDED = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})


def outline(data: bytes) -> Outline:
    """Walk the chunks of a file to IEND; texts, profiles and animation are left out.

    Checksums are compared here, because Pillow passes those of the image data.

    Raises:
        Defect: Cut off, damaged, contradictory, or made to keep a decoder busy.
    """
    reader, pieces, exif = Reader(data, _SIGNATURE_SIZE), [data[:_SIGNATURE_SIZE]], b""
    size_wh: tuple[int, int] | None = None
    seen: set[bytes] = set()
    for _ in range(MAX_SEGMENTS):
        start, length, kind = reader.place, reader.number(4), reader.take(4)
        content, checksum = reader.part(length), reader.number(4)
        if (kind == b"IHDR") != (size_wh is None):
            raise Defect("has no header, or more than one")
        if kind == b"IHDR":
            if length != _HEADER_SIZE:
                raise Defect(f"has a header of other than {_HEADER_SIZE} bytes")
            size_wh = content.number(4), content.number(4)
        elif kind == b"eXIf":
            exif = exif or content.rest()
        # Of the others the first counts.
        if kind == b"IDAT" or kind in _NEEDED - seen:
            chunk = data[start : reader.place]
            if zlib.crc32(memoryview(chunk)[4:-4]) != checksum:
                raise Defect("has a damaged chunk")
            pieces.append(chunk)
            seen.add(kind)
        if kind == b"IEND" and size_wh:
            return Outline(*size_wh, b"".join(pieces), orientation_of(exif))
    raise Defect(f"has more than {MAX_SEGMENTS} chunks")
