"""HEIC files for tests: files of an encoder, and containers, valid or not, around its pictures.

No library of this project encodes HEIC, so the files are stored in ``heic/``. They show the pattern
of `photo_files` in 64x48 pixels, encoded by pillow-heif 1.1 (x265) with ``quality=95, chroma=444``.
`transparent` is lossless, its right half has alpha 128. The EXIF of the `orientation` files repeats
their ``irot`` and ``imir``. `tile` has one colour and 512x512 pixels; `larger` is the same, but its
bitstream claims 16000x16000.
"""

import struct
from pathlib import Path

FILES = {path.stem: path.read_bytes() for path in (Path(__file__).parent / "heic").glob("*.heic")}
PLAIN = FILES["plain"]


def box(kind, *parts, version=None, flags=0):
    head = b"" if version is None else struct.pack(">I", version << 24 | flags)
    body = head + b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def box_in(data, kind):
    """The first box of a kind, at any depth."""
    start = data.index(kind) - 4
    return data[start : start + int.from_bytes(data[start : start + 4], "big")]


CONFIG, SLICE = box_in(PLAIN, b"hvcC"), box_in(PLAIN, b"mdat")[8:]
TILE = box_in(FILES["tile"], b"mdat")[8:], box_in(FILES["tile"], b"hvcC")


def ispe(width, height):
    return box(b"ispe", struct.pack(">II", width, height), version=0)


def coded(number, side=64, data=SLICE, config=CONFIG, *properties):
    return number, b"hvc1", [ispe(side, side), config, *properties], data


def heic_of(*items, references=(), extents=1, more=b""):
    """A container of items (number, kind, properties, data); `more` is added to its meta box."""
    head = box(b"ftyp", b"heic", bytes(4), b"mif1heic")
    known = list(dict.fromkeys(one for _, _, properties, _ in items for one in properties))
    place, places, entries, links = len(head) + 8, b"", b"", b""
    for number, kind, properties, data in items:
        places += struct.pack(">HHH", number, 0, extents)
        places += struct.pack(">II", place, len(data)) * extents
        place += len(data)
        entries += box(b"infe", struct.pack(">HH4sx", number, 0, kind), version=2)
        indices = [0x8000 | 1 + known.index(one) for one in properties]
        links += struct.pack(f">HB{len(indices)}H", number, len(indices), *indices)
    count = struct.pack(">H", len(items))
    listed = [
        box(kind, struct.pack(f">HH{len(to)}H", start, len(to), *to))
        for kind, start, to in references
    ]
    meta = box(
        b"meta",
        box(b"hdlr", struct.pack(">4x4s13x", b"pict"), version=0),
        box(b"pitm", struct.pack(">H", 1), version=0),
        box(b"iinf", count, entries, version=0),
        box(b"iref", *listed, version=0),
        box(
            b"iprp",
            box(b"ipco", *known),
            box(b"ipma", struct.pack(">I", len(items)), links, version=0, flags=1),
        ),
        box(b"iloc", b"\x44\x00", count, places, version=0),
        more,
        version=0,
    )
    return head + box(b"mdat", *(data for _, _, _, data in items)) + meta


def grid_of(rows, columns, width, height, *tile):
    """A picture of equal tiles; `tile` are the arguments of `coded` after the number."""
    layout = struct.pack(">BBBBII", 0, 1, rows - 1, columns - 1, width, height)
    tiles = [coded(number, *tile) for number in range(2, 2 + rows * columns)]
    grid = (1, b"grid", [ispe(width, height)], layout)
    return heic_of(grid, *tiles, references=((b"dimg", 1, [tile[0] for tile in tiles]),))


def flat(side):
    """A large picture in a small file: one tile, many times."""
    count = -(-side // 512)
    return grid_of(count, count, side, side, 512, *TILE)


def shared_tile():
    """A picture whose colours and transparency are the same tile."""
    layout, alpha = bytes(4) + b"\0\x40\0\x40", b"urn:mpeg:hevc:2015:auxid:1\0"
    sizes = [ispe(64, 64)]
    return heic_of(
        (1, b"grid", sizes, layout),
        (2, b"grid", [*sizes, box(b"auxC", alpha, version=0)], layout),
        coded(3),
        references=((b"dimg", 1, [3]), (b"dimg", 2, [3]), (b"auxl", 2, [1])),
    )


def named():
    """The plain picture, an item with 255 times the same large name, and 10,000 references."""
    name = box(b"auxC", bytes(600_000))
    references = tuple((struct.pack(">I", 0x61000000 + each), 2, []) for each in range(10_000))
    plain = coded(1, 64, SLICE, CONFIG, box_in(PLAIN, b"clap"))
    return heic_of(plain, (2, b"hvc1", [name] * 255, b"x"), references=references)


def burdened():
    """The plain picture with a profile, a huge thumbnail, and texts that share megabytes."""
    clap = box_in(PLAIN, b"clap")  # crops to the size in the picture's ispe
    profile = box(b"colr", b"prof", bytes(200_000))
    texts = [(text, b"mime", [], bytes(4099)) for text in range(3, 303)]
    file = heic_of(
        coded(1, 64, SLICE, CONFIG, clap, profile),
        (2, b"hvc1", [ispe(60_000, 60_000), CONFIG], SLICE),
        *texts,
        (303, b"mime", [], bytes(8_000_000)),
        references=((b"thmb", 2, [1]), *((b"cdsc", text[0], [1]) for text in texts)),
    )
    return file.replace(struct.pack(">I", 4099), struct.pack(">I", 8_000_000))
