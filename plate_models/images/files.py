"""Image files as bytes: which type they are and whether they are all there.

Nothing is decoded here. The gateway looks at every upload with these functions before
it forwards it, so each of them takes time linear in the file at worst and stops early
on files built to be slow.
"""

import re

ACCEPTED = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")

_SIGNATURES = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"%PDF", "PDF"),
    (b"8BPS", "Photoshop"),
    (b"PK\x03\x04", "ZIP"),
    (b"\x1f\x8b", "gzip"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL ", "JPEG XL"),
    (b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\x1aE\xdf\xa3", "Matroska or WebM video"),
    (b"II+\0", "BigTIFF"),
    (b"MM\0+", "BigTIFF"),
)
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_AVIF_BRANDS = {b"avif", b"avis"}

# A marker inside entropy-coded data: 0xFF followed neither by a stuffed zero, nor by a
# restart marker, nor by another fill byte (ITU-T T.81, B.1.1.2).
_JPEG_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_JPEG_SOI, _JPEG_EOI, _JPEG_SOS, _JPEG_TEM = 0xD8, 0xD9, 0xDA, 0x01

# A 20 MB photo has a few hundred segments and about ten scans. Files with many more are
# made to keep a decoder busy: every scan of a progressive JPEG visits every pixel.
MAX_SEGMENTS = 20_000
MAX_SCANS = 100


def type_of(data: bytes) -> str | None:
    """Name the type of a file by its first bytes.

    Args:
        data: The file.

    Returns:
        One of `ACCEPTED`; or the name of another known type, such as "HEIC" or "PDF";
        or None.
    """
    for signature, name in _SIGNATURES:
        if data.startswith(signature):
            return name
    if data[:4] == b"RIFF":
        return "WEBP" if data[8:12] == b"WEBP" else "RIFF (AVI or WAV)"
    if data[4:8] == b"ftyp":
        return _isobmff_type(data)
    start = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<svg", b"<?xml")):
        return "SVG" if b"<svg" in start else "XML"
    return "HTML" if start.startswith((b"<!doctype html", b"<html")) else None


def _isobmff_type(data: bytes) -> str:
    """Tell HEIC and AVIF from video by the brands of the `ftyp` box (ISO 14496-12, 4.3)."""
    size = min(int.from_bytes(data[:4], "big"), 256)
    brands = {data[8:12], *(data[i : i + 4] for i in range(16, size, 4))}
    if brands & _AVIF_BRANDS:
        return "AVIF"
    return "HEIC" if brands & _HEIC_BRANDS else "MP4 or QuickTime video"


def find_defect(data: bytes, image_type: str) -> str | None:
    """Look for a missing end, without decoding.

    Types whose container has no end mark (BMP, TIFF, GIF) show it only when decoded.

    Args:
        data: The file.
        image_type: One of `ACCEPTED`, as `type_of` tells.

    Returns:
        What is wrong, as the end of the sentence "The file …"; None if nothing is.
    """
    if image_type == "JPEG":
        return _jpeg_defect(data)
    if image_type == "PNG":
        return _png_defect(data)
    if image_type == "WEBP" and len(data) < 8 + int.from_bytes(data[4:8], "little"):
        return "is shorter than its RIFF header says"
    return None


def _jpeg_defect(data: bytes) -> str | None:
    """Walk the segments to the end-of-image marker; whatever follows it is no concern.

    Segments are skipped by their length, so that the end mark of a thumbnail inside an
    EXIF segment is not taken for the photo's (ITU-T T.81, B.1.1).
    """
    position, scans = 2, 0
    for _ in range(MAX_SEGMENTS):
        found = _JPEG_MARKER.search(data, position)
        if found is None:
            return "ends before its end-of-image marker"
        position, marker = found.end(), data[found.end() - 1]
        if marker == _JPEG_EOI:
            return None if scans else "holds no image data"
        if marker in (_JPEG_SOI, _JPEG_TEM):
            continue
        scans += marker == _JPEG_SOS
        if scans > MAX_SCANS:
            return f"has more than {MAX_SCANS} scans"
        # A length counts its own two bytes; zero or one would walk backwards.
        position += max(2, int.from_bytes(data[position : position + 2], "big"))
    return f"has more than {MAX_SEGMENTS} segments"


def _png_defect(data: bytes) -> str | None:
    """Walk the chunks to IEND (PNG specification, 5.3)."""
    position = 8
    for _ in range(MAX_SEGMENTS):
        kind = data[position + 4 : position + 8]
        position += 12 + int.from_bytes(data[position : position + 4], "big")
        if len(kind) < 4 or position > len(data):
            return "ends before its IEND chunk"
        if kind == b"IEND":
            return None
    return f"has more than {MAX_SEGMENTS} chunks"
