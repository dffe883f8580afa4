"""Photos, videos and other files, distinguished by their first bytes."""

import struct

import pytest
from photo_files import BAD, GOOD

from plate_models import images
from plates.file_kinds import HEAD_BYTES, kind_of


def ftyp(brand):
    return b"\0\0\0\x14ftyp" + brand + bytes(4) + brand + bytes(100)


KINDS = {
    **{name: ("photo", GOOD[name]) for name in GOOD},
    "heic sequence": ("unread", BAD["heic sequence"][0]),
    "avif": ("unread", BAD["avif"][0]),
    "jpeg xl": ("unread", b"\xff\x0a" + bytes(100)),
    "jpeg xl, boxed": ("unread", b"\0\0\0\x0cJXL \r\n\x87\n"),
    "jpeg 2000": ("unread", b"\0\0\0\x0cjP  \r\n\x87\n"),
    "photoshop": ("unread", b"8BPS" + bytes(100)),
    "fujifilm": ("unread", b"FUJIFILMCCD-RAW 0201" + bytes(100)),
    "tiff with a preview": ("unread", struct.pack("<4sIHHHII", b"II*\0", 8, 1, 254, 4, 1, 1)),
    "tiff with a page": ("photo", struct.pack("<4sIHHHII", b"II*\0", 8, 1, 254, 4, 1, 2)),
    "canon": ("unread", ftyp(b"crx ")),
    "mp4": ("video", ftyp(b"isom")),
    "quicktime": ("video", ftyp(b"qt  ")),
    "old quicktime": ("video", b"\0\0\0\x08wide" + bytes(100)),
    "avi": ("video", b"RIFF\0\0\0\0AVI LIST" + bytes(100)),
    "matroska": ("video", b"\x1aE\xdf\xa3" + bytes(100)),
    "wmv": ("video", bytes.fromhex("3026b2758e66cf11a6d9") + bytes(100)),
    "empty": ("other", b""),
    "text": ("other", b"BMW, Lada and others\n" * 9),
    "zip": ("other", b"PK\3\4" + bytes(30)),
    "svg": ("other", BAD["svg"][0]),
    "sound": ("other", b"RIFF\0\0\0\0WAVEfmt " + bytes(100)),
    "m4a": ("other", ftyp(b"M4A ")),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_first_bytes_tell_a_files_kind(name):
    kind, data = KINDS[name]
    assert kind_of(data[:HEAD_BYTES]) == kind
    if kind == "unread" and not data.startswith(b"II*\0"):
        with pytest.raises(images.UnsupportedType, match="Convert the photo to JPEG"):
            images.decode(data)
