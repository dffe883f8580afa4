"""Which files are photos: by their names when a folder is listed, then by their first bytes."""

import re
from typing import Literal

from plate_models.images import tiff
from plate_models.images.files import ACCEPTED, type_of
from plate_models.images.outline import Defect

Kind = Literal["photo", "video", "unread", "other"]

# How many of a file's first bytes `kind_of` needs.
HEAD_BYTES = 1024
# Files that usually lie beside photos; they are ignored without a message.
COMPANION = re.compile(
    r"\.(aae|css|csv|db|gpx|html?|ini|journal|js|jsonl?|log|md|parquet|srt|svg|toml|tsv|txt|xml|xmp"
    r"|ya?ml)$",
    re.IGNORECASE,
)
_UNREAD = frozenset(
    {"AVIF", "BigTIFF", "HEIC sequence", "JPEG 2000", "JPEG XL", "Photoshop", "RAW"}
)
_BMP_HEADER_SIZES = {12, 40, 52, 56, 64, 108, 124}


def kind_of(head: bytes) -> Kind:
    """Classify a file by its first `HEAD_BYTES`, regardless of its name.

    "photo" is a type of `ACCEPTED`, damaged or not; "unread" is a type of photos that is not
    supported, such as AVIF, RAW and JPEG XL.
    """
    image_type = type_of(head)
    if image_type == "BMP":  # Two letters, with which a text may begin, too.
        is_bmp = int.from_bytes(head[14:18], "little") in _BMP_HEADER_SIZES
        return "photo" if is_bmp else "other"
    if image_type in _UNREAD or (image_type == "TIFF" and _begins_with_preview(head)):
        return "unread"
    if image_type in ACCEPTED:
        return "photo"
    return "video" if image_type and image_type.endswith("video") else "other"


def _begins_with_preview(head: bytes) -> bool:
    """Whether a TIFF is a RAW file (DNG, NEF, ARW): its first picture is a small preview."""
    try:
        first = next(tiff.entries_of(head))  # sorted by tag: the first one tells
    except (Defect, StopIteration):
        return False
    return tiff.is_preview(first, head)
