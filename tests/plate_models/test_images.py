"""Accepted files are decoded upright, in RGB; others are refused, at little cost, by ImageError."""

import json
import subprocess
import sys
from contextlib import suppress

import cv2
import heic_files
import numpy as np
import photo_cost
import photo_files
import pytest
from photo_bombs import CHEAP, HEAVY, REFUSED, SIDE, bmp_of, jpeg_with, segment, webp_chunk, webp_of
from photo_files import BAD, BLUE, FAITHFUL, GOOD, GREEN, HEIGHT, RED, WIDTH, encode, pattern, rgba

from plate_models import images
from plate_models.spec import Limits


def assert_shows(pixels, expected, tolerance=6):
    """Compare pictures except at edges, which some formats blur."""
    assert (cv2.absdiff(pixels, expected) > tolerance).mean() < 0.05


@pytest.mark.parametrize("name", GOOD)
def test_good_files_are_read_upright_and_in_rgb(name):
    header = images.check_header(GOOD[name])
    assert (header.width, header.height) == (WIDTH, HEIGHT)
    assert header.format in images.files.ACCEPTED
    pixels = images.decode(GOOD[name])
    assert pixels.flags.c_contiguous
    # A palette of 216 web colours has steps of 51.
    assert_shows(pixels, pattern(), 51 if "palette" in name else 6)


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_with_a_slug_and_a_sentence(name):
    data, slug = BAD[name]
    readers = [images.decode]
    if name not in photo_files.SEEN_BY_DECODING:
        readers.append(images.check_header)
    for read in readers:
        with pytest.raises(images.ImageError, match=r"\.$") as caught:
            read(data)
        assert caught.value.slug == slug


DEEP_GREY = np.repeat(np.uint16([[200 * 257], [0]]), 10, axis=0).repeat(30, axis=1)
DEEP_BGRA = rgba(0)[..., [2, 1, 0, 3]].astype(np.uint16) * 257
WHITE, GREYS = (255,) * 3, ((200,) * 3, (200,) * 3, (0,) * 3)
WHITES = (WHITE,) * 3
FLAT, BLACK = np.full((20, 30, 3), 90, np.uint8), np.zeros((20, 30, 3), np.uint8)
HALF_GREEN = (RED, tuple(c * 128 / 255 + 127 for c in GREEN), BLUE)
# Name to file, and its colours in the upper left, upper right and lower left quarter.
COLOURS = {
    "16-bit grey .png": (cv2.imencode(".png", DEEP_GREY)[1].tobytes(), GREYS),
    "16-bit grey .tiff": (cv2.imencode(".tiff", DEEP_GREY)[1].tobytes(), GREYS),
    **{
        f"{kind} of alpha 128": (encode(rgba(128), kind, "RGBA", **FAITHFUL[kind]), HALF_GREEN)
        for kind in ("PNG", "WEBP", "TIFF")
    },
    "grey jpeg": (encode(FLAT, "JPEG", "L"), ((90,) * 3,) * 3),
    "heic of alpha 128": (heic_files.FILES["transparent"], HALF_GREEN),
    "deep transparent png": (cv2.imencode(".png", DEEP_BGRA)[1].tobytes(), (RED, WHITE, BLUE)),
    "png of mode L with a transparent colour": (encode(BLACK, "PNG", "L", transparency=0), WHITES),
    "png of mode P with a transparent colour": (encode(BLACK, "PNG", "P", transparency=0), WHITES),
}


@pytest.mark.parametrize("name", COLOURS)
def test_grey_becomes_rgb_and_transparent_parts_white(name):
    data, colours = COLOURS[name]
    pixels = images.decode(data)
    height, width, _ = pixels.shape
    places = (height // 4, width // 4), (height // 4, width * 3 // 4), (height * 3 // 4, width // 4)
    for place, colour in zip(places, colours, strict=True):
        assert np.abs(pixels[place] - np.array(colour)).max() <= 2


def test_a_heic_grid_is_cropped_to_its_own_size():
    pixels = images.decode(heic_files.grid_of(2, 3, 180, 100))
    assert pixels.shape == (100, 180, 3)
    assert_shows(pixels[:HEIGHT], np.tile(pattern(), (1, 3, 1))[:, :180])


@pytest.mark.parametrize("name", ["jpeg", "png", "webp", "heic", "tiff", "gif", "bmp"])
def test_damage_anywhere_raises_no_other_error_than_image_error(name):
    rng = np.random.default_rng(7)
    whole = GOOD[name]
    for _ in range(150):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 4):
            data[place] = rng.integers(0, 256)
        with suppress(images.ImageError):
            images.decode(bytes(data), Limits(max_pixels=1_000_000))


@pytest.mark.parametrize("name", ["jpeg", "progressive jpeg", "png", "webp", "heic", "tiff"])
def test_every_truncation_is_noticed(name):
    whole = GOOD[name]
    for length in range(1, len(whole) - 1, max(1, len(whole) // 97)):
        with pytest.raises(images.ImageError):
            images.decode(whole[:length])


@pytest.mark.parametrize("name", ["jpeg", "progressive jpeg", "cmyk jpeg"])
def test_jpegs_without_their_end_marker_are_read(name, capfd):
    whole = GOOD[name]
    assert whole.endswith(b"\xff\xd9")
    for data in (whole[:-1], whole[:-2]):
        assert (images.decode(data) == images.decode(whole)).all()
        assert images.check_header(data) == images.check_header(whole)
    assert capfd.readouterr().err == ""


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
    turned = images.decode(
        jpeg_with(segment(0xE1, photo_files.exif(3)), segment(0xE1, photo_files.exif(1)))
    )
    assert (turned == plain[::-1, ::-1]).all()
    for damaged in (
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
        b"Exif\0\0" + b"XX" * 40,
        photo_files.exif(9),
    ):
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
        chunks = photo_files.png_chunk(b"IHDR", bytes(size)) + photo_files.png_chunk(b"IEND", b"")
        headers.append(b"\x89PNG\r\n\x1a\n" + chunks)
    for header in headers:
        with pytest.raises(images.BrokenImage):
            images.decode(header)
