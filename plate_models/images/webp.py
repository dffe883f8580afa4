"""The structure of WebP files (RFC 9649, 2)."""

from collections.abc import Iterator

from plate_models.images.exif import orientation_of
from plate_models.images.outline import MAX_SEGMENTS, Defect, Outline

_RIFF_SIZE = 12
_NEEDED = frozenset({b"VP8X", b"ALPH", b"VP8 ", b"VP8L", b"ANIM", b"ANMF"})
# Of VP8X: animation, and transparency. The others announce chunks that are left out.
_FLAGS_KEPT = 0x12


def outline(data: bytes) -> Outline:
    """Walk the chunks; of an animation, to its first frame.

    Args:
        data: The file, from its RIFF header.

    Returns:
        Its outline, without profiles, XMP and further frames.

    Raises:
        Defect: Cut off, contradictory, or made to keep a decoder busy.
    """
    end = 8 + int.from_bytes(data[4:8], "little")
    if len(data) < end:
        raise Defect("is shorter than its RIFF header says")
    pieces: list[bytes] = []
    size_wh: tuple[int, int] | None = None
    exif = b""
    seen: set[bytes] = set()
    for kind, chunk in _chunks(data[:end]):
        if kind == b"EXIF":
            exif = exif or chunk[8:]
        if kind not in _NEEDED or kind in seen:
            continue
        seen.add(kind)
        size_wh = size_wh or _size(kind, chunk)
        pieces.append(_without_announcements(chunk) if kind == b"VP8X" else chunk)
    if size_wh is None:
        raise Defect("holds no picture")
    core = b"WEBP" + b"".join(pieces)
    core = b"RIFF" + len(core).to_bytes(4, "little") + core
    return Outline(*size_wh, core, orientation_of(exif))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
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


def _size(kind: bytes, chunk: bytes) -> tuple[int, int] | None:
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
