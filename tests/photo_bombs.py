"""Photo files that are small to send and expensive to open, each made only when it is asked for.

REFUSED must be refused by its header. CHEAP holds a small picture and a large burden that
is none of the picture's: it is read at the price of the small picture. HEAVY is a large
picture of any side, of the most expensive kind, made of next to nothing.
"""

import struct
import zlib
from collections.abc import Callable

import heic_files
import photo_bomb_parts as parts
from heic_files import SLICE, box, coded, grid_of, heic_of, ispe, units
from photo_bomb_parts import MEGABYTE, SMALL_JPEG, jpeg_frame, tiff_of, tiff_of_scans, tiff_tags
from photo_files import exif, jpeg_claiming, png_chunk, png_claiming

Made = Callable[[], bytes]


def _deflated(megabytes: int) -> bytes:
    return zlib.compress(bytes(megabytes * MEGABYTE), 9)


TOO_MANY_PIXELS: dict[str, Made] = {
    "png of huge claims": lambda: png_claiming(2**31 - 1, 2**31 - 1),
    "jpeg of huge claims": lambda: jpeg_claiming(65_500, 65_500),
    "webp of a huge canvas": lambda: parts.webp_on_canvas(2**24, 2**24),
    "gif of a huge screen": lambda: parts.SMALL_GIF[:6] + b"\xff" * 4 + parts.SMALL_GIF[10:],
    "gif of a frame far away": lambda: parts.gif_frame(65_000, 65_000, 64, 48),
    "tiff of huge claims": lambda: tiff_of(tiff_tags() | {256: (4, 1, 2**31)}),
    "bmp of huge claims": lambda: parts.bmp_of(2**31 - 1, -(2**31), 0, b""),
    "heic of huge claims": lambda: heic_of(
        (1, b"hvc1", [ispe(65_000, 65_000), heic_files.CONFIG], SLICE)
    ),
}
UNSUPPORTED: dict[str, Made] = {
    "jpeg of 12 bits": lambda: jpeg_frame(0xC1, 12),
    "lossless jpeg": lambda: jpeg_frame(0xC3),
    "jpeg of no height": lambda: jpeg_claiming(64, 0),
    "tiff of xz": lambda: tiff_of(tiff_tags(compression=34925)),
    "tiff of many samples": lambda: tiff_of(tiff_tags(samples=65_535)),
    "heic of another codec": lambda: heic_of((1, b"av01", [ispe(64, 64)], SLICE)),
    "heic of a grid of grids": lambda: heic_of(
        (1, b"grid", [ispe(64, 64)], b"\0\0\0\0\0\x40\0\x40"),
        (2, b"grid", [ispe(64, 64)], b"\0\0\0\0\0\x40\0\x40"),
        references=((b"dimg", 1, [2]),),
    ),
}
BROKEN: dict[str, Made] = {
    "png of empty chunks": lambda: parts.png_with(png_chunk(b"IDAT", b"") * 30_000),
    "jpeg of many comments": lambda: parts.jpeg_with(b"\xff\xfe\x00\x02" * 50_000),
    "heic that needs what is unknown": lambda: heic_of(
        (1, b"hvc1", [ispe(64, 64), heic_files.CONFIG, box(b"flip")], SLICE)
    ),
    "png of two headers": lambda: parts.png_with(png_claiming(60_000, 60_000)[8:33]),
    "jpeg of two frames": lambda: (
        jpeg_claiming(65_000, 65_000)[: parts.JPEG_FRAME + 19] + SMALL_JPEG[parts.JPEG_FRAME :]
    ),
    "jpeg of many scans": lambda: parts.jpeg_of_scans(21, 64),
    "webp of a frame larger than its canvas": lambda: parts.webp_on_canvas(8, 8),
    "webp of too many chunks": lambda: parts.webp_with(parts.webp_chunk(b"JUNK", b"") * 21_000),
    "gif of a million comments": lambda: parts.gif_with(b"!\xfe\x01a\0" * 3_000_000),
    "gif of tiny blocks": lambda: parts.gif_with(b"!\xfe" + b"\x01a" * 5_000_000 + b"\0"),
    "tiff of tags that share bytes": lambda: tiff_of(
        tiff_tags() | dict.fromkeys((320, 347), (7, 19 * MEGABYTE, 8)), bytes(19 * MEGABYTE)
    ),
    "tiff of four million strips": lambda: tiff_of(
        tiff_tags() | {273: (4, 2_000_000, 200), 279: (4, 2_000_000, 200 + 8 * MEGABYTE)},
        bytes(17 * MEGABYTE),
    ),
    "tiff of a huge tile": parts.tiff_tile,
    "tiff of many scans": lambda: tiff_of_scans(21),
    "tiff of uncounted scans": lambda: tiff_of_scans(21, size=0),
    "tiff of strips beyond the file": lambda: tiff_of_scans(18, size=MEGABYTE),
    "tiff without a directory": lambda: b"II*\0" + bytes(100),
    "tiff of an empty directory": lambda: b"II*\0\x08\0\0\0" + bytes(100),
    "bmp of a huge header": lambda: parts.bmp_of(8, 8, 0, b"", 2**31),
    "heic of a larger picture than it says": lambda: heic_files.FILES["larger"],
    "heic of a larger tile than it says": lambda: grid_of(1, 2, 100, 64, 64, *heic_files.LARGER),
    "heic of large tiles": lambda: grid_of(1, 1, 64, 48, 2000),
    "heic of more tiles than it needs": lambda: grid_of(9, 9, 64, 48),
    "heic of too many tiles": lambda: grid_of(33, 33, 64 * 33, 64 * 33),
    "heic of many pictures in one": lambda: heic_of(coded(1, 64, SLICE * 1000)),
    "heic of many slices": lambda: heic_of(coded(1, 64, SLICE + units(b"\x26\x01\0picture") * 100)),
    "heic of pictures that change": lambda: heic_of(coded(1, 64, units(b"\x02\x01\x80picture"))),
    "heic without a primary picture": lambda: heic_of(coded(1), primary=2),
    "heic that describes sound": lambda: heic_of(coded(1), handler=b"soun"),
    "heic of extents that share bytes": lambda: heic_of(
        coded(1, 64, bytes(MEGABYTE)), extents=60_000
    ),
    "heic of a million boxes": lambda: heic_of(coded(1), more=box(b"free") * 1_000_000),
    "heic of a box beyond the file": lambda: (
        heic_of()[:24] + b"\xff\xff\xff\xffmeta" + heic_of(coded(1))
    ),
    "heic of a box beyond all files": lambda: (
        heic_of()[:24] + b"\0\0\0\1meta" + b"\xff" * 8 + heic_of(coded(1))
    ),
    "heic of a box that goes back": lambda: heic_of()[:24] + b"\0\0\0\4free" + heic_of(coded(1)),
}
# With the slug of the refusal.
REFUSED: dict[str, tuple[Made, str]] = {
    **{name: (make, "too-many-pixels") for name, make in TOO_MANY_PIXELS.items()},
    **{name: (make, "unsupported-type") for name, make in UNSUPPORTED.items()},
    **{name: (make, "broken-image") for name, make in BROKEN.items()},
}

CHEAP: dict[str, Made] = {
    "png with endless rows": parts.png_endless,
    "png with repeated chunks": lambda: parts.png_with(png_chunk(b"tRNS", bytes(6)) * 1000),
    "png with a profile": lambda: parts.png_with(png_chunk(b"iCCP", b"a\0\0" + _deflated(500))),
    "png with an animation": lambda: parts.png_with(  # of two billion frames
        png_chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)),
        png_chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 65535, 65535, 0, 0, 1, 1, 0, 0)),
    ),
    "png with greedy exif": lambda: parts.png_with(
        png_chunk(b"eXIf", parts.tags_sharing_bytes(60_000, 10 * MEGABYTE))
    ),
    "jpeg with scattered exif": lambda: parts.jpeg_with(  # Joined one by one it takes minutes.
        parts.segment(0xE1, b"Exif\0\0" + bytes(900)) * 19_000
    ),
    "jpeg with greedy exif": lambda: parts.jpeg_with(
        parts.segment(0xE1, b"Exif\0\0" + parts.tags_sharing_bytes(5000, 65_000))
    ),
    "jpeg with fill bytes": lambda: parts.jpeg_with(b"\xff" * 19 * MEGABYTE),
    "jpeg with a huge restart interval": lambda: parts.jpeg_with(parts.segment(0xDD, b"\xff\xff")),
    "jpeg with a huge thumbnail": lambda: parts.jpeg_with(
        parts.segment(0xE1, exif(1, jpeg_claiming(65_500, 65_500)))
    ),
    "heic with burdens": heic_files.burdened,
    "heic that is configured twice": lambda: heic_of(
        heic_files.with_clap(coded(1, 64, units(b"\x42\x01more") + SLICE))
    ),
    "webp with many frames": lambda: parts.webp_animation(64, 48, 10_000),
    "webp with a profile": lambda: parts.webp_of(
        parts.webp_canvas(0x2C, 64, 48),
        parts.webp_chunk(b"ICCP", bytes(10 * MEGABYTE)),
        parts.SMALL_WEBP[12:],
        parts.webp_chunk(b"EXIF", parts.tags_sharing_bytes(60_000, 5 * MEGABYTE)),
    ),
    "gif with many frames": lambda: (
        parts.SMALL_GIF[:-1] + parts.SMALL_GIF[parts.GIF_FRAME : -1] * 5000 + b";"
    ),
    "tiff with private tags": lambda: parts.tags_before(parts.SMALL_TIFF),
    "tiff in a circle": lambda: tiff_of(
        tiff_tags() | dict.fromkeys((330, 34665, 34853), (4, 1, 8)), bytes(200), 8
    ),
}

HEAVY: dict[str, Callable[[int], bytes]] = {
    "deep interlaced png": lambda side: parts.png_of_zeros(side, side, 16, 6, interlaced=1),
    "one-bit png": lambda side: parts.png_of_zeros(side, side, 1, 3, b"PLTE" + bytes(6)),
    "png with a transparent colour": lambda side: parts.png_of_zeros(
        side, side, 8, 2, b"tRNS" + bytes(6)
    ),
    "progressive jpeg of many scans": lambda side: parts.jpeg_of_scans(20, side),
    "heic": heic_files.flat,
    "webp": lambda side: parts.flat(side, "WEBP", "RGBA", lossless=True, quality=0, method=0),
    "gif": lambda side: parts.flat(side, "GIF", "P"),
    "deep tiff": parts.tiff_deep,
    "bmp of runs": lambda side: parts.bmp_of(side, side, 1, b"\0\1"),
}
