"""Motion blur: which way a plate moved while it was photographed, and crops without that blur.

What moves straight on is seen as its mean along the way, which a Wiener filter takes back if it
knows the way. The direction shows in the picture, which stays sharp across it. The length hardly
does: a caller tries several, and reads a text only near the true one.
"""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from plate_models.pixels import Floats, to_device

# Only details count, in pixels of a rectified plate: what is larger, no blur hides.
_DETAILS = 2.0
# Power of the noise beside that of the picture: with less there is grain, with more blur stays.
_NOISE = 0.01
# Rows and columns that are mirrored beyond each edge: the transform takes a picture for a ring.
_BEYOND_HW = (16, 20)


def blur_of(plate: NDArray[np.uint8], quad: Floats) -> tuple[complex, float]:
    """Which way a rectified plate is blurred most, and how sharp it is along that way.

    The plate is (H, W, 3) uint8 RGB; its quad, (4, 2) TL, TR, BR, BL, is in the photo's pixels.
    Returns the way there, x + iy of length 1, and in [0, 1] the slope of brightness along it by
    that across, root mean squares.
    """
    grey = plate.mean(axis=2)
    slopes = np.gradient(grey - cv2.GaussianBlur(grey, (0, 0), _DETAILS))
    across_and_down = (quad[[1, 3]] - quad[0]) / np.array([plate.shape[1::-1]]).T
    in_photo = np.linalg.pinv(across_and_down) @ np.stack([slope.ravel() for slope in slopes[::-1]])
    powers, ways = np.linalg.eigh(in_photo @ in_photo.T)
    return complex(*ways[:, 0]), float(np.sqrt(max(powers[0], 0) / max(powers[1], 1e-9)))


def without_motion(crops: Any, motions: Floats) -> Any:
    """Take the blur of motion from crops (N, 3, h, w) float32 in [0, 255], arrays or tensors.

    The motions, (N, 2) x and y, are in the crops' pixels; which end was first makes no difference.
    """
    on_host = isinstance(crops, np.ndarray)
    fft: Any = np.fft
    if not on_host:
        import torch

        fft = torch.fft
    height, width = crops.shape[2:]
    beyond, aside = _BEYOND_HW
    rows, columns = _mirrored(height, beyond), _mirrored(width, aside)
    grey = crops.mean(axis=1, keepdims=True)  # colours stay as they are
    padded = grey[:, :, rows[:, None], columns]
    y, x = np.fft.fftfreq(len(rows))[:, None], np.fft.rfftfreq(len(columns))
    across, down = motions.T[:, :, None, None, None]
    seen = np.sinc(across * x + down * y).astype(np.float32)
    gain = seen * (1 + _NOISE) / (seen**2 + _NOISE)
    spectrum = fft.rfft2(padded) * (gain if on_host else to_device(gain, crops.device))
    sharp = fft.irfft2(spectrum, padded.shape[2:])[:, :, beyond:, aside:][:, :, :height, :width]
    sharp = (crops + sharp - grey).clip(0, 255)
    return sharp.astype(np.float32) if on_host else sharp


def _mirrored(length: int, beyond: int) -> NDArray[np.int64]:
    """Indices along an axis and back from its ends, for so many beyond each."""
    places = np.abs(np.arange(-beyond, length + beyond))
    return np.asarray(np.minimum(places, 2 * (length - 1) - places))
