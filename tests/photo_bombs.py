"""Photo files that are small to send and dear to open, all made here.

REFUSED must be refused by its header. CHEAP holds a small picture and a large burden that
is none of the picture's: it is read at the price of the small picture. HEAVY is a large
picture of any side, of the dearest kind, made of next to nothing. Each is made only when
it is asked for.
"""

from collections.abc import Callable

import heic_files
from heic_files import SLICE, box, coded, grid_of, heic_of, ispe, sequence_parameters, units
from photo_bomb_parts import (
    MEGABYTE,
    SMALL_GIF,
    SMALL_TIFF,
    SMALL_WEBP,
    bmp_of,
    flat,
    gif_frame,
    gif_frames,
    gif_with,
    jpeg_frame,
    jpeg_greedy_exif,
    jpeg_of_scans,
    jpeg_scattered_exif,
    jpeg_two_frames,
    jpeg_with,
    png_animation,
    png_greedy_exif,
    png_of_zeros,
    png_profile,
    png_texts,
    png_two_headers,
    segment,
    tags_before,
    tags_sharing_bytes,
    tiff_chain,
    tiff_deep,
    tiff_of,
    tiff_of_scans,
    tiff_strips,
    tiff_tags,
    tiff_tile,
    webp_animation,
    webp_canvas,
    webp_chunk,
    webp_of,
)
from photo_files import exif, jpeg_claiming, png_claiming

Made = Callable[[], bytes]

REFUSED: dict[str, tuple[Made, str]] = {
    "png of huge claims": (lambda: png_claiming(2**31 - 1, 2**31 - 1), "too-many-pixels"),
    "png of two headers": (png_two_headers, "broken-image"),
    "jpeg of huge claims": (lambda: jpeg_claiming(65_500, 65_500), "too-many-pixels"),
    "jpeg of two frames": (jpeg_two_frames, "broken-image"),
    "jpeg of 12 bits": (lambda: jpeg_frame(0xC1, 12), "unsupported-type"),
    "lossless jpeg": (lambda: jpeg_frame(0xC3), "unsupported-type"),
    "hierarchical jpeg": (lambda: jpeg_frame(0xC5), "unsupported-type"),
    "jpeg of no height": (lambda: jpeg_claiming(64, 0), "unsupported-type"),
    "jpeg of many scans": (lambda: jpeg_of_scans(21, 64), "broken-image"),
    "webp of a huge canvas": (
        lambda: webp_of(webp_canvas(0, 2**24, 2**24), SMALL_WEBP[12:]),
        "too-many-pixels",
    ),
    "webp animation on a huge canvas": (
        lambda: webp_animation(16_000, 16_000, 2),
        "too-many-pixels",
    ),
    "webp of a frame larger than its canvas": (
        lambda: webp_of(webp_canvas(0, 8, 8), SMALL_WEBP[12:]),
        "broken-image",
    ),
    "webp of too many chunks": (
        lambda: webp_of(webp_chunk(b"JUNK", b"") * 21_000, SMALL_WEBP[12:]),
        "broken-image",
    ),
    "gif of a huge screen": (
        lambda: SMALL_GIF[:6] + b"\xff\xff\xff\xff" + SMALL_GIF[10:],
        "too-many-pixels",
    ),
    "gif of a huge frame": (lambda: gif_frame(0, 0, 65_535, 65_535), "too-many-pixels"),
    "gif of a frame far away": (lambda: gif_frame(65_000, 65_000, 64, 48), "too-many-pixels"),
    "gif of a million comments": (
        lambda: gif_with(b"!\xfe\x01a\0" * 3_000_000),
        "broken-image",
    ),
    "gif of tiny blocks": (
        lambda: gif_with(b"!\xfe" + b"\x01a" * 5_000_000 + b"\0"),
        "broken-image",
    ),
    "tiff of tags that share bytes": (
        lambda: tiff_of(
            tiff_tags() | dict.fromkeys((320, 347), (7, 19 * MEGABYTE, 8)), bytes(19 * MEGABYTE)
        ),
        "broken-image",
    ),
    "tiff of four million strips": (tiff_strips, "broken-image"),
    "tiff of a huge tile": (tiff_tile, "broken-image"),
    "tiff of many scans": (lambda: tiff_of_scans(21), "broken-image"),
    "tiff of scans that nobody counts": (lambda: tiff_of_scans(21, size=0), "broken-image"),
    "tiff of strips beyond the file": (lambda: tiff_of_scans(18, size=MEGABYTE), "broken-image"),
    "tiff of xz": (lambda: tiff_of(tiff_tags(compression=34925)), "unsupported-type"),
    "tiff of zstd": (lambda: tiff_of(tiff_tags(compression=50000)), "unsupported-type"),
    "tiff of fax": (lambda: tiff_of(tiff_tags(compression=4)), "unsupported-type"),
    "tiff of many samples": (lambda: tiff_of(tiff_tags(samples=65_535)), "unsupported-type"),
    "tiff of huge claims": (lambda: tiff_of(tiff_tags() | {256: (4, 1, 2**31)}), "too-many-pixels"),
    "tiff without a directory": (lambda: b"II*\0" + bytes(100), "broken-image"),
    "heic of huge claims": (
        lambda: heic_of((1, b"hvc1", [ispe(65_000, 65_000), heic_files.CONFIG], SLICE)),
        "too-many-pixels",
    ),
    "heic of a larger picture than it says": (
        lambda: heic_of(coded(1, 64, SLICE, sequence_parameters(60_000, 60_000))),
        "broken-image",
    ),
    "heic of a larger tile than it says": (
        lambda: grid_of(1, 2, 100, 64, 64, SLICE, sequence_parameters(16, 60_000)),
        "broken-image",
    ),
    "heic of large tiles": (lambda: grid_of(1, 1, 64, 48, 2000), "broken-image"),
    "heic of more tiles than it needs": (lambda: grid_of(9, 9, 64, 48), "broken-image"),
    "heic of too many tiles": (lambda: grid_of(33, 33, 64 * 33, 64 * 33), "broken-image"),
    "heic of many pictures in one": (
        lambda: heic_of(coded(1, 64, SLICE * 1000)),
        "broken-image",
    ),
    "heic of many slices": (
        lambda: heic_of(coded(1, 64, SLICE + units(b"\x26\x01\0picture") * 100)),
        "broken-image",
    ),
    "heic of pictures that change": (
        lambda: heic_of(coded(1, 64, units(b"\x02\x01\x80picture"))),
        "broken-image",
    ),
    "heic that is configured twice": (
        lambda: heic_of(coded(1, 64, units(b"\x42\x01more") + SLICE)),
        "unsupported-type",
    ),
    "heic without a primary picture": (lambda: heic_of(coded(1), primary=2), "broken-image"),
    "heic that describes sound": (lambda: heic_of(coded(1), handler=b"soun"), "broken-image"),
    "heic of another codec": (
        lambda: heic_of((1, b"av01", [ispe(64, 64)], SLICE)),
        "unsupported-type",
    ),
    "heic of a grid of grids": (
        lambda: heic_of(
            (1, b"grid", [ispe(64, 64)], b"\0\0\0\0\0\x40\0\x40"),
            (2, b"grid", [ispe(64, 64)], b"\0\0\0\0\0\x40\0\x40"),
            references=((b"dimg", 1, [2]),),
        ),
        "unsupported-type",
    ),
    "heic that needs what is unknown": (
        lambda: heic_of((1, b"hvc1", [ispe(64, 64), heic_files.CONFIG, box(b"flip")], SLICE)),
        "unsupported-type",
    ),
    "heic of extents that share bytes": (
        lambda: heic_of(coded(1, 64, bytes(MEGABYTE)), extents=60_000),
        "broken-image",
    ),
    "heic of a million boxes": (
        lambda: heic_of(coded(1), more=box(b"free") * 1_000_000),
        "broken-image",
    ),
    "heic of a hundred thousand boxes": (
        lambda: heic_of(coded(1), more=box(b"free") * 100_000),
        "broken-image",
    ),
    "heic of a box beyond the file": (
        lambda: heic_of()[:24] + b"\xff\xff\xff\xffmeta" + heic_of(coded(1)),
        "broken-image",
    ),
    "heic of a box beyond all files": (
        lambda: heic_of()[:24] + b"\0\0\0\1meta" + b"\xff" * 8 + heic_of(coded(1)),
        "broken-image",
    ),
    "heic of a box that goes back": (
        lambda: heic_of()[:24] + b"\0\0\0\4free" + heic_of(coded(1)),
        "broken-image",
    ),
    "bmp of huge claims": (lambda: bmp_of(2**31 - 1, -(2**31), 0, b""), "too-many-pixels"),
    "bmp of a huge header": (lambda: bmp_of(8, 8, 0, b"", 2**31), "broken-image"),
}

CHEAP: dict[str, Made] = {
    "png with texts": png_texts,
    "png with a profile": png_profile,
    "png with an animation": png_animation,
    "png with greedy exif": png_greedy_exif,
    "jpeg with scattered exif": jpeg_scattered_exif,
    "jpeg with greedy exif": jpeg_greedy_exif,
    "jpeg with fill bytes": lambda: jpeg_with(b"\xff" * 19 * MEGABYTE),
    "jpeg with a huge restart interval": lambda: jpeg_with(segment(0xDD, b"\xff\xff")),
    "jpeg with a huge thumbnail": lambda: jpeg_with(
        segment(0xE1, exif(1, jpeg_claiming(65_500, 65_500)))
    ),
    "webp with many frames": lambda: webp_animation(64, 48, 10_000),
    "webp with a profile": lambda: webp_of(
        webp_canvas(0x2C, 64, 48),
        webp_chunk(b"ICCP", bytes(10 * MEGABYTE)),
        SMALL_WEBP[12:],
        webp_chunk(b"EXIF", tags_sharing_bytes(60_000, 5 * MEGABYTE)),
    ),
    "heic with burdens": heic_files.burdened,
    "gif with many frames": gif_frames,
    "tiff with private tags": lambda: tags_before(SMALL_TIFF),
    "tiff in a circle": tiff_chain,
}


HEAVY: dict[str, Callable[[int], bytes]] = {
    "deep interlaced png": lambda side: png_of_zeros(side, side, 16, 6, interlaced=1),
    "one-bit png": lambda side: png_of_zeros(side, side, 1, 3, b"PLTE" + bytes(6)),
    "png with a transparent colour": lambda side: png_of_zeros(
        side, side, 8, 2, b"tRNS" + bytes(6)
    ),
    "progressive jpeg of many scans": lambda side: jpeg_of_scans(20, side),
    "webp": lambda side: flat(side, "WEBP", "RGBA", lossless=True, quality=0, method=0),
    "heic": heic_files.flat,
    "gif": lambda side: flat(side, "GIF", "P"),
    "deep tiff": tiff_deep,
    "bmp of runs": lambda side: bmp_of(side, side, 1, b"\0\1"),
}
