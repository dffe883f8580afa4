"""Which files of a folder are photos: by names where it is searched, then by their first bytes."""

import re
from typing import Literal

from plate_models.images import tiff
from plate_models.images.files import ACCEPTED, type_of
from plate_models.images.outline import Defect

Kind = Literal["photo", "video", "unread", "other"]

# `kind_of` needs that many of a file's first bytes.
HEAD_BYTES = 1024
# Files that usually lie beside photos, and are passed over without a word.
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
    """Sort the files of a folder by their first `HEAD_BYTES`, regardless of their names.

    "photo" are the types of `ACCEPTED`, damaged or not, "unread" types of photos that are not read,
    such as AVIF, RAW and JPEG XL.
    """
    image_type = type_of(head)
    if image_type == "BMP":  # Its signature is two letters, with which a text may begin.
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
        first = next(tiff.entries_of(head))  # They are sorted.
    except (Defect, StopIteration):
        return False
    return tiff.is_preview(first, head)
