"""The structure of PNG, WebP, GIF and BMP files; each function finds a file's first picture.

All raise Defect if a file is truncated, contradictory, or made to keep a decoder busy.
"""

import io
import zlib
from collections.abc import Iterator

from PIL.BmpImagePlugin import BmpImageFile

from plate_models.images.outline import MAX_SEGMENTS, Defect, Outline, Reader
from plate_models.images.tiff import orientation_of

_PNG_SIGNATURE, _PNG_HEADER_SIZE = b"\x89PNG\r\n\x1a\n", 13
# Other chunks hold texts and profiles, compressed, and the frames of an animation.
_PNG_NEEDED = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})

_WEBP_NEEDED = frozenset({b"VP8X", b"ALPH", b"VP8 ", b"VP8L", b"ANIM", b"ANMF"})
# Flags of VP8X for animation and transparency. The others announce chunks that are left out.
_FLAGS_KEPT = 0x12

_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_GRAPHIC_CONTROL = 0xF9
# Encoders fill their blocks of 255 bytes; a 20 MB file has 80,000 of them.
_MAX_BLOCKS = 200_000


def bmp(data: bytes) -> Outline:
    """Read the header of a BMP."""
    try:
        return Outline(*BmpImageFile(io.BytesIO(data)).size, data)
    except Exception as error:  # Pillow raises errors of any type.
        raise Defect("has a damaged header") from error


def png(data: bytes) -> Outline:
    """Walk the chunks of a PNG (third edition, 5); leave out texts, profiles and animation.

    Checksums are verified here, because Pillow ignores those of the image data.
    """
    reader, pieces, exif = Reader(data, len(_PNG_SIGNATURE)), [_PNG_SIGNATURE], b""
    size_wh: tuple[int, int] | None = None
    seen: set[bytes] = set()
    for _ in range(MAX_SEGMENTS):
        start, length, kind = reader.place, reader.number(4), reader.take(4)
        content, checksum = reader.part(length), reader.number(4)
        if (kind == b"IHDR") != (size_wh is None):
            raise Defect("has no header, or more than one")
        if kind == b"IHDR":
            if length != _PNG_HEADER_SIZE:
                raise Defect(f"has a header of other than {_PNG_HEADER_SIZE} bytes")
            size_wh = content.number(4), content.number(4)
        elif kind == b"eXIf":
            exif = exif or content.rest()
        # Keep all image data, and the first chunk of each other kind that is needed.
        if kind == b"IDAT" or kind in _PNG_NEEDED - seen:
            chunk = data[start : reader.place]
            if zlib.crc32(memoryview(chunk)[4:-4]) != checksum:
                raise Defect("has a damaged chunk")
            pieces.append(chunk)
            seen.add(kind)
        if kind == b"IEND" and size_wh:
            return Outline(*size_wh, b"".join(pieces), orientation_of(exif))
    raise Defect(f"has more than {MAX_SEGMENTS} chunks")


def webp(data: bytes) -> Outline:
    """Walk the chunks of a WebP (RFC 9649, 2); leave out profiles, XMP and further frames."""
    reader = Reader(data, 4, "little")
    chunks = reader.part(reader.number(4))
    pieces, exif = [chunks.take(len(b"WEBP"))], b""
    seen: set[bytes] = set()
    size_wh: tuple[int, int] | None = None
    for _ in range(MAX_SEGMENTS):
        if chunks.end - chunks.place < 8:
            break
        kind = chunks.take(4)
        content = chunks.part(chunks.number(4)).rest()
        chunks.place += chunks.place % 2  # padding, which the last chunk may lack
        if kind == b"EXIF":
            exif = exif or content
        if kind not in _WEBP_NEEDED or kind in seen:
            continue
        seen.add(kind)
        size = _webp_size(kind, Reader(content, order="little"))
        size_wh = size_wh or size
        if kind == b"VP8X":
            content = bytes([content[0] & _FLAGS_KEPT]) + content[1:]
        pieces += [kind, len(content).to_bytes(4, "little"), content, bytes(len(content) % 2)]
    else:
        raise Defect(f"has more than {MAX_SEGMENTS} chunks")
    if size_wh is None:
        raise Defect("holds no picture")
    core = b"".join(pieces)
    return Outline(*size_wh, b"RIFF" + len(core).to_bytes(4, "little") + core, orientation_of(exif))


def _webp_size(kind: bytes, chunk: Reader) -> tuple[int, int] | None:
    """Width and height if this chunk has them, else None (RFC 9649, 2.5 to 2.7)."""
    if kind == b"VP8X":
        chunk.skip(4)
        return chunk.number(3) + 1, chunk.number(3) + 1
    if kind == b"VP8 ":
        chunk.skip(6)
        return chunk.number(2) & 0x3FFF, chunk.number(2) & 0x3FFF
    if kind == b"VP8L":
        chunk.skip(1)
        bits = chunk.number(4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


def gif(data: bytes) -> Outline:
    """Walk the blocks of a GIF (GIF89a) to the end of the first picture.

    Comments and further frames are left out. The size is the screen's, enlarged if the first
    picture extends beyond it.
    """
    reader, budget = Reader(data, len(b"GIF89a"), "little"), iter(range(_MAX_BLOCKS))
    screen_width, screen_height, flags = (reader.number(size) for size in (2, 2, 1))
    reader.skip(2 + _table_size(flags))
    head, control = data[: reader.place], b""
    for _ in range(MAX_SEGMENTS):
        start, kind = reader.place, reader.number(1)
        if kind == _EXTENSION:
            label = reader.number(1)
            _skip_blocks(reader, budget)
            if label == _GRAPHIC_CONTROL:  # has the transparent colour
                control = data[start : reader.place]
        elif kind == _IMAGE:
            left, top, width, height, flags = (reader.number(size) for size in (2, 2, 2, 2, 1))
            reader.skip(_table_size(flags) + 1)  # one byte for LZW's code size
            _skip_blocks(reader, budget)
            core = head + control + data[start : reader.place] + bytes([_TRAILER])
            return Outline(max(screen_width, left + width), max(screen_height, top + height), core)
        elif kind == _TRAILER:
            raise Defect("holds no picture")
    raise Defect(f"has more than {MAX_SEGMENTS} blocks before its first picture")


def _skip_blocks(reader: Reader, budget: Iterator[int]) -> None:
    """Skip a chain of data blocks (GIF89a, 15)."""
    while size := reader.number(1):
        reader.skip(size)
        if next(budget, None) is None:
            raise Defect(f"has more than {_MAX_BLOCKS} data blocks")


def _table_size(flags: int) -> int:
    """Size in bytes of the colour table that the flags announce (GIF89a, 18)."""
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0
