"""The pixels of an image file whose header was already read.

Raises whatever OpenCV and Pillow raise; `images.decode` turns all of it into one error.
"""

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps

Pixels = NDArray[np.uint8]

# What a decoder thinks of a broken file reaches the caller as an exception; OpenCV would
# print it to stderr a second time.
cv2.setLogLevel(0)

_ALPHA_MODES = ("RGBA", "LA", "PA")


def turn_upright(pixels: Pixels, orientation: int) -> Pixels:
    """Undo a camera's rotation.

    Args:
        pixels: (H, W, 3) uint8 as stored.
        orientation: EXIF orientation, 1 to 8 (Exif 2.32, 4.6.4 A, tag 0x0112); any other
            value means upright.

    Returns:
        (H, W, 3) or (W, H, 3) uint8.
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
    """Decode a JPEG, PNG, WebP or BMP file as it is stored: EXIF orientation is ignored.

    Args:
        data: The file's bytes.
        file: The same file, opened: it tells whether there is transparency.

    Returns:
        (H, W, 3) uint8 RGB; transparent parts are white.

    Raises:
        ValueError: OpenCV can't decode the file.
    """
    buffer = np.frombuffer(data, dtype=np.uint8)
    if file.mode not in _ALPHA_MODES:
        flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        return _as_pixels(cv2.imdecode(buffer, flags))
    # The only flag that keeps the transparency; it ignores the orientation, too.
    pixels = cv2.imdecode(buffer, cv2.IMREAD_UNCHANGED)
    if pixels is not None and pixels.dtype == np.uint16:
        pixels = np.right_shift(pixels, 8, dtype=np.uint16)
    stored = _as_pixels(pixels)
    rgb = cv2.cvtColor(stored[..., :3], cv2.COLOR_BGR2RGB)
    alpha = cv2.cvtColor(stored[..., 3], cv2.COLOR_GRAY2RGB)
    white = cv2.bitwise_not(alpha)
    return _as_pixels(cv2.add(cv2.multiply(rgb, alpha, scale=1 / 255), white))


def with_pillow(file: ImageFile.ImageFile) -> Pixels:
    """Decode the first picture of an opened file.

    Args:
        file: The opened file.

    Returns:
        (H, W, 3) uint8 RGB, upright; transparent parts are white.
    """
    image: Image.Image = ImageOps.exif_transpose(file)
    if image.mode.startswith("I;16"):
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    if file.mode in _ALPHA_MODES or "transparency" in file.info:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return np.asarray(image.convert("RGB"))


def _as_pixels(decoded: object) -> Pixels:
    if decoded is None:
        raise ValueError("OpenCV gave no picture")
    return np.asarray(decoded, dtype=np.uint8)
