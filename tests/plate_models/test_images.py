"""Accepted files are decoded upright, in RGB; others are refused with an ImageError."""

from contextlib import suppress

import cv2
import heic_files
import numpy as np
import photo_files
import pytest
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
