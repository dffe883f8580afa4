"""The structure of PNG files (PNG specification, third edition, 5)."""

from plate_models.images.exif import orientation_of
from plate_models.images.outline import MAX_SEGMENTS, Defect, Outline

_SIGNATURE_SIZE, _HEADER_SIZE = 8, 13
# Other chunks hold texts and profiles, compressed, and the frames of an animation.
_NEEDED = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})


def outline(data: bytes) -> Outline:
    """Walk the chunks to IEND.

    Args:
        data: The file, from its signature.

    Returns:
        Its outline, without texts, profiles and animation.

    Raises:
        Defect: Cut off, contradictory, or made to keep a decoder busy.
    """
    position, pieces = _SIGNATURE_SIZE, [data[:_SIGNATURE_SIZE]]
    size_wh: tuple[int, int] | None = None
    exif = b""
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
        if kind in _NEEDED:
            pieces.append(data[start:position])
        if kind == b"IEND" and size_wh:
            depth = pieces[1][16]  # of the header's chunk, which comes first
            return Outline(*size_wh, b"".join(pieces), orientation_of(exif), depth)
    raise Defect(f"has more than {MAX_SEGMENTS} chunks")
