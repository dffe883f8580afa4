"""A yard or a street in space: sky, a wall, the ground, and vehicles with their plates.

What a surface is, `albedo`, and how much directed light falls on it, `lit`, are kept apart until
all is in place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training.benchmark.camera import Camera, Frame, turn_about
from plate_models.training.benchmark.light import Light, cast_shadow, gleam, relief
from plate_models.training.benchmark.plates import draw_sheet
from plate_models.training.benchmark.textures import WALLS, colour_field, fractal, ground
from plate_models.training.benchmark.vehicles import LENGTH_MM, Body, Brush, draw_vehicle
from plate_models.training.imaging import (
    Field,
    Floats,
    apply_homography,
    box_corners,
    see,
    shift_by,
    warp,
)
from plate_models.training.synthetic.kinds import Layout

_TO_LINEAR = ((np.arange(256) / 255) ** 2.2).astype(np.float32)
_SKY = ((118, 150, 196), (196, 208, 222), (226, 228, 230))
_GROUND_PX, _GROUND_MM = 768, 9.0
_WALL_PX_PER_M = 80.0
# Plates are drawn at one of these resolutions, at least twice as fine as they are seen.
_SHEET_PX_PER_MM = (0.75, 1.5, 3.0)
_SHADOW_HW, _SHADOW_MM = (160, 240), 8.3


@dataclass(frozen=True)
class Vehicle:
    """A vehicle and the plate on it."""

    frame: Frame  # where it stands; its origin is the plate's middle
    plate: Frame  # how its plate hangs there
    body: Body  # what it is
    ground_mm: float  # height of the plate above the ground
    kind: str  # of the plate, a key of ``KINDS``
    text: str  # of the plate
    layout: Layout  # of the plate
    px_per_mm: float  # of the plate in the picture, about

    def outline(self, camera: Camera) -> Floats:
        """(8, 2) corners in the picture of the box that the vehicle fills."""
        reach, far = self.body.reach, LENGTH_MM if self.body.hull else 0.0
        corners = [(x, y, z) for x in (-reach, reach) for y in (-500, 500) for z in (0, far)]
        return camera.project(self.frame.at(np.array(corners)))


def build(
    camera: Camera, vehicles: Sequence[Vehicle], light: Light, tilt: Floats, rng: Generator
) -> tuple[Field, float]:
    """Put a scene together.

    Returns (H, W, 3) float32 linear light, and that of the last plate's white.
    """
    width, height = camera.size_wh
    rise = np.linspace(0.2, 1, height)[:, None]
    albedo = colour_field(rise + 0.08 * fractal(rng, (height, width), 8, 1.6), _SKY)
    lit = np.full((height, width), light.far, np.float32)
    brushes = [Brush(albedo, lit, camera, v.frame, light.on(v.frame)) for v in vehicles]
    for scenery in (_lay_ground, _raise_wall):
        scenery(brushes[-1], vehicles[-1].ground_mm, light, tilt, rng)
    for brush, vehicle in zip(brushes, vehicles, strict=True):
        draw_vehicle(brush, vehicle.body, vehicle.layout.size_mm, vehicle.ground_mm, rng)
    # Paint, walls and asphalt are never lit quite evenly.
    lit *= 1 + 0.08 * fractal(rng, (height, width), 4, 1.4)
    surfaces = _TO_LINEAR[albedo]
    white = [_hang_plate(surfaces, lit, camera, vehicle, light, rng) for vehicle in vehicles]
    if light.shadow:
        middle = shift_by(-_SHADOW_HW[1] / 2, -_SHADOW_HW[0] / 2)
        view = vehicles[-1].frame.homography(camera) @ np.diag((_SHADOW_MM, _SHADOW_MM, 1)) @ middle
        lit *= warp(cast_shadow(rng, _SHADOW_HW), view, camera.size_wh, cv2.BORDER_REFLECT)
    received = lit[..., None] * light.direct.astype(np.float32) + light.ambient.astype(np.float32)
    return surfaces * received, white[-1]


def _lay_ground(brush: Brush, ground_mm: float, light: Light, tilt: Floats, rng: Generator) -> None:
    camera = brush.camera
    origin = brush.frame.at(np.array([[0, ground_mm, 0]]))[0]
    flat = Frame(origin, tilt @ turn_about("x", 90)).homography(camera)
    middle = shift_by(-_GROUND_PX / 2, -_GROUND_PX / 2)
    view = flat @ np.diag((_GROUND_MM, _GROUND_MM, 1)) @ middle
    texture = ground(rng, (_GROUND_PX, _GROUND_PX))
    seen = warp(texture, view, camera.size_wh, cv2.BORDER_WRAP)
    # Only what lies before the camera is ground: there the depth is positive.
    depth = np.linalg.inv(flat)[2]
    width, height = camera.size_wh
    y, x = np.arange(height)[:, None], np.arange(width)[None]
    below = depth[0] * x + depth[1] * y + depth[2] > 0
    brush.albedo[below] = seen[below]
    brush.lit[below] = max(0.25, float(-tilt[:, 1] @ light.sun)) * max(light.far, 0.35)


def _raise_wall(brush: Brush, ground_mm: float, light: Light, tilt: Floats, rng: Generator) -> None:
    """A wall or a hedge some metres behind a vehicle."""
    camera = brush.camera
    distance, tall = rng.uniform(3500, 12000), float(rng.uniform(2200, 9000))
    foot = brush.frame.at(np.array([[0, ground_mm, 0]]))[0] + tilt[:, 2] * distance
    frame = Frame(foot, tilt @ turn_about("y", rng.uniform(-22, 22)))
    size = round(min(tall, 6000) / 1000 * _WALL_PX_PER_M), round(12 * _WALL_PX_PER_M)
    texture = WALLS[rng.integers(len(WALLS))](rng, size, _WALL_PX_PER_M)
    corners = np.array([(-13000, -tall, 0), (13000, -tall, 0), (13000, 0, 0), (-13000, 0, 0)])
    placed = frame.at(corners)
    if placed[:, 2].min() < 500:
        return
    mm = 1000 / _WALL_PX_PER_M
    view = frame.homography(camera) @ np.diag((mm, mm, 1)) @ shift_by(-size[1] / 2, -size[0])
    mask = np.zeros(brush.lit.shape, np.uint8)
    cv2.fillConvexPoly(mask, np.rint(camera.project(placed)).astype(np.int32), (1,))
    cv2.copyTo(warp(texture, view, camera.size_wh, cv2.BORDER_REFLECT), mask, brush.albedo)
    brush.lit[mask > 0] = light.on(frame) * light.far


def _hang_plate(
    surfaces: Field, lit: Field, camera: Camera, vehicle: Vehicle, light: Light, rng: Generator
) -> float:
    """Lay a vehicle's plate over the surfaces, in place; returns the light of its white."""
    fine = next((p for p in _SHEET_PX_PER_MM if p >= 2 * vehicle.px_per_mm), _SHEET_PX_PER_MM[-1])
    sheet = draw_sheet(vehicle.text, vehicle.kind, vehicle.layout, fine, rng)
    flanks = relief(sheet.height, vehicle.plate, light.sun, float(rng.uniform(0, 0.5)))
    shining = gleam(rng, (sheet.cover.shape[0], sheet.cover.shape[1]))
    seen = sheet.reflectance * (1 + flanks)[..., None] + np.asarray(shining, np.float32)[..., None]
    view = vehicle.plate.homography(camera) @ sheet.to_mm
    hull = apply_homography(view, box_corners(*sheet.cover.shape[::-1]))
    x0, y0 = np.clip(np.floor(hull.min(axis=0)), 0, None).astype(int).tolist()
    x1, y1 = np.clip(np.ceil(hull.max(axis=0)), 0, camera.size_wh).astype(int).tolist()
    fold = int(np.clip(round(fine / vehicle.px_per_mm), 2, 5))
    layers = np.dstack((seen * np.float32(light.returned), np.ones_like(sheet.cover)))
    layers *= sheet.cover[..., None]
    seen = see(layers, shift_by(-x0, -y0) @ view, (x1 - x0, y1 - y0), fold)
    cover, share = seen[..., 3], light.on(vehicle.plate)
    surfaces[y0:y1, x0:x1] += seen[..., :3] - cover[..., None] * surfaces[y0:y1, x0:x1]
    lit[y0:y1, x0:x1] += cover * (share - lit[y0:y1, x0:x1])
    brightest = share * light.direct.mean() + light.ambient.mean()
    return float(sheet.white * brightest * light.returned)
