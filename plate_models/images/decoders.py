"""The pixels of an image file whose header was already read.

Raises whatever OpenCV, Pillow and libheif raise; `images.decode` turns all of it into one error.
"""

from collections.abc import Callable, Iterator

import cv2
import numpy as np
import pi_heif
from numpy.typing import NDArray
from PIL import Image, ImageFile

Pixels = NDArray[np.uint8]

# What a decoder thinks of a broken file reaches the caller as an exception; OpenCV would
# print it to stderr a second time.
cv2.setLogLevel(0)

_ALPHA_MODES = ("RGBA", "LA", "PA")
_BAND_PIXELS = 2_000_000


def turn_upright(pixels: Pixels, orientation: int) -> Pixels:
    """Undo a camera's rotation of (H, W, 3) pixels.

    The EXIF orientation is 1 to 8 (Exif 2.32, 4.6.4 A); any other value means upright.
    """
    if orientation in (5, 7):
        pixels = _as_pixels(cv2.transpose(pixels))
    turns: dict[int, Callable[[Pixels], object]] = {
        2: lambda p: cv2.flip(p, 1),
        3: lambda p: cv2.rotate(p, cv2.ROTATE_180),
        4: lambda p: cv2.flip(p, 0),
        6: lambda p: cv2.rotate(p, cv2.ROTATE_90_CLOCKWISE),
        7: lambda p: cv2.rotate(p, cv2.ROTATE_180),
        8: lambda p: cv2.rotate(p, cv2.ROTATE_90_COUNTERCLOCKWISE),
    }
    return _as_pixels(turns[orientation](pixels)) if orientation in turns else pixels


def with_opencv(data: bytes, file: ImageFile.ImageFile) -> Pixels:
    """Decode a JPEG, PNG, WebP or BMP to (H, W, 3) RGB as it is stored, not turned upright.

    The same file, opened by Pillow, says whether there is transparency; it becomes white.
    """
    buffer = np.frombuffer(data, dtype=np.uint8)
    if file.mode not in _ALPHA_MODES:
        flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        return np.asarray(_decoded(cv2.imdecode(buffer, flags)), dtype=np.uint8)
    # The only flag that keeps the transparency; it ignores the orientation, too.
    stored = _decoded(cv2.imdecode(buffer, cv2.IMREAD_UNCHANGED))
    pixels = np.empty((*stored.shape[:2], 3), np.uint8)
    for rows in _bands(*stored.shape[:2]):
        pixels[rows] = _on_white(stored[rows])
    return pixels


def with_pillow(file: ImageFile.ImageFile) -> Pixels:
    """Decode the first picture to (H, W, 3) RGB as it is stored; transparent parts are white."""
    transparent = file.mode in _ALPHA_MODES or "transparency" in file.info
    file.load()
    width, height = file.size
    pixels = np.empty((height, width, 3), np.uint8)
    for rows in _bands(height, width):
        band = file.crop((0, rows.start, width, rows.stop))
        if band.mode.startswith("I;16"):
            pixels[rows] = (np.asarray(band) >> 8)[..., None]
            continue
        if transparent:
            white = Image.new("RGBA", band.size, "white")
            band = Image.alpha_composite(white, band.convert("RGBA"))
        pixels[rows] = np.asarray(band.convert("RGB"))
    return pixels


def with_libheif(data: bytes) -> Pixels:
    """Decode the one picture of a HEIC file to (H, W, 3) RGB; transparent parts are white."""
    # Cores follow photos: threads of its own would starve others.
    pi_heif.options.DECODE_THREADS = 1
    picture = pi_heif.open_heif(data, convert_hdr_to_8bit=True, bgr_mode=True)
    stored = np.asarray(picture)
    height, width = stored.shape[:2]
    pixels = np.empty((height, width, 3), np.uint8)
    for rows in _bands(height, width):
        band = stored[rows]
        if band.ndim == 2:
            pixels[rows] = band[..., None]
        elif picture.has_alpha:
            pixels[rows] = _on_white(band)
        else:
            pixels[rows] = band[..., ::-1]
    return pixels


def _on_white(stored: NDArray[np.uint8 | np.uint16]) -> Pixels:
    """BGRA of 8 or 16 bits as RGB of 8 bits on a white ground."""
    if stored.dtype == np.uint16:
        stored = np.right_shift(stored, 8).astype(np.uint8)
    rgb = cv2.cvtColor(stored[..., :3], cv2.COLOR_BGR2RGB)
    alpha = cv2.cvtColor(stored[..., 3], cv2.COLOR_GRAY2RGB)
    white = cv2.bitwise_not(alpha)
    return _as_pixels(cv2.add(cv2.multiply(rgb, alpha, scale=1 / 255), white))


def _bands(height: int, width: int) -> Iterator[slice]:
    """Rows of a picture in groups: intermediate copies of the whole would cost memory."""
    rows = max(1, _BAND_PIXELS // width)
    for top in range(0, height, rows):
        yield slice(top, min(height, top + rows))


def _decoded(picture: object) -> NDArray[np.uint8 | np.uint16]:
    if picture is None:
        raise ValueError("OpenCV gave no picture")
    return np.asarray(picture)


def _as_pixels(picture: object) -> Pixels:
    return np.asarray(picture, dtype=np.uint8)
