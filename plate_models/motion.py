"""Motion blur: the direction in which a plate moved during the exposure, and deblurred crops.

A plate that moves in a straight line is averaged along its path. A Wiener filter reverses that if
direction and length of the path are known. The picture shows the direction: across it, edges stay
sharp. It hardly shows the length: callers try several, and can read a text only near the true one.
"""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from plate_models.pixels import Floats, to_device

# Sigma of the high-pass filter, in pixels of a rectified plate: coarser structures show no blur.
_DETAIL_SIGMA = 2.0
# The Wiener filter's noise power relative to the signal's: a lower one leaves grain, a higher blur.
_NOISE = 0.01
# Rows and columns mirrored beyond each edge: the Fourier transform takes a picture as periodic.
_PADDING_HW = (16, 20)


def blur_of(plate: NDArray[np.uint8], quad: Floats) -> tuple[complex, float]:
    """Direction in which a rectified plate is blurred most, and its sharpness along it.

    The plate is (H, W, 3) uint8 RGB; its quad (4, 2), TL, TR, BR, BL, is in photo pixels. Returns
    the direction in the photo, x + iy of length 1, and the ratio in [0, 1] of the brightness'
    slope along it to the slope across it, both as root mean squares.
    """
    grey = plate.mean(axis=2)
    slopes = np.gradient(grey - cv2.GaussianBlur(grey, (0, 0), _DETAIL_SIGMA))
    across_and_down = (quad[[1, 3]] - quad[0]) / np.array([plate.shape[1::-1]]).T
    in_photo = np.linalg.pinv(across_and_down) @ np.stack([slope.ravel() for slope in slopes[::-1]])
    powers, directions = np.linalg.eigh(in_photo @ in_photo.T)
    return complex(*directions[:, 0]), float(np.sqrt(max(powers[0], 0) / max(powers[1], 1e-9)))


def without_motion(crops: Any, motions: Floats) -> Any:
    """Deblur crops (N, 3, h, w) float32 in [0, 255], arrays or tensors.

    The motions (N, 2), x and y, are in the crops' pixels; opposite motions give the same result.
    """
    on_host = isinstance(crops, np.ndarray)
    fft: Any = np.fft
    if not on_host:
        import torch

        fft = torch.fft
    height, width = crops.shape[2:]
    pad_h, pad_w = _PADDING_HW
    rows = np.pad(np.arange(height), pad_h, "reflect")
    columns = np.pad(np.arange(width), pad_w, "reflect")
    grey = crops.mean(axis=1, keepdims=True)  # only brightness is deblurred
    padded = grey[:, :, rows[:, None], columns]
    y, x = np.fft.fftfreq(len(rows))[:, None], np.fft.rfftfreq(len(columns))
    across, down = motions.T[:, :, None, None, None]
    transfer = np.sinc(across * x + down * y).astype(np.float32)
    gain = transfer * (1 + _NOISE) / (transfer**2 + _NOISE)
    spectrum = fft.rfft2(padded) * (gain if on_host else to_device(gain, crops.device))
    sharp = fft.irfft2(spectrum, padded.shape[2:])[:, :, pad_h:, pad_w:][:, :, :height, :width]
    sharp = (crops + sharp - grey).clip(0, 255)
    return sharp.astype(np.float32) if on_host else sharp
