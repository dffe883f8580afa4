"""A plate on a vehicle's front, before a wall and the ground, lit by the sun or by lamps.

Light is linear: RGB factors on a surface's reflectance.

A surface's colour, `albedo`, and its share of the directed light, `lit`, are kept apart until the
scene is complete. Lengths are in millimetres from the plate's middle, to the right and down.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training import imaging
from plate_models.training.benchmark.camera import Camera, Frame
from plate_models.training.benchmark.plates import Sheet
from plate_models.training.benchmark.textures import fractal
from plate_models.training.imaging import Field, Floats, Image
from plate_models.training.tables import pick, tables_of

# Odds of sunshine, clouds, a lamp above a yard, dusk, and the camera car's headlamps at night.
_ODDS = (0.34, 0.3, 0.12, 0.1, 0.14)
_SHADOW_SHARE = 0.4
_TO_LINEAR = ((np.arange(256) / 255) ** 2.2).astype(np.float32)
_SHADOW_HW, _SHADOW_MM = (160, 240), 8.3
_SHIFT = 4
_NEAREST_MM = 200
_MOST_FOLD = 8

_TABLES = tables_of(__file__)
# Exposure of a plate's white, as a share of the sensor's range, by day and by night.
_WHITE_LEVEL, _DARK_WHITE_LEVEL = (0.3, 0.9), (0.22, 0.8)
# Directed light of lamps that are on: they are brighter than lit surfaces.
_GLOWING = 3.0
_REACH_MM = 860.0  # half the vehicle's width


@dataclass(frozen=True)
class Light:
    """The light of a scene."""

    sun: Floats  # (3,) unit vector towards the directed light, in camera space
    direct: Floats  # (3,) RGB of the directed light
    ambient: Floats  # (3,) RGB of the ambient light
    returned: float = 1.0  # retroreflection: a plate's brightness, relative to paint of its colour
    far: float = 1.0  # share of the directed light that reaches the background
    shadow: bool = False  # whether something casts a shadow on the vehicle
    dark: bool = False  # at night: few electrons, a strong colour cast

    def on(self, frame: Frame) -> float:
        """Share of the directed light that a surface receives."""
        return max(0.0, float(frame.normal @ self.sun))


def sample_light(rng: Generator, tilt: Floats) -> Light:
    """Draw a light; ``tilt`` is the (3, 3) roll and pitch of the camera."""
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
        lamp = pick(((1.2, 0.9, 0.5), (0.95, 1.05, 0.95), (1.0, 1.0, 1.0)), rng)
        around = _tinted(rng, lamp, float(rng.uniform(0.3, 0.5)))
        return Light(sun, _tinted(rng, lamp, 0.9), around, far=0.4, dark=True)
    blue = (0.85, 0.95, 1.2) if kind == 3 else (0.98, 1.0, 1.03)
    return Light(sun, _tinted(rng, blue, 0.15), _tinted(rng, blue, 0.9), dark=kind == 3)


def infrared(rng: Generator) -> Light:
    """Draw the light of a camera's own lamp at night, beside the lens, with hardly any other."""
    return replace(_headlamps(rng), direct=np.ones(3), ambient=np.full(3, rng.uniform(0.02, 0.1)))


def _headlamps(rng: Generator) -> Light:
    ahead = np.array([rng.uniform(-0.15, 0.15), 0.1, -1.0])
    beam = _tinted(rng, (1.0, 0.93, 0.8), 1.0)
    dim = _tinted(rng, (0.8, 0.85, 1.1), float(rng.uniform(0.03, 0.15)))
    sent_back = float(rng.uniform(1.3, 2.8))
    return Light(ahead / np.linalg.norm(ahead), beam, dim, sent_back, 0.12, dark=True)


def _tinted(rng: Generator, colour: tuple[float, float, float], strength: float) -> Floats:
    return np.asarray(strength * np.array(colour) * np.exp(rng.normal(0, 0.03, 3)))


# Parts from back to front: corners (4, 2) in millimetres, colour, and whether the part glows.
Body = tuple[tuple[Floats, tuple[float, float, float], bool], ...]


@dataclass(frozen=True)
class Vehicle:
    """A vehicle's front and its plate; the plate's middle is the origin of both frames."""

    face: Frame
    plate: Frame
    sheet: Sheet
    px_per_mm: float  # of the sheet in the photo
    body: Body


@dataclass(frozen=True)
class Place:
    """The static part of a scene: the background, and factors on the directed light."""

    background: Image  # (H, W, 3) RGB
    unevenness: Field  # (H, W), on all surfaces but plates
    shadow: Field | None  # (H, W), on all surfaces


def shade(background: Image, camera: Camera, face: Frame, light: Light, rng: Generator) -> Place:
    """Draw the factors on the light; a shadow is projected onto the plane of a vehicle's front."""
    size_hw = background.shape[0], background.shape[1]
    # Light on paint, walls and asphalt is always a little uneven.
    unevenness = 1 + 0.08 * fractal(rng, size_hw, 4, 1.4)
    if not light.shadow:
        return Place(background, unevenness, None)
    middle = imaging.shift_by(-_SHADOW_HW[1] / 2, -_SHADOW_HW[0] / 2)
    view = face.homography(camera) @ np.diag((_SHADOW_MM, _SHADOW_MM, 1)) @ middle
    # Shadows of trees and houses: fine or coarse, with soft or hard edges.
    blots = fractal(rng, _SHADOW_HW, rng.uniform(2, 8), 1.4 if rng.random() < 0.5 else 1.0)
    cast: Field = np.clip(0.5 + float(rng.uniform(1.5, 8)) * blots, 0, 1)
    shadow = imaging.warp(cast, view, camera.size_wh, cv2.BORDER_REFLECT)
    return Place(background, unevenness, shadow)


def choose_exposure(vehicle: Vehicle, light: Light, rng: Generator) -> np.float32:
    """Draw a factor on the scene's light with which the plate's white is well exposed."""
    level = rng.uniform(*(_DARK_WHITE_LEVEL if light.dark else _WHITE_LEVEL))
    brightest = light.on(vehicle.plate) * light.direct.mean() + light.ambient.mean()
    return np.float32(level / float(vehicle.sheet.white * brightest * light.returned))


def compose(place: Place, camera: Camera, vehicles: Sequence[Vehicle], light: Light) -> Field:
    """Render vehicles, the farthest first, in their place: (H, W, 3) float32 linear light."""
    albedo = place.background.copy()
    lit = np.full(albedo.shape[:2], light.far, np.float32)
    for vehicle in vehicles:
        _paint(albedo, lit, camera, vehicle, light)
    lit *= place.unevenness
    surfaces = np.asarray(cv2.LUT(albedo, _TO_LINEAR), np.float32)
    for vehicle in vehicles:
        _lay_plate(surfaces, lit, camera, vehicle, light)
    if place.shadow is not None:
        lit *= place.shadow
    tones = zip(light.direct.astype(np.float32), light.ambient.astype(np.float32), strict=True)
    received = cv2.merge([lit * direct + ambient for direct, ambient in tones])
    return np.asarray(surfaces * received, np.float32)


def draw_body(size_mm: tuple[float, float], rng: Generator) -> Body:
    """Draw the front of a car around a plate."""
    half_w, half_h = size_mm[0] / 2, size_mm[1] / 2
    plastic, paint = _TABLES["plastic"], pick(_TABLES["paints"], rng)
    dim = plastic if rng.random() < 0.5 else (0.6 * paint[0], 0.6 * paint[1], 0.6 * paint[2])
    foot, roof = float(rng.uniform(360, 900)), -float(rng.uniform(430, 740))
    shoulder, seam = -half_h - float(rng.uniform(60, 160)), half_h + float(rng.uniform(20, 120))
    lamp_w, lamp_h = (float(side) for side in rng.uniform((40, 80), (100, 200)))
    lamp, glow = pick(_TABLES["lamps"], rng), rng.random() < 0.35
    niche_w, niche_h = half_w * rng.uniform(1.04, 1.35) + 8, half_h * rng.uniform(1.04, 1.35) + 8
    sink = rng.uniform(-0.1, 0.5) * (niche_h - half_h)
    parts = [
        (_trapezium(roof, 0.8 * _REACH_MM, shoulder, _REACH_MM), paint, False),
        (_trapezium(shoulder, _REACH_MM, 0.7 * foot, _REACH_MM), paint, False),
        (_trapezium(roof + 25, 540, roof + 140, 600), _TABLES["glass"], False),
        (_trapezium(seam, _REACH_MM, 0.7 * foot, _REACH_MM), dim, False),
        (_trapezium(sink - niche_h, niche_w, sink + niche_h, niche_w), dim, False),
    ]
    for side in (-1, 1):
        wheel = _trapezium(0.7 * foot, 110, foot, 110) + np.array((side * 680, 0))
        pane = _trapezium(shoulder, lamp_w, shoulder + lamp_h, lamp_w)
        pane += np.array((side * (_REACH_MM - lamp_w), 0))
        parts += [(wheel, plastic, False), (pane, lamp, glow)]
    return tuple(parts)


def _paint(albedo: Image, lit: Field, camera: Camera, vehicle: Vehicle, light: Light) -> None:
    face, share = vehicle.face, light.on(vehicle.face)
    view = face.homography(camera)
    for corners, colour, glows in vehicle.body:
        if (corners @ face.turn[2, :2] + face.origin[2]).min() > _NEAREST_MM:
            path = np.rint(imaging.apply_homography(view, corners) * (1 << _SHIFT)).astype(np.int32)
            cv2.fillPoly(albedo, [path], colour, cv2.LINE_AA, _SHIFT)
            cv2.fillPoly(lit, [path], (_GLOWING if glows else share,), cv2.LINE_8, _SHIFT)


def _trapezium(top: float, top_half: float, foot: float, foot_half: float) -> Floats:
    """(4, 2) corners of a trapezium that is symmetric about the plate's vertical axis."""
    half = [(-top_half, top), (top_half, top), (foot_half, foot), (-foot_half, foot)]
    return np.array(half, np.float64)


def _lay_plate(surfaces: Field, lit: Field, camera: Camera, vehicle: Vehicle, light: Light) -> None:
    plate, sheet = vehicle.plate, vehicle.sheet
    view = plate.homography(camera) @ sheet.to_mm
    hull = imaging.apply_homography(view, imaging.box_corners(*sheet.cover.shape[::-1]))
    x0, y0 = np.clip(np.floor(hull.min(axis=0)), 0, None).astype(int).tolist()
    x1, y1 = np.clip(np.ceil(hull.max(axis=0)), 0, camera.size_wh).astype(int).tolist()
    if x0 >= x1 or y0 >= y1:
        return
    layers = np.dstack((sheet.reflectance * np.float32(light.returned), np.ones_like(sheet.cover)))
    layers *= sheet.cover[..., None]
    # Samples per pixel and axis, so that none of the sheet's pixels is skipped.
    fold = int(np.clip(round(1 / sheet.to_mm[0, 0] / vehicle.px_per_mm), 2, _MOST_FOLD))
    view = imaging.shift_by(-x0, -y0) @ view
    warped = imaging.warp_layers(layers, view, (x1 - x0, y1 - y0), fold)
    cover = warped[..., 3]
    surfaces[y0:y1, x0:x1] += warped[..., :3] - cover[..., None] * surfaces[y0:y1, x0:x1]
    lit[y0:y1, x0:x1] += cover * (light.on(plate) - lit[y0:y1, x0:x1])
