"""Sun, sky and lamps, and the shadows they cast.

Light is linear here: RGB factors on what a surface reflects.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from plate_models.training.benchmark.camera import Frame
from plate_models.training.benchmark.textures import fractal
from plate_models.training.imaging import Field, Floats

# Sunshine, clouds, a lamp above a yard, dusk, the own headlamps by night.
_ODDS = (0.34, 0.3, 0.12, 0.1, 0.14)
_SHADOW_SHARE = 0.4


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
    far: float = 1.0  # share of the directed light that the background gets
    shadow: bool = False  # whether something casts a shadow on the vehicle
    dark: bool = False  # by night: few electrons, a strong cast

    def on(self, frame: Frame) -> float:
        """Share of the directed light that a surface receives."""
        return max(0.0, float(frame.normal @ self.sun))


def sample_light(rng: Generator, tilt: Floats) -> Light:
    """Choose a light; ``tilt`` is the (3, 3) roll and pitch of the camera."""
    kind = int(np.searchsorted(np.cumsum(_ODDS), rng.random()))
    if kind == 4:
        return _headlamps(rng)
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


def infrared(rng: Generator) -> Light:
    """A camera's own lamp by night: it stands beside the lens, and hardly anything else shines."""
    return replace(_headlamps(rng), direct=np.ones(3), ambient=np.full(3, rng.uniform(0.02, 0.1)))


def _headlamps(rng: Generator) -> Light:
    ahead = np.array([rng.uniform(-0.15, 0.15), 0.1, -1.0])
    beam = _tinted(rng, (1.0, 0.93, 0.8), 1.0)
    dim = _tinted(rng, (0.8, 0.85, 1.1), float(rng.uniform(0.03, 0.15)))
    sent_back = float(rng.uniform(1.3, 2.8))
    return Light(ahead / np.linalg.norm(ahead), beam, dim, sent_back, 0.12, dark=True)


def _tinted(rng: Generator, colour: tuple[float, float, float], strength: float) -> Floats:
    tinted: Floats = strength * np.array(colour) * np.exp(rng.normal(0, 0.03, 3))
    return tinted


def cast_shadow(rng: Generator, size_hw: tuple[int, int]) -> Field:
    """Shadows of trees and houses: fine or coarse, with soft or hard edges.

    Returns (H, W) float32: 1 where directed light comes through.
    """
    blots = fractal(rng, size_hw, rng.uniform(2, 8), 1.4 if rng.random() < 0.5 else 1.0)
    return np.clip(0.5 + float(rng.uniform(1.5, 8)) * blots, 0, 1)
