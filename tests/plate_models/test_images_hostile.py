"""Files made to hurt: what they cost to refuse, and what the largest cost to read."""

import json
import subprocess
import sys

import photo_cost
import pytest
from photo_bombs import CHEAP, HEAVY, REFUSED, SIDE, jpeg_with, segment, webp_chunk, webp_of
from photo_files import HEIGHT, WIDTH, encode, exif, pattern, png_chunk

from plate_models import images

# A hang, not a slow machine: refusals take milliseconds.
REFUSED_S, READ_S = 2, 30
# Of the picture as RGB. Decoders hold what they decode from beside it.
MEMORY_FACTOR = 4
# Of numpy, Pillow and OpenCV themselves, however small the picture is.
MEMORY_FLOOR_MB = 24


@pytest.fixture(scope="module")
def measured():
    command = [sys.executable, photo_cost.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # Decoders open no file, start no process, and write nothing else than this of scans like ours.
    said = "Inconsistent progression sequence for component 3 coefficient 1\n"
    assert done.stderr in ("", said)
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize("name", [*REFUSED, *CHEAP])
def test_bombs_are_refused_and_burdens_left_unopened_cheaply(measured, name):
    result, decode_s, peak_mb = measured[name]
    assert result in ([REFUSED[name][1]] if name in REFUSED else ([HEIGHT, WIDTH], [8, 8]))
    assert decode_s < REFUSED_S
    assert peak_mb < MEMORY_FLOOR_MB


@pytest.mark.parametrize("name", HEAVY)
def test_the_dearest_pictures_are_read_within_bounds(measured, name):
    result, decode_s, peak_mb = measured[name]
    assert result == [SIDE, SIDE]
    assert decode_s < READ_S
    assert peak_mb < MEMORY_FACTOR * 3 * SIDE**2 / 2**20 + MEMORY_FLOOR_MB


def test_burdens_do_not_change_the_picture():
    plain = images.decode(jpeg_with())
    assert (images.decode(CHEAP["jpeg with fill bytes"]()) == plain).all()
    assert (images.decode(jpeg_with(segment(0xFE, b"a comment"))) == plain).all()
    turned = images.decode(jpeg_with(segment(0xE1, exif(3)), segment(0xE1, exif(1))))
    assert (turned == plain[::-1, ::-1]).all()
    for damaged in (b"Exif\0\0II*\0\x08\0\0\0\xff\xff", b"Exif\0\0" + b"XX" * 40, exif(9)):
        assert (images.decode(jpeg_with(segment(0xE1, damaged))) == plain).all()


@pytest.mark.parametrize("tags", [{278: 16}, {322: 64, 323: 64}])
def test_tiffs_of_many_jpegs_are_read(tags):
    photo = encode(pattern(200, 150), "TIFF", compression="jpeg", tiffinfo=tags)
    assert images.decode(photo).shape == (150, 200, 3)


def test_colours_that_adobes_segment_names_are_kept():
    """Without this segment, and without JFIF's, three components are taken for YCbCr."""
    jfif = jpeg_with()
    adobe = jfif[:2] + segment(0xEE, b"Adobe\0\x64\0\0\0\0\0") + jfif[20:]
    assert (images.decode(adobe) != images.decode(jfif)).any()


def test_headers_of_the_wrong_length_are_refused():
    headers = [webp_of(webp_chunk(b"VP8X", bytes(size))) for size in range(12)]
    for size in (0, 12, 14):
        chunks = png_chunk(b"IHDR", bytes(size)) + png_chunk(b"IEND", b"")
        headers.append(b"\x89PNG\r\n\x1a\n" + chunks)
    for header in headers:
        with pytest.raises(images.BrokenImage):
            images.decode(header)
