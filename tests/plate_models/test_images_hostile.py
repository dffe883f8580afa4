"""Hostile files: the time and memory to refuse them, and to read the costliest valid ones."""

import json
import subprocess
import sys

import photo_cost
import pytest
from photo_bombs import CHEAP, HEAVY, REFUSED, SIDE, bmp_of, jpeg_with, segment, webp_chunk, webp_of
from photo_files import HEIGHT, WIDTH, encode, exif, pattern, png_chunk

from plate_models import images

# Seconds. Refusals take milliseconds, so only a hang exceeds this, no slow machine.
REFUSED_S, READ_S = 2, 30
# Times the size of the RGB picture: decoders also hold intermediate data.
MEMORY_FACTOR = 4
# What NumPy, Pillow and OpenCV themselves need, for the smallest picture, too.
MEMORY_FLOOR_MB = 24


@pytest.fixture(scope="module")
def measured():
    command = [sys.executable, photo_cost.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # photo_cost.py would write a line if a decoder opened a file or started a process. Decoders
    # themselves write only this warning about our progressive scans.
    warning = "Inconsistent progression sequence for component 3 coefficient 1\n"
    assert done.stderr in ("", warning)
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize("name", [*REFUSED, *CHEAP])
def test_refusing_bombs_and_skipping_useless_data_is_cheap(measured, name):
    result, decode_s, peak_mb = measured[name]
    assert result in ([REFUSED[name][1]] if name in REFUSED else ([HEIGHT, WIDTH], [8, 8]))
    assert decode_s < REFUSED_S
    assert peak_mb < MEMORY_FLOOR_MB


@pytest.mark.parametrize("name", HEAVY)
def test_the_costliest_pictures_are_read_within_bounds(measured, name):
    result, decode_s, peak_mb = measured[name]
    assert result == [SIDE, SIDE]
    assert decode_s < READ_S
    assert peak_mb < MEMORY_FACTOR * 3 * SIDE**2 / 2**20 + MEMORY_FLOOR_MB


def test_useless_data_does_not_change_the_picture():
    plain = images.decode(jpeg_with())
    assert (images.decode(CHEAP["jpeg with fill bytes"]()) == plain).all()
    assert (images.decode(jpeg_with(segment(0xFE, b"a comment"))) == plain).all()
    turned = images.decode(jpeg_with(segment(0xE1, exif(3)), segment(0xE1, exif(1))))
    assert (turned == plain[::-1, ::-1]).all()
    for damaged in (b"Exif\0\0II*\0\x08\0\0\0\xff\xff", b"Exif\0\0" + b"XX" * 40, exif(9)):
        assert (images.decode(jpeg_with(segment(0xE1, damaged))) == plain).all()


@pytest.mark.parametrize("tags", [{278: 16}, {322: 64, 323: 64}])
def test_tiffs_of_several_jpeg_strips_or_tiles_are_read(tags):
    photo = encode(pattern(200, 150), "TIFF", compression="jpeg", tiffinfo=tags)
    assert images.decode(photo).shape == (150, 200, 3)


def test_the_colour_space_of_an_adobe_segment_is_kept():
    """Without an Adobe and a JFIF segment, three components are taken for YCbCr."""
    jfif = jpeg_with()
    adobe = jfif[:2] + segment(0xEE, b"Adobe\0\x64\0\0\0\0\0") + jfif[20:]
    assert (images.decode(adobe) != images.decode(jfif)).any()


def test_a_bmp_is_opaque_if_its_alpha_is_0_everywhere():
    masks = b"\0\0\xff\0\0\xff\0\0\xff\0\0\0\0\0\0\xff".ljust(1024, b"\0")  # R, G, B, A
    for alpha, first in ((0, [9, 8, 7]), (255, [255, 255, 255])):
        pixels = bytes([7, 8, 9, 0, 7, 8, 9, alpha])
        picture = images.decode(bmp_of(2, 1, 56, 32, 3, masks + pixels))
        assert picture.tolist() == [[first, [9, 8, 7]]]


def test_headers_of_the_wrong_length_are_refused():
    headers = [webp_of(webp_chunk(b"VP8X", bytes(size))) for size in range(12)]
    for size in (0, 12, 14):
        chunks = png_chunk(b"IHDR", bytes(size)) + png_chunk(b"IEND", b"")
        headers.append(b"\x89PNG\r\n\x1a\n" + chunks)
    for header in headers:
        with pytest.raises(images.BrokenImage):
            images.decode(header)
