"""Decode the pixels of an image file whose header was already checked.

Errors of OpenCV, Pillow and libheif pass through; `images.decode` converts them all to one error.
"""

import cv2
import numpy as np
import pi_heif
from numpy.typing import NDArray
from PIL import Image, ImageFile

from plate_models.images.outline import SIDEWAYS

Pixels = NDArray[np.uint8]

# Callers get decoders' errors as exceptions; OpenCV would also print them to stderr.
cv2.setLogLevel(0)

_ALPHA_MODES = ("RGBA", "LA", "PA")
_BAND_PIXELS = 2_000_000
# OpenCV's flip codes by EXIF orientation; sideways pictures are transposed first.
_FLIPS = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}


def turn_upright(pixels: Pixels, orientation: int) -> Pixels:
    """Undo a camera's rotation of (H, W, 3) pixels.

    The EXIF orientation is 1 to 8 (Exif 2.32, 4.6.4 A); any other value means upright.
    """
    if orientation in SIDEWAYS:
        pixels = np.asarray(cv2.transpose(pixels), np.uint8)
    if orientation in _FLIPS:
        pixels = np.asarray(cv2.flip(pixels, _FLIPS[orientation]), np.uint8)
    return pixels


def with_opencv(data: bytes, mode: str) -> Pixels:
    """Decode a JPEG, WebP or BMP of a Pillow mode to (H, W, 3) RGB, not turned, on white."""
    flags = cv2.IMREAD_UNCHANGED if mode in _ALPHA_MODES else cv2.IMREAD_COLOR_RGB
    stored = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flags)
    if stored is None:
        raise ValueError("OpenCV gave no picture")
    if mode in _ALPHA_MODES:
        if data.startswith(b"BM") and not stored[..., 3].any():
            stored[..., 3] = 255  # Viewers show such a BMP: its program left the alpha unset.
        return _on_white(Image.fromarray(cv2.cvtColor(stored, cv2.COLOR_BGRA2RGBA, stored)))
    return np.asarray(stored, np.uint8)


def with_pillow(file: ImageFile.ImageFile) -> Pixels:
    """Decode the first picture to (H, W, 3) RGB, not turned; transparent parts become white."""
    file.load()
    pixels = _on_white(file)
    file.close()  # else Pillow's copy would stay in memory while the pixels are turned
    return pixels


def with_libheif(file: pi_heif.HeifFile) -> Pixels:
    """Decode the primary picture to (H, W, 3) RGB, upright; transparent parts become white."""
    stored = np.asarray(file)
    return np.array(stored) if stored.shape[2:] == (3,) else _on_white(Image.fromarray(stored))


def _on_white(picture: Image.Image) -> Pixels:
    """Convert a picture to RGB on white, in bands, to save the memory of copies of the whole."""
    transparent = picture.mode in _ALPHA_MODES or "transparency" in picture.info
    width, height = picture.size
    pixels = np.empty((height, width, 3), np.uint8)
    step = max(1, _BAND_PIXELS // width)
    for top in range(0, height, step):
        band = picture.crop((0, top, width, min(height, top + step)))
        rows = pixels[top : top + step]
        if band.mode.startswith("I;16"):
            rows[:] = (np.asarray(band) >> 8)[..., None]
            continue
        if transparent:
            white = Image.new("RGBA", band.size, "white")
            band = Image.alpha_composite(white, band.convert("RGBA"))
        rows[:] = np.asarray(band.convert("RGB"))
    return pixels
