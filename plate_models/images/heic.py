"""The structure of HEIC files (ISO/IEC 14496-12 and 23008-12): only the primary picture is kept.

Everything else gets a meaningless kind in place, and libheif ignores it: further pictures,
thumbnails, metadata (libheif would copy megabytes for each name), tracks. libheif has limits of its
own, and refuses bitstreams with a larger picture than the boxes say. This module refuses files that
make libheif repeat work, by oversized tiles, items that share bytes, or pictures of many slices.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from plate_models.images.outline import LARGE_TILE, MAX_SEGMENTS, Defect, NotRead, Outline, Reader

_MAX_META = 2**20  # bytes of the `meta` box; photos have some kilobytes
_MAX_TILES = 1000
# NAL units of a coded picture. Each slice may visit every pixel; cameras write one slice.
_MAX_UNITS = 16
_ALPHA = (b"urn:mpeg:hevc:2015:auxid:1\0", b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0")


@dataclass
class _Item:
    """A picture or metadata: kind, properties (kind, content), places and lengths of its bytes."""

    kind: bytes
    properties: list[tuple[bytes, bytes]] = field(default_factory=list)
    extents: list[tuple[int, int]] = field(default_factory=list)
    in_meta: bool = False

    def property(self, kind: bytes) -> Reader:
        """The content of the item's only property of a kind."""
        contents = [content for name, content in self.properties if name == kind]
        if len(contents) != 1:
            raise Defect(f"holds a picture with no {kind.decode()} property, or with several")
        return Reader(contents[0])

    def size_wh(self) -> tuple[int, int]:
        """The size in the file, before the picture is cropped and turned."""
        size = self.property(b"ispe")
        size.skip(4)
        return size.number(4), size.number(4)


def outline(data: bytes) -> Outline:
    """Keep the primary picture, its tiles and its transparency; mark the rest as free space.

    The size is that before the picture's own properties crop and turn it. EXIF is ignored.

    Raises:
        Defect: Truncated, contradictory, or made to keep a decoder busy.
        NotRead: A picture of another codec, or derived from others in a way that is not read.
    """
    end = 0
    with suppress(Defect):  # Phones append marks and videos that are no boxes.
        for _, _, box in _boxes(Reader(data)):
            end = box.end
    return _File(data[:end]).outline()


class _File:
    def __init__(self, data: bytes) -> None:
        self._data, self._core, self._room = data, bytearray(data), len(data)
        self._used: set[int] = set()
        self._items: dict[int, _Item] = {}
        # Of items, and of references from them: the item's number, and the place of the kind.
        self._kind_places: list[tuple[int, int]] = []
        self._references: dict[tuple[bytes, int], list[int]] = {}  # by kind and source

    def outline(self) -> Outline:
        meta = self._only(Reader(self._data), b"ftyp", b"meta", b"mdat")[b"meta"]
        if meta.end - meta.place > _MAX_META:
            raise Defect(f"describes its pictures in more than {_MAX_META} bytes")
        meta.skip(4)
        boxes = self._only(meta, b"hdlr", b"pitm", b"iinf", b"iref", b"iprp", b"iloc", b"idat")
        self._data_in_meta = boxes[b"idat"].rest()
        self._read_items(boxes[b"iinf"])
        self._read_references(boxes[b"iref"])
        self._read_properties(self._only(boxes[b"iprp"], b"ipco", b"ipma"))
        self._read_places(boxes[b"iloc"])
        primary = boxes[b"pitm"].number(4 if _version(boxes[b"pitm"]) else 2)
        size_wh = self._use(primary, tile=False)
        for (kind, source), targets in self._references.items():
            if kind != b"auxl" or primary not in targets:
                continue
            properties = self._items[source].properties if source in self._items else []
            alpha = any(k == b"auxC" and c.startswith(_ALPHA, 4) for k, c in properties)
            if alpha and self._use(source, tile=False) != size_wh:
                raise NotRead("HEIC files with a smaller transparency are not read.")
        for number, place in self._kind_places:
            if number not in self._used:
                self._core[place : place + 4] = b"skip"
        return Outline(*size_wh, bytes(self._core))

    def _only(self, content: Reader, *kinds: bytes) -> dict[bytes, Reader]:
        """The first box of each kind, empty if missing; other boxes become free space."""
        found: dict[bytes, Reader] = {}
        for kind, place, box in _boxes(content):
            if kind in kinds and (kind == b"mdat" or kind not in found):
                found[kind] = box
            else:
                self._core[place : place + 4] = b"free"
        return {kind: found.get(kind, Reader(b"")) for kind in kinds}

    def _read_items(self, box: Reader) -> None:
        box.skip(4 if _version(box) else 2)
        for kind, _, entry in _boxes(box):
            version = _version(entry)
            if kind == b"infe" and version >= 2:
                number = entry.number(2 if version == 2 else 4)
                entry.skip(2)
                if number in self._items:
                    raise Defect("gives two of its pictures the same number")
                self._kind_places.append((number, entry.place))
                self._items[number] = _Item(entry.take(4))

    def _read_references(self, box: Reader) -> None:
        size = 4 if box.end and _version(box) else 2
        for kind, place, entry in _boxes(box):
            source = entry.number(size)
            self._kind_places.append((source, place))
            targets = self._references.setdefault((kind, source), [])
            targets.extend(entry.number(size) for _ in range(entry.number(2)))

    def _read_properties(self, boxes: dict[bytes, Reader]) -> None:
        known = [(kind, content.rest()) for kind, _, content in _boxes(boxes[b"ipco"])]
        links = boxes[b"ipma"]
        head = links.number(4)
        size = 2 if head & 1 else 1
        for _ in range(links.number(4)):
            item = self._items.get(links.number(4 if head >> 24 else 2), _Item(b""))
            if item.properties:
                raise Defect("lists the properties of a picture twice")
            for _ in range(links.number(1)):
                index = links.number(size) % 2 ** (8 * size - 1)  # without the "essential" bit
                if 0 < index <= len(known):
                    item.properties.append(known[index - 1])

    def _read_places(self, box: Reader) -> None:
        version, sizes = _version(box), box.number(2)
        offset, length, base, index = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
        if version > 2 or length not in (4, 8):  # There could be billions of empty extents.
            raise Defect("does not say where its pictures are")
        for _ in range(box.number(4 if version == 2 else 2)):
            item = self._items.get(box.number(4 if version == 2 else 2), _Item(b""))
            method = box.number(2) & 15 if version else 0
            in_another_file, start = box.number(2), box.number(base)
            if item.extents or method > 1 or in_another_file:
                raise Defect("gives two places for a picture, or one in another file")
            for _ in range(box.number(2)):
                box.skip(index if version else 0)
                item.extents.append((start + box.number(offset), box.number(length)))
            item.in_meta = method == 1

    def _use(self, number: int, *, tile: bool) -> tuple[int, int]:
        """Keep an item and everything that it consists of; returns its size."""
        if number in self._used:
            raise Defect("uses a picture twice")
        item = self._items.get(number, _Item(b"none"))
        size_wh, content = item.size_wh(), self._content(item)
        if item.kind == b"hvc1":
            config = item.property(b"hvcC")
            config.skip(21)
            _check_units(content, (config.number(1) & 3) + 1)
        elif item.kind == b"grid" and not tile:
            self._use_tiles(number, content, size_wh)
        else:
            kind = item.kind.decode("ascii", "replace")
            raise NotRead(f"HEIC files of the kind {kind!r} are not read. Save it as a JPEG.")
        self._used.add(number)
        return size_wh

    def _content(self, item: _Item) -> Reader:
        """The bytes of an item. All items together must not have more bytes than the file."""
        source = self._data_in_meta if item.in_meta else self._data
        size = sum(length for _, length in item.extents)
        self._room -= size
        if self._room < 0:
            raise Defect("has pictures with more bytes than the file")
        content = b"".join(source[start : start + length] for start, length in item.extents)
        if not content or len(content) < size:
            raise Defect("ends within its picture")
        return Reader(content)

    def _use_tiles(self, number: int, grid: Reader, size_wh: tuple[int, int]) -> None:
        size = 4 if grid.number(2) & 1 else 2
        rows, columns = grid.number(1) + 1, grid.number(1) + 1
        if (grid.number(size), grid.number(size)) != size_wh:
            raise Defect("gives two sizes for its picture")
        tiles = self._references.get((b"dimg", number), [])
        if not len(tiles) == len(set(tiles)) == rows * columns <= _MAX_TILES:
            raise Defect(f"has a different number of tiles than it says, or more than {_MAX_TILES}")
        for tile in tiles:
            sides = self._use(tile, tile=True)
            for side, count, whole in zip(sides, (columns, rows), size_wh, strict=True):
                if side > max(2 * whole, LARGE_TILE) or whole <= (count - 1) * side:
                    raise Defect("has tiles that are larger than its picture")


def _boxes(content: Reader) -> Iterator[tuple[bytes, int, Reader]]:
    """The kind, the place of the kind, and the content of each box."""
    for _ in range(MAX_SEGMENTS):
        if content.place >= content.end:
            return
        start, size, place = content.place, content.number(4), content.place
        kind = content.take(4)
        if size == 1:
            size = content.number(8)
        size = size or content.end - start  # 0 means to the end
        if start + size < content.place:
            raise Defect("has a box that is shorter than its header")
        yield kind, place, content.part(start + size - content.place)
    raise Defect(f"has more than {MAX_SEGMENTS} boxes")


def _version(box: Reader) -> int:
    """Read a box's version, and skip its flags."""
    return box.number(4) >> 24


def _check_units(content: Reader, length_size: int) -> None:
    for _ in range(_MAX_UNITS):
        content.skip(content.number(length_size))
        if content.place == content.end:
            return
    raise Defect(f"holds a picture of more than {_MAX_UNITS} units")
