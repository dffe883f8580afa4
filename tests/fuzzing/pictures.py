"""Sound files of pictures that no camera takes: what the nets make of them must be sound, too."""

import random
from collections.abc import Callable
from functools import cache

import cv2
import numpy as np
from photo_bomb_parts import flat, jpeg_of_scans, png_of_zeros

from fuzzing.attempts import Attempt
from fuzzing.requests import PLATES, SAMPLES, SINGLE, raw_photo
from plate_models.spec import LIMITS

_SIDE = int(LIMITS.max_pixels**0.5)
_LONG = 60_000


def _noise(rng: random.Random, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(rng.randrange(2**32)).integers(
        0, 256, (height, width, 3), np.uint8
    )


def _thin(rng: random.Random) -> np.ndarray:
    """One pixel, or a line of pixels, or nearly that."""
    sides = [rng.choice((1, 1, 2, 3, 7)), rng.choice((1, 2, 31, 500, 5000, _LONG))]
    rng.shuffle(sides)
    return _noise(rng, *sides)


def _constant(rng: random.Random) -> np.ndarray:
    sides = rng.choices((1, 8, 64, 640, 1500), k=2)
    return np.full((*sides, 3), rng.choice((0, 1, 127, 254, 255)), np.uint8)


def _checkerboard(rng: random.Random) -> np.ndarray:
    """Every pixel or every stride of the nets another way: the sharpest edges there are."""
    height, width = rng.randrange(1, 900), rng.randrange(1, 1300)
    step = rng.choice((1, 2, 4, 8, 16, 32))
    y, x = np.mgrid[:height, :width] // step
    return np.repeat(((x + y) % 2 * 255).astype(np.uint8)[..., None], 3, axis=2)


def _static(rng: random.Random) -> np.ndarray:
    return _noise(rng, rng.randrange(1, 700), rng.randrange(1, 1200))


@cache
def _scene(index: int) -> np.ndarray:
    return cv2.imread(str(SAMPLES[index]))


def _some_scene(rng: random.Random) -> np.ndarray:
    return _scene(rng.randrange(len(SAMPLES)))


def _many_plates(rng: random.Random) -> np.ndarray:
    """A sample over and over, as small as its plates can be found."""
    scene = _some_scene(rng)
    small = cv2.resize(scene, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    return np.tile(small, (rng.choice((2, 4)), rng.choice((2, 5)), 1))


def _giant_plate(rng: random.Random) -> np.ndarray:
    """The middle of a sample, so near that a plate may be larger than the canvas."""
    scene = _some_scene(rng)
    height, width = scene.shape[:2]
    y, x = rng.randrange(height - 90), rng.randrange(width - 90)
    near = scene[y : y + rng.randrange(8, 90), x : x + rng.randrange(8, 90)]
    return cv2.resize(near, (rng.randrange(50, 3000), rng.randrange(50, 2000)))


def _warped(rng: random.Random) -> np.ndarray:
    """A sample turned, mirrored, inverted, squeezed, or in single bits."""
    scene = np.ascontiguousarray(np.rot90(_some_scene(rng), rng.randrange(4)))
    size = (rng.randrange(1, 2000), rng.randrange(1, 1500))
    changes: tuple[Callable[[], np.ndarray], ...] = (
        lambda: scene[::-1],
        lambda: 255 - scene,
        lambda: cv2.resize(scene, size),
        lambda: (scene > rng.randrange(256)).astype(np.uint8) * 255,
        lambda: scene ^ np.uint8(rng.randrange(256)),
    )
    return np.ascontiguousarray(rng.choice(changes)())


_PICTURES: tuple[Callable[[random.Random], np.ndarray], ...] = (
    *(_thin, _thin, _constant, _checkerboard, _static, _many_plates, _giant_plate, _warped),
)


def odd_picture(rng: random.Random) -> Attempt:
    """An odd picture in a sound file: it must be read."""
    pixels = rng.choice(_PICTURES)(rng)
    extension = rng.choice((".png", ".jpg", ".bmp"))
    photo = cv2.imencode(extension, pixels)[1].tobytes()
    path = rng.choice((PLATES, PLATES, *SINGLE))
    # A line of sixty thousand pixels as BMP is within the limits, too; noise may not be.
    return Attempt("odd pictures", path, (raw_photo(path, photo),), statuses=_READ)


_READ = frozenset({200, 201, 429})


@cache
def _largest_files() -> tuple[bytes, ...]:
    return (
        png_of_zeros(_SIDE, _SIDE, 8, 2),
        png_of_zeros(_SIDE, _SIDE, 16, 6, interlaced=1),
        jpeg_of_scans(20, _SIDE),
        flat(_SIDE, "TIFF", "RGB", compression="tiff_lzw"),
        flat(_SIDE, "GIF", "P"),
    )


def largest_picture(rng: random.Random) -> Attempt:
    """The most pixels that are allowed."""
    photo = rng.choice(_largest_files())
    return Attempt("largest pictures", PLATES, (raw_photo(PLATES, photo),), statuses=_READ)
