"""The structure of JPEG files (ITU-T T.81, annex B)."""

import io
import re
from dataclasses import dataclass, field

import numpy as np
from PIL.JpegImagePlugin import JpegImageFile

from plate_models.images.outline import MAX_SCANS, MAX_SEGMENTS, Defect, NotRead, Outline
from plate_models.images.tiff import orientation_of

# A marker inside entropy-coded data: 0xFF followed neither by a stuffed zero, nor by a
# restart marker, nor by another fill byte (ITU-T T.81, B.1.1.2).
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_SOI, _EOI, _SOS, _TEM = 0xD8, 0xD9, 0xDA, 0x01
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Baseline, extended and progressive, with Huffman or arithmetic coding.
_FRAMES_READ = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
# Tables (Huffman, arithmetic, quantization) and the restart interval.
_TABLES = frozenset({0xC4, 0xCC, 0xDB, 0xDD})
# Segments of JFIF and Adobe, which give the colour space.
_COLOURS = {0xE0: b"JFIF\0", 0xEE: b"Adobe"}
_APP1, _EXIF = 0xE1, b"Exif\0\0"
_END = b"\xff\xd9"
_COEFFICIENTS = frozenset(range(64))
_LONGEST_SCAN_HEADER = 16  # bytes, with the marker: for four components (B.2.3)


@dataclass
class _Found:
    """The state of a walk through the segments."""

    pieces: list[bytes | memoryview] = field(default_factory=lambda: [b"\xff\xd8"])
    size_wh: tuple[int, int] | None = None
    scans: int = 0
    exif: bytes | None = None
    colours: set[int] = field(default_factory=set)
    # By component, the coefficients that the scans so far give to their last bit.
    coefficients: dict[int, set[int]] = field(default_factory=dict)


def outline(data: bytes) -> Outline:
    """Walk the segments to the end-of-image marker; bytes behind it are ignored.

    Segments are skipped by their length, so that the end marker of a thumbnail inside an
    EXIF segment is not taken for the photo's (B.1.1). The end marker may be missing after the
    last scan; only decoding shows whether that scan is complete. Comments, thumbnails, profiles
    and fill bytes are left out.

    Raises:
        Defect: Truncated, contradictory, or made to keep a decoder busy.
        NotRead: Not 8 bits per sample, or a coding process that is not read.
    """
    found, position, end = _Found(), 2, len(data)
    for _ in range(MAX_SEGMENTS):
        match = _MARKER.search(data, position)
        if match is None:
            return _outline_of(found, ended=False)
        start, position, marker = match.start(), match.end(), data[match.end() - 1]
        if marker == _EOI:
            return _outline_of(found, ended=True)
        if marker in (_SOI, _TEM):
            continue
        # A length includes its own two bytes; with less than 2 the walk would go backwards.
        position += max(2, int.from_bytes(data[position : position + 2], "big"))
        if position > end:
            raise Defect("ends within a segment")
        _note(found, marker, data[start:position])
        if marker == _SOS:
            match = _MARKER.search(data, position)
            scan, position = position, match.start() if match else end
            # Scans are nearly the whole file: they are searched and copied only once.
            found.pieces.append(memoryview(data)[scan:position])
    raise Defect(f"has more than {MAX_SEGMENTS} segments")


def _note(found: _Found, marker: int, segment: bytes) -> None:
    """Process a segment (marker, length, content), and keep it if the picture needs it."""
    if marker in _FRAMES:
        if found.size_wh is not None:
            raise Defect("has more than one frame header")
        found.size_wh = _frame_size(marker, segment)
        found.coefficients = {component: set() for component in segment[10::3]}
    elif marker == _SOS:
        if found.size_wh is None:
            raise Defect("has a scan before its frame header")
        if len(segment) > _LONGEST_SCAN_HEADER:
            raise Defect("has a scan of more than four components")
        found.scans += 1
        if found.scans > MAX_SCANS:
            raise Defect(f"has more than {MAX_SCANS} scans")
        first, last, precision = segment[-3:]
        if precision & 0x0F == 0:
            for component in segment[5:-3:2]:
                found.coefficients.setdefault(component, set()).update(range(first, last + 1))
    elif marker in _COLOURS:
        if marker in found.colours or not segment[4:].startswith(_COLOURS[marker]):
            return
        found.colours.add(marker)
    elif marker not in _TABLES:
        if marker == _APP1 and found.exif is None and segment[4:10] == _EXIF:
            found.exif = segment[4:]
        return
    found.pieces.append(segment)


def _frame_size(marker: int, segment: bytes) -> tuple[int, int]:
    """Width and height of a frame header (B.2.2)."""
    if marker not in _FRAMES_READ:
        raise NotRead("Lossless and hierarchical JPEGs are not read. Save it as an ordinary one.")
    if len(segment) < 10:
        raise Defect("ends in its frame header")
    if segment[4] != 8:
        raise NotRead(f"JPEGs of {segment[4]} bits per sample are not read. Save it with 8 bits.")
    height, width = int.from_bytes(segment[5:7], "big"), int.from_bytes(segment[7:9], "big")
    if height == 0:
        raise NotRead("JPEGs with their height at the end are not read. Save it again.")
    return width, height


def _outline_of(found: _Found, ended: bool) -> Outline:
    if found.size_wh is None or not found.scans:
        raise Defect("holds no image data")
    if not ended:
        if not all(known >= _COEFFICIENTS for known in found.coefficients.values()):
            raise Defect("ends before its last scan")
        found.pieces[-1] = bytes(found.pieces[-1]).rstrip(b"\xff")  # the first half of a marker
    core = b"".join([*found.pieces, _END])
    return Outline(*found.size_wh, core, orientation_of(found.exif or b""), ended=ended)


def check_last_scan(core: bytes) -> None:
    """Raise Defect if the last scan is truncated: then bytes appended to it change the pixels."""
    more = core.removesuffix(_END) + b"\x5a\xa5\x33" * 100 + _END
    # Pillow, because OpenCV's decoder prints a line to stderr for each truncated file.
    pictures = [np.asarray(JpegImageFile(io.BytesIO(data))) for data in (core, more)]
    if not np.array_equal(pictures[0], pictures[1]):
        raise Defect("ends within its last scan")
