"""The structure of GIF files (GIF89a specification)."""

from plate_models.images.outline import MAX_SEGMENTS, Defect, Outline

_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_GRAPHIC_CONTROL = 0xF9
# Encoders fill their blocks of 255 bytes; a 20 MB file has 80,000 of them.
MAX_BLOCKS = 200_000


class _Walk:
    """A place in the file, and how many data blocks were passed."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position, self._blocks = data, position, 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        taken = self.data[self.position : self.position + count]
        self.position += count
        if len(taken) < count:
            raise Defect("ends before its first picture does")
        return taken

    def pass_blocks(self) -> None:
        """Go to the end of a chain of data blocks (15)."""
        while size := self.take(1)[0]:
            self.position += size
            self._blocks += 1
            if self._blocks > MAX_BLOCKS:
                raise Defect(f"has more than {MAX_BLOCKS} data blocks")


def outline(data: bytes) -> Outline:
    """Walk the blocks to the end of the first picture; what follows is no concern.

    Args:
        data: The file, from its signature.

    Returns:
        Its outline, without comments and further frames. The size is that of the screen,
        or of the first picture where it reaches beyond.

    Raises:
        Defect: Cut off, or made to keep a decoder busy.
    """
    walk = _Walk(data, 6)
    screen = walk.take(7)
    walk.take(_table_size(screen[4]))
    head, control = data[: walk.position], b""
    for _ in range(MAX_SEGMENTS):
        start, kind = walk.position, walk.take(1)[0]
        if kind == _EXTENSION:
            label = walk.take(1)[0]
            walk.pass_blocks()
            if label == _GRAPHIC_CONTROL:  # Tells which colour is transparent.
                control = data[start : walk.position]
        elif kind == _IMAGE:
            place = walk.take(9)
            walk.take(_table_size(place[8]) + 1)  # and the code size of LZW
            walk.pass_blocks()
            core = head + control + data[start : walk.position] + bytes([_TRAILER])
            left, top, width, height = _shorts(place[:8])
            reach = left + width, top + height
            sides = [max(pair) for pair in zip(_shorts(screen[:4]), reach, strict=True)]
            return Outline(sides[0], sides[1], core)
        elif kind == _TRAILER:
            raise Defect("holds no picture")
    raise Defect(f"has more than {MAX_SEGMENTS} blocks before its first picture")


def _shorts(data: bytes) -> list[int]:
    return [int.from_bytes(data[i : i + 2], "little") for i in range(0, len(data), 2)]


def _table_size(flags: int) -> int:
    """Bytes of the colour table that the flags announce (18)."""
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0
