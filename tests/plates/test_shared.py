"""What commands share: kinds of files by their first bytes; annotated photos, plates cut out."""

import struct
from collections import namedtuple

import cv2
import numpy as np
import pytest
from photo_files import BAD, GOOD

from plate_models import images
from plates.annotate import annotate, straighten, write_jpeg
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


plate = namedtuple("plate", "quad text")


def test_annotations_are_drawn_on_a_copy(tmp_path):
    image = np.zeros((200, 131_000, 3), np.uint8)  # a panorama
    quad = ((100, 100), (300, 110), (300, 160), (100, 150))
    drawn = annotate(image, [plate(quad, "B840CK197")])
    assert not image.any()
    changed = np.argwhere(drawn.any(axis=2))
    (top, left), (bottom, right) = changed.min(axis=0), changed.max(axis=0)
    assert top < 100 - 5  # the label is above the plate
    assert abs(left - 100) <= 2 and abs(bottom - 160) <= 2 and right >= 300
    assert not drawn[125:135, 150:250].any()  # the plate itself stays legible
    write_jpeg(tmp_path / "a.jpg", drawn)
    assert cv2.imread(str(tmp_path / "a.jpg")).shape == (100, 65_500, 3)  # the largest JPEG
    readable, unreadable = (annotate(image, [plate(quad, text)])[125, 100] for text in ("?", ""))
    assert (readable != unreadable).any()


@pytest.mark.parametrize("y", [0, 5, 95])
def test_labels_are_drawn_at_the_edges_too(y):
    quad = ((250, y), (300, y), (300, y + 5), (250, y + 5))
    drawn = annotate(np.zeros((100, 300, 3), np.uint8), [plate(quad, "B840CK197")])
    assert drawn.any(axis=2).sum() > 1000
    assert annotate(np.zeros((1, 1, 3), np.uint8), [plate(quad, "")]).shape == (1, 1, 3)


def test_straighten_cuts_out_a_slanted_plate():
    rows, columns = np.mgrid[0:200, 0:33_000]  # a panorama
    # Bright inside a parallelogram: 100 pixels long, 40 high, its right end 30 lower.
    along, down = (columns + 0.5 - 80) / 100, (rows + 0.5 - 60 - 0.3 * (columns + 0.5 - 80)) / 40
    inside = (along > 0) & (along < 1) & (down > 0) & (down < 1)
    shade = np.where(inside, 100 + 100 * np.clip(along, 0, 1), 0)
    image = np.repeat(shade[..., None], 3, axis=2).astype(np.uint8)
    cut = straighten(image, ((80, 60), (180, 90), (180, 130), (80, 100)))
    assert cut.shape == (40, 104, 3)
    inner = cut[2:-2, 2:-2, 0].astype(float)
    assert inner.min() > 95
    assert np.ptp(inner, axis=0).max() < 8  # straight columns
    assert inner[:, -1].mean() - inner[:, 0].mean() > 85
    assert straighten(image, ((3, 3),) * 4).shape == (1, 1, 3)  # a quad without area
