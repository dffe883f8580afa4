"""What files made to hurt are built of: chunks, segments, blocks and tags of every type."""

import struct
import zlib

from photo_files import encode, pattern, png_of, saved
from PIL import Image

MEGABYTE = 2**20
SMALL_JPEG, SMALL_PNG = encode(pattern(), "JPEG"), encode(pattern(), "PNG")
SMALL_GIF, SMALL_TIFF = encode(pattern(), "GIF"), encode(pattern(), "TIFF")
SMALL_WEBP = encode(pattern(), "WEBP")
# Where the small files' pictures begin.
JPEG_FRAME = SMALL_JPEG.index(b"\xff\xc0")
_GIF_BLOCKS = 13 + 3 * 2 ** ((SMALL_GIF[10] & 7) + 1)
GIF_FRAME = SMALL_GIF.index(b"\x2c", _GIF_BLOCKS)


def flat(side: int, file_format: str, mode: str, **options: object) -> bytes:
    return saved(Image.new(mode, (side, side)), file_format, **options)


def png_of_zeros(
    width: int, height: int, depth: int, colour: int, *extra: bytes, interlaced: int = 0
) -> bytes:
    """A PNG of any kind whose pixels are all zero, row by row and so in little memory."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    packer = zlib.compressobj(9)
    steps = [(8, 8), (8, 8), (4, 8), (4, 4), (2, 4), (2, 2), (1, 2)] if interlaced else [(1, 1)]
    starts = [(0, 0), (4, 0), (0, 4), (2, 0), (0, 2), (1, 0), (0, 1)] if interlaced else [(0, 0)]
    data = b""
    for (step_x, step_y), (x, y) in zip(steps, starts, strict=True):
        columns, rows = -(-(width - x) // step_x), -(-(height - y) // step_y)
        row = bytes(1 + -(-columns * samples * depth // 8))
        data += b"".join(packer.compress(row) for _ in range(rows))
    chunks = [(e[:4], e[4:]) for e in extra] + [(b"IDAT", data + packer.flush())]
    return png_of(width, height, *chunks, kind=bytes([depth, colour, 0, 0, interlaced]))


def png_endless() -> bytes:
    """A small picture, and megabytes of rows beyond it."""
    rows = zlib.compress(bytes(50 * MEGABYTE), 9)
    return png_of(8, 8, (b"IDAT", rows[:100]), (b"IDAT", rows[100:]))


def png_with(*chunks: bytes) -> bytes:
    """The small PNG with these chunks after its header."""
    return SMALL_PNG[:33] + b"".join(chunks) + SMALL_PNG[33:]


def tags_sharing_bytes(count: int, size: int) -> bytes:
    """A TIFF whose tags, each another one, all claim the same bytes."""
    return tiff_of({1000 + tag: (7, size, 8) for tag in range(count)}).ljust(size + 8, b"\0")


def jpeg_with(*segments: bytes) -> bytes:
    """The small JPEG with these bytes after its start-of-image marker."""
    return SMALL_JPEG[:2] + b"".join(segments) + SMALL_JPEG[2:]


def segment(marker: int, data: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def jpeg_frame(marker: int, bits: int = 8) -> bytes:
    """The small JPEG with another frame marker or sample size."""
    data = bytearray(SMALL_JPEG)
    data[JPEG_FRAME + 1], data[JPEG_FRAME + 4] = marker, bits
    return bytes(data)


def jpeg_of_scans(scans: int, side: int) -> bytes:
    """A large progressive JPEG of one colour, with further scans that say nothing."""
    data = flat(side, "JPEG", "CMYK", progressive=True, subsampling=0)
    more = scans - data.count(b"\xff\xda")
    return data[:-2] + data[data.rindex(b"\xff\xda") : -2] * more + data[-2:]


def webp_chunk(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def webp_of(*chunks: bytes) -> bytes:
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_with(*chunks: bytes) -> bytes:
    """The small WebP with these chunks before its picture."""
    return webp_of(*chunks, SMALL_WEBP[12:])


def webp_canvas(flags: int, width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp_chunk(b"VP8X", bytes([flags, 0, 0, 0]) + sides)


def webp_on_canvas(width: int, height: int) -> bytes:
    return webp_with(webp_canvas(0, width, height))


def webp_animation(width: int, height: int, frames: int) -> bytes:
    """Small frames on a large canvas."""
    sides = (63).to_bytes(3, "little") + (47).to_bytes(3, "little")
    frame = webp_chunk(b"ANMF", bytes(6) + sides + bytes(4) + SMALL_WEBP[12:])
    return webp_of(webp_canvas(2, width, height), webp_chunk(b"ANIM", bytes(6)), frame * frames)


def gif_with(*blocks: bytes) -> bytes:
    """The small GIF with these blocks before its picture."""
    return SMALL_GIF[:_GIF_BLOCKS] + b"".join(blocks) + SMALL_GIF[_GIF_BLOCKS:]


def gif_frame(left: int, top: int, width: int, height: int) -> bytes:
    """A small screen with a frame of any size."""
    frame = struct.pack("<HHHH", left, top, width, height)
    return SMALL_GIF[: GIF_FRAME + 1] + frame + SMALL_GIF[GIF_FRAME + 9 :]


Value = tuple[int, int, int]


def tiff_of(values: dict[int, Value], tail: bytes = b"", following: int = 0) -> bytes:
    """A TIFF of these tags: type, count, and value or place; `tail` comes after them."""
    entries = b"".join(struct.pack("<HHII", tag, *values[tag]) for tag in sorted(values))
    head = b"II*\0\x08\0\0\0" + struct.pack("<H", len(values))
    return head + entries + struct.pack("<I", following) + tail


def tiff_tags(width: int = 8, height: int = 8, **changes: int) -> dict[int, Value]:
    """Tags of an RGB picture in one strip."""
    by_name = {"compression": 259, "strips": 273, "samples": 277, "planar": 284}
    values = {256: (4, 1, width), 257: (4, 1, height), 258: (3, 1, 8), 259: (3, 1, 1)}
    values |= {262: (3, 1, 2), 273: (4, 1, 8), 277: (3, 1, 3), 278: (4, 1, height)}
    values |= {279: (4, 1, 3 * width * height), 284: (3, 1, 1)}
    return values | {by_name[name]: (3, 1, value) for name, value in changes.items()}


def tiff_of_scans(scans: int, *, size: int | None = None) -> bytes:
    """A strip that is a progressive JPEG; its length is right unless another is given."""
    photo = jpeg_of_scans(scans, 64)
    tags = tiff_tags(64, 64, compression=7, samples=4)
    place = len(tiff_of(tags))
    lengths = len(photo) if size is None else size
    return tiff_of(tags | {262: (3, 1, 5), 273: (4, 1, place), 279: (4, 1, lengths)}, photo)


def tiff_tile() -> bytes:
    """One pixel, in a tile of two gigabytes."""
    tags = {tag: tiff_tags(1, 1, compression=8)[tag] for tag in (256, 257, 258, 259, 262, 277, 284)}
    data = zlib.compress(bytes(200 * MEGABYTE), 9)
    tile = {322: (4, 1, 25_000), 323: (4, 1, 25_000), 324: (4, 1, 300), 325: (4, 1, len(data))}
    return tiff_of(tags | tile).ljust(300, b"\0") + data


def tiff_deep(side: int) -> bytes:
    """A large picture of four samples of 16 bits, deflated to next to nothing."""
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(8 * side)) for _ in range(side)) + packer.flush()
    tags = tiff_tags(side, side, compression=8, samples=4)
    tags |= {258: (3, 4, 300), 338: (3, 1, 2), 273: (4, 1, 400), 279: (4, 1, len(rows))}
    data = tiff_of(tags).ljust(300, b"\0") + struct.pack("<HHHH", 16, 16, 16, 16)
    return data.ljust(400, b"\0") + rows


def tags_before(tiff: bytes) -> bytes:
    """The small TIFF with sixty thousand tags more that share its bytes."""
    start = struct.unpack_from("<I", tiff, 4)[0]
    count = struct.unpack_from("<H", tiff, start)[0]
    own = tiff[start + 2 : start + 2 + 12 * count]
    private = b"".join(struct.pack("<HHII", 700, 7, len(tiff), 0) for _ in range(60_000))
    directory = struct.pack("<H", count + 60_000) + own + private + bytes(4)
    return tiff[:4] + struct.pack("<I", len(tiff)) + tiff[8:] + directory


def bmp_of(width: int, height: int, compression: int, data: bytes, header: int = 40) -> bytes:
    size = struct.pack("<IiiHHIIiiII", header, width, height, 1, 8, compression, 0, 0, 0, 0, 0)
    head = b"BM" + struct.pack("<IHHI", 54 + 1024 + len(data), 0, 0, 54 + 1024)
    return head + size + bytes(1024) + data
