"""Image files as bytes: which type they are, by their content alone."""

ACCEPTED = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
# Of names, where folders are searched; once a file is read, its content decides.
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"})

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


def type_of(data: bytes) -> str | None:
    """Name the type of a file by its first bytes; None for an unknown one.

    It is one of `ACCEPTED`, or another known type, such as "HEIC" or "PDF".
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
