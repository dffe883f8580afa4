"""The structure of HEIC files (ISO/IEC 14496-12 and 23008-12): the primary picture, and no more.

What decoders get is written anew, of the boxes that the picture needs: a file's own may name a
million items, compressed metadata, and other pictures. A bitstream may hold a larger picture
than the boxes say, or a thousand of them, so its headers are read, too (ITU-T H.265, 7.3).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from plate_models.images.outline import MAX_SEGMENTS, Defect, NotRead, Outline

_MAX_META = 2**20  # That of a photo has some kilobytes.
_MAX_TILES = 1000  # libheif reads no more.
_MAX_SLICES = 8  # Each may visit every pixel. Cameras write one.
# Tiles are padded at the picture's edges. Those of a small picture may be larger than it.
_LARGE_TILE = 1024
# Coded pictures are padded to whole blocks.
_LARGEST_BLOCK = 64
# Size, the decoder's configuration, depth, colours, alpha; what cuts and turns the picture.
_PROPERTIES = frozenset({b"ispe", b"hvcC", b"pixi", b"colr", b"auxC", b"clap", b"irot", b"imir"})
_ALPHA = (b"urn:mpeg:hevc:2015:auxid:1\0", b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0")
# Kinds of NAL units (H.265, table 7-1): slices of pictures that need no other, and their sizes.
_INTRA_SLICES, _SPS, _PARAMETER_SETS = range(16, 22), 33, (32, 33, 34)


class _Cursor:
    """A place in some bytes; numbers are big-endian."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, count: int) -> bytes:
        taken = self.data[self.place : self.place + count]
        self.place += count
        if len(taken) < count:
            raise Defect("ends within a box")
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def version(self) -> int:
        """That of a box; flags are passed."""
        return self.number(4) >> 24

    def boxes(self) -> Iterator[tuple[bytes, "_Cursor"]]:
        """Kind and content of each box from here on, media aside."""
        for _ in range(MAX_SEGMENTS):
            if self.place >= len(self.data):
                return
            size, kind, header = self.number(4), self.take(4), 8
            if size == 1:
                size, header = self.number(8), 16
            elif size == 0:  # to the end
                size = len(self.data) - self.place + header
            if size < header:
                raise Defect("has a box that is shorter than its header")
            if kind == b"mdat":
                self.place += size - header
            else:
                yield kind, _Cursor(self.take(size - header))
        raise Defect(f"has more than {MAX_SEGMENTS} boxes")


@dataclass
class _Item:
    """A picture: its kind, its properties (kind, content), its bytes and where they are."""

    kind: bytes
    properties: list[tuple[bytes, bytes]] = field(default_factory=list)
    extents: list[tuple[int, int]] = field(default_factory=list)
    in_meta: bool = False
    data: bytes = b""

    def property(self, kind: bytes) -> _Cursor:
        """The content of a property; empty if the item has none of this kind."""
        return _Cursor(next((content for name, content in self.properties if name == kind), b""))

    def size_wh(self) -> tuple[int, int]:
        """The size that the file says, before the picture is cut and turned."""
        size = self.property(b"ispe")
        size.version()
        return size.number(4), size.number(4)


def outline(data: bytes) -> Outline:
    """Find the primary picture; its size is that of the upright photo.

    The core holds it, its tiles and its transparency. Further pictures, thumbnails, depths,
    profiles and EXIF are left out: a HEIC is turned by its own properties alone.

    Raises:
        Defect: Cut off, contradictory, or made to keep a decoder busy.
        NotRead: A picture of another codec, or made of others in a way that is not read.
    """
    file = _File(data)
    picture = file.items.get(file.primary)
    if picture is None:
        raise Defect("holds no primary picture")
    file.use_picture(file.primary)
    for kind, auxiliary, targets in file.references:
        other = file.items.get(auxiliary, _Item(b""))
        is_alpha = other.property(b"auxC").data[4:].startswith(_ALPHA)
        if kind == b"auxl" and file.primary in targets and is_alpha:
            if other.size_wh() != picture.size_wh():
                raise NotRead("HEIC files with a smaller transparency are not read.")
            file.use_picture(auxiliary)
    return Outline(*_upright_size(picture), file.core())


class _File:
    """What the boxes of a file say of its pictures, and those that are used."""

    def __init__(self, data: bytes) -> None:
        self.items: dict[int, _Item] = {}
        # Kind, from, to.
        self.references: list[tuple[bytes, int, list[int]]] = []
        self.primary = 0
        self._used: dict[int, _Item] = {}
        self._data, self._room = data, len(data)
        meta = next((box for kind, box in _Cursor(data).boxes() if kind == b"meta"), None)
        if meta is None or len(meta.data) > _MAX_META:
            raise Defect(f"describes no picture, or in more than {_MAX_META} bytes")
        meta.version()
        boxes = dict(meta.boxes())
        if boxes.get(b"hdlr", meta).data[8:12] != b"pict":
            raise Defect("describes no pictures")
        self._data_in_meta = boxes[b"idat"].data if b"idat" in boxes else b""
        for kind, read in (
            (b"pitm", self._read_primary),
            (b"iinf", self._read_items),
            (b"iref", self._read_references),
            (b"iprp", self._read_properties),
            (b"iloc", self._read_places),
        ):
            if kind in boxes:
                read(boxes[kind])

    def _read_primary(self, box: _Cursor) -> None:
        self.primary = box.number(4 if box.version() else 2)

    def _read_items(self, box: _Cursor) -> None:
        box.take(4 if box.version() else 2)
        for kind, entry in box.boxes():
            version = entry.version()
            if kind == b"infe" and version in (2, 3):
                number = entry.number(2 if version == 2 else 4)
                entry.take(2)
                self.items[number] = _Item(entry.take(4))

    def _read_references(self, box: _Cursor) -> None:
        size = 4 if box.version() else 2
        for kind, entry in box.boxes():
            start, count = entry.number(size), entry.number(2)
            self.references.append((kind, start, [entry.number(size) for _ in range(count)]))

    def _read_properties(self, box: _Cursor) -> None:
        known: list[tuple[bytes, bytes]] = []
        for kind, content in box.boxes():
            if kind == b"ipco":
                known = [(name, one.data) for name, one in content.boxes()]
            elif kind == b"ipma":
                self._read_links(content, known)

    def _read_links(self, box: _Cursor, known: list[tuple[bytes, bytes]]) -> None:
        head = box.number(4)
        size = 2 if head & 1 else 1
        for _ in range(box.number(4)):
            item = self.items.get(box.number(4 if head >> 24 else 2), _Item(b""))
            for _ in range(box.number(1)):
                essential, index = divmod(box.number(size), 2 ** (8 * size - 1))
                if not 0 < index <= len(known):
                    continue
                kind, content = known[index - 1]
                if kind not in _PROPERTIES:
                    item.kind = b"with " + kind if essential else item.kind
                elif kind != b"colr" or content.startswith(b"nclx"):  # Profiles are not applied.
                    item.properties.append((kind, content))

    def _read_places(self, box: _Cursor) -> None:
        version, sizes = box.version(), box.number(2)
        offset, length, base, index = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
        if version > 2 or length not in (4, 8):  # Extents of no bytes could be billions.
            raise Defect("does not tell where its pictures are")
        for _ in range(box.number(4 if version == 2 else 2)):
            item = self.items.get(box.number(4 if version == 2 else 2), _Item(b""))
            method = box.number(2) & 15 if version else 0
            in_another_file, start = box.number(2), box.number(base)
            for _ in range(box.number(2)):
                box.take(index if version else 0)
                item.extents.append((start + box.number(offset), box.number(length)))
            item.in_meta = method == 1
            if method > 1 or in_another_file:
                item.extents.clear()

    def use_picture(self, number: int) -> None:
        """Take an item with all that it is made of into the core."""
        grid = self.items[number]
        if grid.kind != b"grid":
            self._use_coded(number)
            return
        grid.data = self._bytes_of(grid)
        head = _Cursor(grid.data)
        size = 4 if head.number(2) & 1 else 2
        rows, columns = head.number(1) + 1, head.number(1) + 1
        width, height = head.number(size), head.number(size)
        if (width, height) != grid.size_wh():
            raise Defect("says two sizes of its picture")
        self._used[number] = grid
        tiles = [to for kind, start, to in self.references if (kind, start) == (b"dimg", number)]
        if len(tiles) != 1 or len(set(tiles[0])) != rows * columns or rows * columns > _MAX_TILES:
            raise Defect(f"has other tiles than it says, or more than {_MAX_TILES}")
        for tile in tiles[0]:
            tile_width, tile_height = self._use_coded(tile)
            for side, count, whole in ((tile_width, columns, width), (tile_height, rows, height)):
                if side > max(2 * whole, _LARGE_TILE) or (
                    count > 1 and (count - 1) * side >= whole
                ):
                    raise Defect("has tiles that are larger than its picture")

    def _use_coded(self, number: int) -> tuple[int, int]:
        item = self.items.get(number, _Item(b"none"))
        if item.kind != b"hvc1":
            kind = item.kind.decode("ascii", "replace")
            raise NotRead(f"HEIC files of the kind {kind!r} are not read. Save it as a JPEG.")
        width, height = item.size_wh()
        config = item.property(b"hvcC")
        config.take(21)
        length_size = (config.number(1) & 3) + 1
        for _ in range(config.number(1)):
            config.take(1)
            for _ in range(config.number(2)):
                unit = config.take(config.number(2))
                coded = _coded_size(unit) if _kind_of(unit) == _SPS else (0, 0)
                if max(coded[0] - width, coded[1] - height) > _LARGEST_BLOCK:
                    raise Defect("holds a larger picture than it says")
        item.data = _slices(_Cursor(self._bytes_of(item)), length_size)
        self._used[number] = item
        return width, height

    def _bytes_of(self, item: _Item) -> bytes:
        """The content of an item. All together hold no more than the file."""
        source = self._data_in_meta if item.in_meta else self._data
        size = sum(length for _, length in item.extents)
        self._room -= size
        if self._room < 0:
            raise Defect("says of its pictures that they hold more than the file")
        content = b"".join(source[start : start + length] for start, length in item.extents)
        if not content or len(content) < size:
            raise Defect("ends within its picture")
        return content

    def core(self) -> bytes:
        """A file of the used items alone."""
        head = _box(b"ftyp", None, b"heic", bytes(4), b"mif1heic")
        content = b"".join(item.data for item in self._used.values())
        properties = list(dict.fromkeys(p for item in self._used.values() for p in item.properties))
        entries, links, places, place = [], [], [], len(head) + 8
        for number, item in self._used.items():
            entry = struct.pack(">IH4sx", number, 0, item.kind)
            entries.append(_box(b"infe", 3, entry, flags=int(number != self.primary)))  # hidden
            own = [1 + properties.index(one) | 0x8000 for one in item.properties]
            links.append(struct.pack(f">IB{len(own)}H", number, len(own), *own))
            places.append(struct.pack(">IHHHII", number, 0, 0, 1, place, len(item.data)))
            place += len(item.data)
        references = []
        for kind, start, to in self.references:
            to = [number for number in to if number in self._used]
            if kind in (b"dimg", b"auxl") and start in self._used and to:
                links_of = struct.pack(f">IH{len(to)}I", start, len(to), *to)
                references.append(_box(kind, None, links_of))
        count = struct.pack(">I", len(self._used))
        known = _box(b"ipco", None, *(_box(kind, None, content) for kind, content in properties))
        meta = [
            _box(b"hdlr", 0, struct.pack(">4x4s13x", b"pict")),
            _box(b"pitm", 1, struct.pack(">I", self.primary)),
            _box(b"iinf", 1, count, *entries),
            *([_box(b"iref", 1, *references)] if references else []),
            _box(b"iprp", None, known, _box(b"ipma", 1, count, *links, flags=1)),
            _box(b"iloc", 2, b"\x44\0", count, *places),
        ]
        return head + _box(b"mdat", None, content) + _box(b"meta", 0, *meta)


def _box(kind: bytes, version: int | None, *parts: bytes, flags: int = 0) -> bytes:
    """A box; a full one, with flags, if it has a version."""
    head = b"" if version is None else struct.pack(">I", version << 24 | flags)
    body = b"".join([head, *parts])
    return struct.pack(">I4s", 8 + len(body), kind) + body


def _upright_size(item: _Item) -> tuple[int, int]:
    """The picture's size after its properties cut and turned it, in their order."""
    width, height = item.size_wh()
    for kind, content in item.properties:
        if kind == b"irot" and content[-1:] in (b"\1", b"\3"):
            width, height = height, width
        elif kind == b"clap":
            wide, wide_by, high, high_by = struct.unpack_from(">IIII", content.ljust(32, b"\0"))
            if wide_by * high_by == 0 or wide % wide_by or high % high_by:
                raise Defect("is cut within its pixels")
            width, height = min(width, wide // wide_by), min(height, high // high_by)
    return width, height


def _kind_of(unit: bytes) -> int:
    """The kind of a NAL unit (7.4.2.2); that of an empty one is none."""
    return unit[0] >> 1 & 63 if unit else 64


def _slices(data: _Cursor, length_size: int) -> bytes:
    """The slices of one picture, without messages and marks between them."""
    kept, pictures = [], 0
    for _ in range(MAX_SEGMENTS):
        if data.place == len(data.data):
            break
        unit = data.take(data.number(length_size))
        kind = _kind_of(unit)
        if kind in _PARAMETER_SETS:
            raise NotRead("HEIC files that configure their decoder twice are not read.")
        if kind in _INTRA_SLICES and len(unit) > 2:
            pictures += unit[2] >> 7  # first_slice_segment_in_pic_flag
            kept.append(len(unit).to_bytes(length_size, "big") + unit)
        elif kind < 32:
            raise Defect("holds a picture that depends on others")
    if pictures != 1 or len(kept) > _MAX_SLICES:
        raise Defect(f"holds no single picture of at most {_MAX_SLICES} slices")
    return b"".join(kept)


def _coded_size(unit: bytes) -> tuple[int, int]:
    """Width and height of a sequence parameter set (7.3.2.2), as the decoder allocates them."""
    bits = "".join(f"{byte:08b}" for byte in unit.replace(b"\0\0\3", b"\0\0")[2:160])
    layers = int(bits[4:7] or "0", 2)
    place = 8 + 96  # the general profile and level
    if layers:
        present = bits[place : place + 16]
        place += 16 + 88 * present[: 2 * layers : 2].count("1")
        place += 8 * present[1 : 2 * layers : 2].count("1")

    def number() -> int:  # ue(v), 9.2
        nonlocal place
        zeros = bits.find("1", place) - place
        start, place = place + zeros, place + 2 * zeros + 1
        if not 0 <= zeros <= 32 or place > len(bits):
            raise Defect("ends within its decoder's configuration")
        return int(bits[start:place], 2) - 1

    number()  # the set's own number
    if number() == 3:  # colours that are not subsampled
        place += 1
    return number(), number()
