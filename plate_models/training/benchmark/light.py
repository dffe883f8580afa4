"""Sun, sky and lamps, the shadows they cast, and what they show of a sheet's surface.

Light is linear here: RGB factors on what a surface reflects.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training.benchmark.camera import Frame
from plate_models.training.benchmark.textures import fractal
from plate_models.training.imaging import Field, Floats

# Sunshine, clouds, a lamp above a yard, dusk, the own headlamps by night.
_ODDS = (0.34, 0.3, 0.12, 0.1, 0.14)
_SHADOW_SHARE, _GLEAM_SHARE = 0.4, 0.2
_GLEAM = (0.04, 0.28)


@dataclass(frozen=True)
class Light:
    """The light of a scene."""

    sun: Floats  # (3,) unit vector towards the directed light, in camera space
    # direct, ambient: (3,) RGB of the directed light and of that from everywhere.
    direct: Floats
    ambient: Floats
    # How much brighter a plate's sheet is than paint of its colour, because it sends light back to
    # where it came from.
    returned: float = 1.0
    far: float = 1.0  # share of the directed light that reaches what is far behind
    shadow: bool = False  # whether something casts a shadow on the vehicle
    dark: bool = False  # by night: few electrons, a strong cast

    def on(self, frame: Frame) -> float:
        """Share of the directed light that a surface receives."""
        return max(0.0, float(frame.normal @ self.sun))


def sample_light(rng: Generator, tilt: Floats) -> Light:
    """Choose a light; ``tilt`` is the (3, 3) roll and pitch of the camera."""
    kind = int(np.searchsorted(np.cumsum(_ODDS), rng.random()))
    if kind == 4:
        ahead = np.array([rng.uniform(-0.15, 0.15), 0.1, -1.0])
        beam = _tinted(rng, (1.0, 0.93, 0.8), 1.0)
        dim = _tinted(rng, (0.8, 0.85, 1.1), float(rng.uniform(0.03, 0.15)))
        sent_back = float(rng.uniform(1.3, 2.8))
        return Light(ahead / np.linalg.norm(ahead), beam, dim, sent_back, 0.12, dark=True)
    elevation, azimuth = np.radians(rng.uniform(12, 62)), np.radians(rng.uniform(-80, 80))
    level = np.cos(elevation)
    sun = tilt @ np.array([np.sin(azimuth) * level, -np.sin(elevation), -np.cos(azimuth) * level])
    if kind == 0:
        shadow = bool(rng.random() < _SHADOW_SHARE)
        sky = _tinted(rng, (0.88, 0.97, 1.15), float(rng.uniform(0.4, 0.7)))
        return Light(sun, _tinted(rng, (1.05, 1.0, 0.9), 1.0), sky, shadow=shadow)
    if kind == 2:
        lamp = ((1.2, 0.9, 0.5), (0.95, 1.05, 0.95), (1.0, 1.0, 1.0))[rng.integers(3)]
        around = _tinted(rng, lamp, float(rng.uniform(0.3, 0.5)))
        return Light(sun, _tinted(rng, lamp, 0.9), around, far=0.4, dark=True)
    blue = (0.85, 0.95, 1.2) if kind == 3 else (0.98, 1.0, 1.03)
    return Light(sun, _tinted(rng, blue, 0.15), _tinted(rng, blue, 0.9), dark=kind == 3)


def _tinted(rng: Generator, colour: tuple[float, float, float], strength: float) -> Floats:
    tinted: Floats = strength * np.array(colour) * np.exp(rng.normal(0, 0.03, 3))
    return tinted


def cast_shadow(rng: Generator, size_hw: tuple[int, int]) -> Field:
    """A shadow about the middle of a field: an edge, bars, or a tree's leaves.

    Returns (H, W) float32: 1 where directed light comes through.
    """
    kind = int(rng.integers(3))
    if kind == 2:
        return np.clip(0.5 + 2.5 * fractal(rng, size_hw, rng.uniform(2, 5)), 0, 1)
    lit = np.ones(size_hw, np.float32)
    middle = np.array(size_hw[::-1]) / 2 + rng.normal(0, 1, 2) * (15, 5)
    angle = rng.uniform(0, np.pi)
    along = np.array([np.cos(angle), np.sin(angle)])
    side = np.array([-along[1], along[0]])
    for index in range(1 if kind == 0 else 5):
        width = 1000.0 if kind == 0 else float(rng.uniform(3, 7))
        start = middle + side * (0 if kind == 0 else (index - 2) * 22)
        corners = [start - 600 * along, start + 600 * along]
        corners += [point + width * side for point in reversed(corners)]
        cv2.fillConvexPoly(lit, np.rint(corners).astype(np.int32), (0.0,))
    return np.asarray(cv2.GaussianBlur(lit, (0, 0), rng.uniform(0.5, 2.5)), np.float32)


def relief(height: Field, frame: Frame, sun: Floats, strength: float) -> Field:
    """How much brighter or darker the flanks of raised characters are, (H, W) float32."""
    soft = cv2.GaussianBlur(height, (0, 0), 1.2)
    across = cv2.Sobel(soft, cv2.CV_32F, 1, 0, ksize=1)
    down = cv2.Sobel(soft, cv2.CV_32F, 0, 1, ksize=1)
    right, low, _ = (float(share) for share in sun @ frame.turn)
    return np.asarray(-strength * (across * right + down * low), np.float32)


def gleam(rng: Generator, size_hw: tuple[int, int]) -> Field | float:
    """A broad highlight somewhere on a sheet, as reflectance added; 0 mostly."""
    if rng.random() >= _GLEAM_SHARE:
        return 0.0
    height, width = size_hw
    x = (np.arange(width) / width - rng.uniform(0, 1)) / rng.uniform(0.15, 0.5)
    y = (np.arange(height) / width - rng.uniform(0, height / width)) / rng.uniform(0.1, 0.4)
    lobe = np.outer(np.exp(-(y**2)), np.exp(-(x**2))) * rng.uniform(*_GLEAM)
    return np.asarray(lobe, np.float32)
