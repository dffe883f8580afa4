"""Light, colour and camera of a training window: what the pixels may suffer.

Every function takes and returns (H, W, 3) uint8 RGB and moves nothing: boxes stay.
"""

from functools import cache

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Image = NDArray[np.uint8]


def relight(image: Image, rng: Generator) -> Image:
    """Change exposure, contrast, gamma and white balance; one in four turns to night."""
    night = rng.random() < 0.25
    gain = rng.uniform(0.2, 0.7) if night else np.exp(rng.normal(0, 0.25))
    gamma = np.exp(rng.normal(0, 0.25))
    lift = rng.uniform(-0.06, 0.08)
    # Sodium lamps are yellow, tail lights red, some sensors blue: night tints are stronger.
    tint = np.exp(rng.normal(0, 0.25 if night else 0.08, 3))
    ramp = (np.arange(256) / 255.0) ** gamma
    curves = ramp[:, None] * gain * tint[None] + lift
    table = (np.clip(curves, 0, 1) * 255).astype(np.uint8)
    return cv2.LUT(image, table[None]).astype(np.uint8, copy=False)


def recolour(image: Image, rng: Generator) -> Image:
    """Change saturation, down to grey."""
    grey = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    share = 0.0 if rng.random() < 0.15 else float(rng.uniform(0.3, 1.5))
    return cv2.addWeighted(image, share, grey, 1 - share, 0).astype(np.uint8, copy=False)


def blur(image: Image, rng: Generator) -> Image:
    """Blur by defocus, by motion, or by a smaller sensor."""
    kind = rng.integers(3)
    if kind == 0:
        sigma = float(rng.uniform(0.4, 1.6))
        return cv2.GaussianBlur(image, (0, 0), sigma).astype(np.uint8, copy=False)
    if kind == 1:
        length = int(rng.integers(3, 8))
        kernel = np.zeros((length, length), np.float32)
        angle = rng.uniform(0, np.pi)
        reach = np.array([np.cos(angle), np.sin(angle)]) * length / 2
        middle = (length - 1) / 2
        start, end = np.rint(middle - reach).astype(int), np.rint(middle + reach).astype(int)
        cv2.line(kernel, start.tolist(), end.tolist(), (1.0,))
        return cv2.filter2D(image, -1, kernel / kernel.sum()).astype(np.uint8, copy=False)
    h, w = image.shape[:2]
    share = rng.uniform(0.5, 0.9)
    small = cv2.resize(image, (int(w * share), int(h * share)), interpolation=cv2.INTER_AREA)
    return cv2.resize(small, (w, h), interpolation=cv2.INTER_LINEAR).astype(np.uint8, copy=False)


@cache
def _noise_bank(seed: int = 0, size: int = 512) -> NDArray[np.int16]:
    """Unit normal noise times 32, drawn once: drawing it per window costs more than the rest."""
    normal = np.random.default_rng(seed).normal(0, 32, (2 * size, 2 * size, 3))
    return normal.astype(np.int16)


def add_noise(image: Image, rng: Generator) -> Image:
    """Sensor noise: standard deviation of 2 to 14 grey levels."""
    h, w = image.shape[:2]
    bank = _noise_bank()
    y, x = rng.integers(bank.shape[0] - h), rng.integers(bank.shape[1] - w)
    level = int(rng.uniform(2, 14) * 8)
    noise = (bank[y : y + h, x : x + w].astype(np.int32) * level) >> 8
    return np.clip(image + noise, 0, 255).astype(np.uint8)


def compress(image: Image, rng: Generator) -> Image:
    """A round through JPEG at quality 20 to 90, in place of the video's codec."""
    quality = int(rng.integers(20, 91))
    done, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise RuntimeError(f"OpenCV could not encode a JPEG of shape {image.shape}")
    return cv2.imdecode(data, cv2.IMREAD_COLOR).astype(np.uint8, copy=False)


def degrade(image: Image, rng: Generator) -> Image:
    """Apply a random choice of all of the above, in the order in which a camera does."""
    steps = (
        (0.80, relight),
        (0.30, recolour),
        (0.35, blur),
        (0.25, add_noise),
        (0.45, compress),
    )
    for chance, step in steps:
        if rng.random() < chance:
            image = step(image, rng)
    return image
