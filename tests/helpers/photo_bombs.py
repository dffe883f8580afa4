"""Photo files that are small to send and expensive to open; each is made when it is needed.

REFUSED files must be refused by their headers. CHEAP files have a small picture and large data that
do not belong to the picture: decoding them must cost no more than the small picture. HEAVY files
are large pictures of the most expensive kinds, compressed to very little.
"""

import struct
import zlib

import heic_files
import numpy as np
from heic_files import SLICE, box, coded, grid_of, heic_of, ispe
from photo_files import encode, jpeg_claiming, pattern, png_chunk, png_claiming, png_of

MEGABYTE = 2**20
SMALL_JPEG, SMALL_PNG = encode(pattern(), "JPEG"), encode(pattern(), "PNG")
SMALL_GIF, SMALL_WEBP = encode(pattern(), "GIF"), encode(pattern(), "WEBP")
# Offsets of the small files' frame headers; _GIF_BLOCKS is the end of the GIF's colour table.
JPEG_FRAME = SMALL_JPEG.index(b"\xff\xc0")
_GIF_BLOCKS = 13 + 3 * 2 ** ((SMALL_GIF[10] & 7) + 1)
GIF_FRAME = SMALL_GIF.index(b"\x2c", _GIF_BLOCKS)


def flat(side, file_format, mode, **options):
    return encode(np.zeros((side, side, 3), np.uint8), file_format, mode, **options)


def zeros(row, rows):
    """`rows` times `row` zero bytes, deflated; the bytes of the first row are repeated."""
    packer = zlib.compressobj(9)
    packed = packer.compress(bytes(row)) + packer.flush(zlib.Z_FULL_FLUSH)
    adler32 = row * rows % 65_521 << 16 | 1
    return packed[:2] + packed[2:] * rows + b"\x03\0" + struct.pack(">I", adler32)


def png_with(*chunks):
    """The small PNG with these chunks after its header."""
    return SMALL_PNG[:33] + b"".join(chunks) + SMALL_PNG[33:]


def tags_sharing_bytes(count, size):
    """A TIFF with `count` different tags that all claim the same bytes."""
    return tiff_of({1000 + tag: (7, size, 8) for tag in range(count)}).ljust(size + 8, b"\0")


def jpeg_with(*segments):
    """The small JPEG with these bytes after its start-of-image marker."""
    return SMALL_JPEG[:2] + b"".join(segments) + SMALL_JPEG[2:]


def segment(marker, data):
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def jpeg_frame(marker, bits=8):
    """The small JPEG with another frame marker or sample size."""
    data = bytearray(SMALL_JPEG)
    data[JPEG_FRAME + 1], data[JPEG_FRAME + 4] = marker, bits
    return bytes(data)


def jpeg_of_scans(scans, side, mode="CMYK"):
    """A large progressive JPEG of one colour; its last scan is repeated up to `scans` scans."""
    data = flat(side, "JPEG", mode, progressive=True, subsampling=0)
    more = scans - data.count(b"\xff\xda")
    return data[:-2] + data[data.rindex(b"\xff\xda") : -2] * more + data[-2:]


def webp_chunk(kind, data):
    return kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def webp_of(*chunks):
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_with(*chunks):
    """The small WebP with these chunks before its picture."""
    return webp_of(*chunks, SMALL_WEBP[12:])


def webp_canvas(flags, width, height):
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp_chunk(b"VP8X", bytes([flags, 0, 0, 0]) + sides)


def webp_animation(width, height, frames):
    """Frames of 64x48 pixels on a canvas of any size."""
    sides = (63).to_bytes(3, "little") + (47).to_bytes(3, "little")
    frame = webp_chunk(b"ANMF", bytes(6) + sides + bytes(4) + SMALL_WEBP[12:])
    return webp_of(webp_canvas(2, width, height), webp_chunk(b"ANIM", bytes(6)), frame * frames)


def gif_with(*blocks):
    """The small GIF with these blocks before its picture."""
    return SMALL_GIF[:_GIF_BLOCKS] + b"".join(blocks) + SMALL_GIF[_GIF_BLOCKS:]


def tiff_of(values, tail=b""):
    """A TIFF of tags {tag: (type, count, value or offset)}; `tail` follows the directory."""
    entries = b"".join(struct.pack("<HHII", tag, *values[tag]) for tag in sorted(values))
    head = b"II*\0\x08\0\0\0" + struct.pack("<H", len(values))
    return head + entries + bytes(4) + tail


def tiff_tags(width=8, height=8, compression=1, samples=3):
    """The tags of an RGB picture in one strip."""
    values = {256: (4, 1, width), 257: (4, 1, height), 258: (3, 1, 8), 259: (3, 1, compression)}
    values |= {262: (3, 1, 2), 273: (4, 1, 8), 277: (3, 1, samples), 278: (4, 1, height)}
    return values | {279: (4, 1, 3 * width * height), 284: (3, 1, 1)}


def tiff_of_scans(*, counted):
    """A TIFF strip of a progressive JPEG with too many scans; its byte count is right, or 0."""
    photo = jpeg_of_scans(21, 64, "L")
    tags = tiff_tags(64, 64, compression=7, samples=1) | {262: (3, 1, 1)}
    place, size = len(tiff_of(tags)), len(photo) if counted else 0
    return tiff_of(tags | {273: (4, 1, place), 279: (4, 1, size)}, photo)


def tiff_tile():
    """A TIFF of one pixel, in a tile of two gigabytes."""
    tags = {tag: tiff_tags(1, 1, compression=8)[tag] for tag in (256, 257, 258, 259, 262, 277, 284)}
    data = zeros(MEGABYTE, 200)
    tile = {322: (4, 1, 25_000), 323: (4, 1, 25_000), 324: (4, 1, 300), 325: (4, 1, len(data))}
    return tiff_of(tags | tile).ljust(300, b"\0") + data


def bmp_of(width, height, header=40, bits=8, coding=0, rest=bytes(1024)):
    size = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, coding, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 1024, 0, 0, 54 + 1024) + size + rest


TOO_MANY_PIXELS = {
    "jpeg of huge claims": lambda: jpeg_claiming(65_500, 65_500),
    "webp of a huge canvas": lambda: webp_with(webp_canvas(0, 2**24, 2**24)),
    "gif of a frame far away": lambda: (
        SMALL_GIF[: GIF_FRAME + 1] + struct.pack("<HH", 65_000, 65_000) + SMALL_GIF[GIF_FRAME + 5 :]
    ),
    "tiff of huge claims": lambda: tiff_of(tiff_tags() | {256: (4, 1, 2**31)}),
    "bmp of huge claims": lambda: bmp_of(2**31 - 1, -(2**31)),
    "heic of huge claims": lambda: heic_of(
        (1, b"hvc1", [ispe(65_000, 65_000), heic_files.CONFIG], SLICE)
    ),
}
UNSUPPORTED = {
    "jpeg of 12 bits": lambda: jpeg_frame(0xC1, 12),
    "lossless jpeg": lambda: jpeg_frame(0xC3),
    "jpeg of no height": lambda: jpeg_claiming(64, 0),
    "tiff of xz": lambda: tiff_of(tiff_tags(compression=34925)),
    "tiff of a thumbnail first": lambda: tiff_of(tiff_tags() | {254: (4, 1, 1)}).ljust(400),
    "tiff of many samples": lambda: tiff_of(tiff_tags(samples=65_535)),
    "heic of another codec": lambda: heic_of((1, b"av01", [ispe(64, 64)], SLICE)),
    "heic of a grid of grids": lambda: heic_of(
        *((n, b"grid", [ispe(64, 64)], b"\0\0\0\0\0\x40\0\x40") for n in (1, 2)),
        references=((b"dimg", 1, [2]),),
    ),
}
BROKEN = {
    "png of empty chunks": lambda: png_with(png_chunk(b"IDAT", b"") * 30_000),
    "jpeg of many comments": lambda: jpeg_with(b"\xff\xfe\x00\x02" * 50_000),
    "png of two headers": lambda: png_with(png_claiming(60_000, 60_000)[8:33]),
    "jpeg of two frames": lambda: (
        jpeg_claiming(65_000, 65_000)[: JPEG_FRAME + 19] + SMALL_JPEG[JPEG_FRAME:]
    ),
    "jpeg of many scans": lambda: jpeg_of_scans(21, 64),
    "jpeg of scans of many components": lambda: jpeg_with(
        segment(0xC2, b"\x08\0\x10\0\x10\x01\x01\x11\0"),
        *20 * [segment(0xDA, b"\x01" + b"\x01\0" * 32_764 + b"\0\xff\0")],
    ),
    "webp of a frame larger than its canvas": lambda: webp_with(webp_canvas(0, 8, 8)),
    "webp of too many chunks": lambda: webp_with(webp_chunk(b"JUNK", b"") * 21_000),
    "gif of a million comments": lambda: gif_with(b"!\xfe\x01a\0" * 3_000_000),
    "gif of tiny blocks": lambda: gif_with(b"!\xfe" + b"\x01a" * 5_000_000 + b"\0"),
    "tiff of tags that share bytes": lambda: tiff_of(
        tiff_tags() | dict.fromkeys((320, 347), (7, 19 * MEGABYTE, 8)), bytes(19 * MEGABYTE)
    ),
    "tiff of four million strips": lambda: tiff_of(
        tiff_tags() | {273: (4, 2_000_000, 200), 279: (4, 2_000_000, 200 + 8 * MEGABYTE)},
        bytes(17 * MEGABYTE),
    ),
    "tiff of a huge tile": tiff_tile,
    "tiff of many scans": lambda: tiff_of_scans(counted=True),
    "tiff of uncounted scans": lambda: tiff_of_scans(counted=False),
    "tiff without a directory": lambda: b"II*\0" + bytes(100),
    "bmp of a huge header": lambda: bmp_of(8, 8, 2**31),
    "heic of a larger picture than it says": lambda: heic_files.FILES["larger"],
    "heic of large tiles": lambda: grid_of(1, 1, 64, 48, 2000),
    "heic of too many tiles": lambda: grid_of(33, 33, 64 * 33, 64 * 33),
    "heic of large names": heic_files.named,
    "heic of a tile in two pictures": heic_files.shared_tile,
    "heic of many pictures in one": lambda: heic_of(coded(1, 64, SLICE * 1000)),
    "heic of extents that share bytes": lambda: heic_of(
        coded(1, 64, bytes(MEGABYTE)), extents=60_000
    ),
    "heic of a million boxes": lambda: heic_of(coded(1), more=box(b"free") * 1_000_000),
    "heic of a box that goes back": lambda: heic_of()[:24] + b"\0\0\0\4free" + heic_of(coded(1)),
}
# Name to (function that makes the file, slug of the refusal).
REFUSED = {
    **{name: (make, "too-many-pixels") for name, make in TOO_MANY_PIXELS.items()},
    **{name: (make, "unsupported-type") for name, make in UNSUPPORTED.items()},
    **{name: (make, "broken-image") for name, make in BROKEN.items()},
}

CHEAP = {
    "png with endless rows": lambda: png_of(
        8, 8, (b"IDAT", zeros(MEGABYTE, 50)[:100]), (b"IDAT", zeros(MEGABYTE, 50)[100:])
    ),
    "png with a profile": lambda: png_with(png_chunk(b"iCCP", b"a\0\0" + zeros(MEGABYTE, 500))),
    "png with greedy exif": lambda: png_with(
        png_chunk(b"eXIf", tags_sharing_bytes(60_000, 10 * MEGABYTE))
    ),
    "jpeg with greedy exif": lambda: jpeg_with(
        segment(0xE1, b"Exif\0\0" + tags_sharing_bytes(5000, 65_000))
    ),
    "jpeg with fill bytes": lambda: jpeg_with(b"\xff" * 19 * MEGABYTE),
    "heic with burdens": heic_files.burdened,
    "webp with many frames": lambda: webp_animation(64, 48, 10_000),
    "webp with a profile": lambda: webp_of(
        webp_canvas(0x2C, 64, 48),
        webp_chunk(b"ICCP", bytes(10 * MEGABYTE)),
        SMALL_WEBP[12:],
        webp_chunk(b"EXIF", tags_sharing_bytes(60_000, 5 * MEGABYTE)),
    ),
    "tiff that Pillow warns of": lambda: tiff_of(tiff_tags() | {284: (3, 2, 1)}).ljust(900, b"x"),
}

# The sides of HEAVY pictures in pixels.
SIDE = 3000
HEAVY = {
    # RGBA (colour type 6) with 16 bits per channel; all pixels are zero.
    "deep png": lambda: png_of(
        SIDE, SIDE, (b"IDAT", zeros(1 + 8 * SIDE, SIDE)), kind=bytes([16, 6, 0, 0, 0])
    ),
    "png with a transparent colour": lambda: flat(SIDE, "PNG", "RGB", transparency=(0, 0, 0)),
    "progressive jpeg of many scans": lambda: jpeg_of_scans(20, SIDE),
    "heic": lambda: heic_files.flat(SIDE),
}
