"""The one tag of EXIF that changes a picture."""

import struct

_MARK = b"Exif\0\0"
_ORIENTATION, _SHORT = 0x0112, 3


def orientation_of(block: bytes) -> int:
    """Find the orientation in the first directory of an EXIF block.

    A library would unpack every tag, and five thousand tags may share the same bytes.

    Args:
        block: A TIFF structure (Exif 2.32, 4.5), with or without "Exif" before it.

    Returns:
        1 to 8; 1 where it is missing or damaged, as viewers have it.
    """
    block = block.removeprefix(_MARK)
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", block, 4)
        (count,) = struct.unpack_from(order + "H", block, start)
        for place in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", block, place)
            if tag == _ORIENTATION:
                return value if kind == _SHORT and 1 <= value <= 8 else 1
    except struct.error:  # The block ends too early.
        return 1
    return 1
