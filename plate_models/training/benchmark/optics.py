"""Lens, sensor and image processing of a camera: from linear light to a JPEG file."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from plate_models.training.imaging import Field, Floats, Image, encode_jpeg, motion_kernel
from plate_models.training.tables import log_uniform, pick

_BEND = (-0.05, 0.16)
_FALL_OFF = (0.0, 0.45)
# Radius of the defocus disc and length of the motion blur, as shares of the smallest characters'
# height.
_DISC, _MOTION = (0.02, 0.085), (0.06, 0.18)
_MOTION_SHARE = 0.3
_VEIL = (0.0, 0.05)


@dataclass(frozen=True)
class Lens:
    """A lens, and the motion blur in front of it."""

    size_wh: tuple[int, int]  # of the image
    bend: float  # radial distortion: positive is barrel distortion
    fall_off: float  # loss of light in the corners (vignetting)
    disc_px: float  # radius of the defocus disc
    motion_px: tuple[float, float]  # (x, y) motion of the image during the exposure
    veil: float  # stray light, as a share of the image's mean

    def bend_points(self, points: Floats) -> Floats:
        """Distort (N, 2) points, in pixels: inverts `_straighten` by fixed-point iteration."""
        bent = points
        for _ in range(25):
            bent = bent + points - _straighten(bent, self.size_wh, self.bend)
        return bent

    def project(self, image: Field) -> Field:
        """Apply defocus, motion blur, distortion, vignetting and veil to (H, W, 3) float32."""
        kernels = [_disc(self.disc_px)]
        if any(self.motion_px):
            kernels.append(motion_kernel(*self.motion_px))
        for kernel in kernels:
            image = np.asarray(cv2.filter2D(image, -1, kernel, borderType=cv2.BORDER_REFLECT))
        column, row, radius = _rays(self.size_wh, self.bend)
        bent = cv2.remap(image, column, row, cv2.INTER_LINEAR, None, cv2.BORDER_REFLECT)
        veil = self.veil * float(image.mean())
        left = 1 - self.fall_off * radius
        return np.asarray(bent * cv2.merge([left, left, left]) + veil, np.float32)


def _straighten(points: NDArray[Any], size_wh: tuple[int, int], bend: float) -> NDArray[Any]:
    """Undistort points (..., 2) of an image, in pixels, to those of a pinhole camera."""
    middle = np.array(size_wh, np.float32) / 2
    off = points - middle
    # The distortion stays constant far outside the image; else `bend_points` would diverge.
    radius = np.minimum((off[..., :1] ** 2 + off[..., 1:] ** 2) / (middle**2).sum(), 4)
    return np.asarray(middle + off * (1 + bend * radius) / (1 + max(bend, 0)))


# All frames of a video have the same distortion.
@lru_cache(maxsize=1)
def _rays(size_wh: tuple[int, int], bend: float) -> tuple[Field, Field, Field]:
    """Each pixel's column and row in the pinhole image, and its squared radius up to 1."""
    middle = np.array(size_wh, np.float32) / 2
    x, y = (np.arange(side, dtype=np.float32) + 0.5 for side in size_wh)
    places = np.stack(np.meshgrid(x, y), axis=-1)
    across, down = cv2.split((places - middle) ** 2)
    radius = (across + down) / (middle**2).sum()
    column, row = cv2.split(_straighten(places, size_wh, bend) - 0.5)
    return np.asarray(column), np.asarray(row), np.asarray(radius)


def sample_lens(rng: Generator, size_wh: tuple[int, int], character_px: float) -> Lens:
    """Draw a lens whose blur leaves characters of this height legible."""
    angle, way = rng.normal(0, 0.35), 0.0
    if rng.random() < _MOTION_SHARE:
        way = float(rng.uniform(*_MOTION)) * character_px
    return Lens(
        size_wh,
        bend=float(rng.uniform(*_BEND)),
        fall_off=float(rng.uniform(*_FALL_OFF)),
        disc_px=float(rng.uniform(*_DISC)) * character_px,
        motion_px=(way * float(np.cos(angle)), way * float(np.sin(angle))),
        veil=float(rng.uniform(*_VEIL)),
    )


def _disc(radius: float) -> Field:
    """The kernel of a defocus disc with an anti-aliased edge."""
    reach = int(np.ceil(radius))
    side = np.arange(-reach, reach + 1)
    cover = np.clip(radius + 0.5 - np.hypot(side[:, None], side[None]), 0, 1)
    return np.asarray(cover / cover.sum(), np.float32)


Raw = NDArray[np.uint16]

# Electrons of a saturated pixel, drawn log-uniformly, by day and by night.
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


def sense(light: Field, dark: bool, rng: Generator, noise: Generator | None = None) -> Image:
    """Turn light on the sensor into pixels, (H, W, 3) uint8 RGB.

    ``rng`` draws the camera's properties, and its noise, too, if there is no generator for that.
    """
    raw = _expose(light, dark, rng, noise or rng)
    way = cv2.COLOR_BayerRGGB2RGB_EA if rng.random() < 0.6 else cv2.COLOR_BayerRGGB2RGB
    return _develop(np.asarray(cv2.demosaicing(raw, way), np.uint16), dark, rng)


def store(pixels: Image, rng: Generator) -> bytes:
    """Encode pixels as a JPEG file of random quality and chroma subsampling."""
    quality, chroma = int(rng.integers(*JPEG_QUALITY)), pick(_CHROMA, rng)
    return encode_jpeg(pixels, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, chroma).tobytes()


def _expose(light: Field, dark: bool, rng: Generator, noise: Generator) -> Raw:
    """Count electrons behind a Bayer filter; (H, W) uint16, 12 bits."""
    mosaic = light[..., 1].copy()
    mosaic[0::2, 0::2] = light[0::2, 0::2, 0]
    mosaic[1::2, 1::2] = light[1::2, 1::2, 2]
    full = log_uniform(_DARK_ELECTRONS if dark else _ELECTRONS, rng)
    electrons = np.clip(mosaic, 0, 1.2) * np.float32(full)
    spread = np.sqrt(electrons + np.float32(rng.uniform(*_READ_NOISE) ** 2))
    noisy = electrons + spread * noise.standard_normal(mosaic.shape, np.float32)
    return np.asarray(np.clip(noisy * np.float32(_LEVELS / full), 0, _LEVELS), np.uint16)


def _develop(pixels: Raw, dark: bool, rng: Generator) -> Image:
    """Apply white balance, saturation, tone curve and sharpening; (H, W, 3) uint8."""
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
