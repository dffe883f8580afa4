"""A sensor and what its camera makes of it: colour filters, noise, tone curve, JPEG."""

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from plate_models.training.benchmark.textures import Field, Image

Raw = NDArray[np.uint16]

# Electrons that a saturated pixel holds, logarithmically, by day and by night.
_ELECTRONS, _DARK_ELECTRONS = (2500.0, 25000.0), (700.0, 5000.0)
_READ_NOISE = (2.0, 9.0)
_LEVELS = 4095
_GAMMA, _CONTRAST = (1.9, 2.4), (0.0, 0.35)
_BALANCE, _DARK_BALANCE = 0.03, 0.09
_SATURATION = (0.75, 1.2)
_SHARPEN = (0.0, 0.7)
JPEG_QUALITY = (48, 95)
_CHROMA = (
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
)


def take(light: Field, dark: bool, rng: Generator) -> bytes:
    """From light on the sensor to a file.

    Args:
        light: (H, W, 3) float32 RGB, linear; 1 saturates.
        dark: Whether there are few electrons and the white balance is off.
        rng: Source of all chance.

    Returns:
        A JPEG file.
    """
    raw = _expose(light, dark, rng)
    way = cv2.COLOR_BayerRGGB2RGB_EA if rng.random() < 0.6 else cv2.COLOR_BayerRGGB2RGB
    pixels = _develop(np.asarray(cv2.demosaicing(raw, way), np.uint16), dark, rng)
    quality, chroma = int(rng.integers(*JPEG_QUALITY)), _CHROMA[rng.integers(3)]
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, chroma]
    _, file = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)
    return file.tobytes()


def _expose(light: Field, dark: bool, rng: Generator) -> Raw:
    """Count electrons behind red, green and blue filters; (H, W) uint16, 12 bits."""
    mosaic = light[..., 1].copy()
    mosaic[0::2, 0::2] = light[0::2, 0::2, 0]
    mosaic[1::2, 1::2] = light[1::2, 1::2, 2]
    low, high = _DARK_ELECTRONS if dark else _ELECTRONS
    full = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    electrons = np.clip(mosaic, 0, 1.2) * np.float32(full)
    spread = np.sqrt(electrons + np.float32(rng.uniform(*_READ_NOISE) ** 2))
    noisy = electrons + spread * rng.standard_normal(mosaic.shape, np.float32)
    counts = np.clip(noisy * np.float32(_LEVELS / full), 0, _LEVELS)
    return np.asarray(counts, np.uint16)


def _develop(pixels: Raw, dark: bool, rng: Generator) -> Image:
    """White balance, saturation, tone curve and sharpening; (H, W, 3) uint8."""
    gains = np.exp(rng.normal(0, _DARK_BALANCE if dark else _BALANCE, 3))
    vivid = float(rng.uniform(*_SATURATION))
    mix = vivid * np.eye(3) + (1 - vivid) * np.array([[0.25, 0.5, 0.25]] * 3)
    balanced = cv2.transform(pixels, mix * gains[None])
    x = np.arange(_LEVELS + 1) / _LEVELS
    y = x ** (1 / rng.uniform(*_GAMMA))
    bent = y + rng.uniform(*_CONTRAST) * (y * y * (3 - 2 * y) - y)
    curve = np.clip(bent * 255 + 0.5, 0, 255).astype(np.uint8)
    image = curve[np.minimum(balanced, _LEVELS)]
    amount = float(rng.uniform(*_SHARPEN))
    soft = cv2.blur(image, (3, 3))
    return np.asarray(cv2.addWeighted(image, 1 + amount, soft, -amount, 0), np.uint8)
