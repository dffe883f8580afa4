"""The header of BMP files."""

import struct

from plate_models.images.outline import Defect, Outline

_CORE_HEADER, _INFO_HEADERS = 12, (40, 52, 56, 64, 108, 124)


def outline(data: bytes) -> Outline:
    """Read the size (BITMAPCOREHEADER or BITMAPINFOHEADER).

    Args:
        data: The file, from its signature.

    Returns:
        Its outline.

    Raises:
        Defect: Cut off, or a header that nobody knows.
    """
    if len(data) < 26:
        raise Defect("ends in its header")
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size == _CORE_HEADER:
        width, height = struct.unpack_from("<HH", data, 18)
    elif header_size in _INFO_HEADERS:
        width, height = struct.unpack_from("<ii", data, 18)
    else:
        raise Defect(f"has a header of {header_size} bytes")
    # A negative height means that the first row is the top one.
    return Outline(width, abs(height), data)
