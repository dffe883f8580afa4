"""The type of a file, by its content alone."""

ACCEPTED = ("JPEG", "PNG", "WEBP", "HEIC", "BMP", "TIFF", "GIF")
# Suffixes of file names, to find photos; once a file is read, its content decides.
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jfif", ".png", ".webp", ".heic", ".heif", ".hif"}
    | {".bmp", ".tif", ".tiff", ".gif"}
)

# The first bytes of files of each type.
_SIGNATURES = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "BMP": (b"BM",),
    "TIFF": (b"II*\0", b"MM\0*"),
    "GIF": (b"GIF87a", b"GIF89a"),
    "PDF": (b"%PDF",),
    "Photoshop": (b"8BPS",),
    "ZIP": (b"PK\x03\x04",),
    "gzip": (b"\x1f\x8b",),
    "JPEG XL": (b"\xff\x0a", b"\0\0\0\x0cJXL "),
    "JPEG 2000": (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"),
    "Matroska or WebM video": (b"\x1aE\xdf\xa3",),
    "MPEG video": (b"\0\0\1\xba", b"\0\0\1\xb3"),
    "WMV video": (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11",),
    "Flash video": (b"FLV\1",),
    "BigTIFF": (b"II+\0", b"MM\0+"),
    # Files of Fujifilm, Panasonic and Olympus cameras.
    "RAW": (b"FUJIFILMCCD-RAW", b"IIU\0", b"IIRO", b"IIRS", b"MMOR"),
}
_CANON_RAW_BRAND = b"crx "
_AUDIO_BRANDS = {b"M4A ", b"M4B ", b"M4P "}
# The first boxes of old QuickTime files, which have no `ftyp` box.
_QUICKTIME_BOXES = {b"moov", b"mdat", b"wide", b"pnot"}
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"mif1"}
_SEQUENCE_BRANDS = {b"hevc", b"hevx", b"hevm", b"hevs", b"msf1"}
_AVIF_BRANDS = {b"avif", b"avis"}


def type_of(data: bytes) -> str | None:
    """Return a file's type by its first bytes: one of `ACCEPTED`, or another, such as "PDF".

    Returns None if the type is unknown.
    """
    for name, signatures in _SIGNATURES.items():
        if data.startswith(signatures):
            return name
    if data[:4] == b"RIFF":
        return {b"WEBP": "WEBP", b"AVI ": "AVI video"}.get(data[8:12], "RIFF")
    if data[4:8] == b"ftyp":
        return _isobmff_type(data)
    if data[4:8] in _QUICKTIME_BOXES:
        return "QuickTime video"
    start = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<svg", b"<?xml")):
        return "SVG" if b"<svg" in start else "XML"
    return "HTML" if start.startswith((b"<!doctype html", b"<html")) else None


def _isobmff_type(data: bytes) -> str:
    """Distinguish HEIC and AVIF from video by the `ftyp` box's brands (ISO 14496-12, 4.3)."""
    size = min(int.from_bytes(data[:4], "big"), 256)
    brands = {data[8:12], *(data[i : i + 4] for i in range(16, size, 4))}
    if brands & _AVIF_BRANDS:
        return "AVIF"
    if _CANON_RAW_BRAND in brands:
        return "RAW"
    if brands & _HEIC_BRANDS and data[8:12] not in _SEQUENCE_BRANDS:
        return "HEIC"
    if brands & _SEQUENCE_BRANDS:
        return "HEIC sequence"
    return "MPEG-4 audio" if data[8:12] in _AUDIO_BRANDS else "MP4 or QuickTime video"
