"""A yard or a street in space: sky, a wall, the ground, and vehicles with their plates.

Everything flat is drawn on its plane and seen through that plane's homography. What a
surface is, `albedo`, and how much directed light falls on it, `lit`, are kept apart until
all is in place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training.benchmark.camera import (
    Camera,
    Floats,
    Plane,
    Pose,
    corners_of,
    transform,
    turn_about,
)
from plate_models.training.benchmark.light import (
    SHADOW_PX_PER_MM,
    Light,
    cast_shadow,
    gleam,
    relief,
)
from plate_models.training.benchmark.plates import Sheet, draw_sheet
from plate_models.training.benchmark.textures import (
    WALLS,
    Colour,
    Field,
    Image,
    Picture,
    asphalt,
    colour_field,
    fractal,
    paving,
    snow,
)
from plate_models.training.benchmark.vehicles import (
    HULL_TOP_MM,
    REACH_MM,
    Draw,
    disc,
    draw_face,
    times,
)
from plate_models.training.synthetic.kinds import Layout

_TO_LINEAR = ((np.arange(256) / 255) ** 2.2).astype(np.float32)


@dataclass
class Stage:
    """A picture in the making."""

    albedo: Image  # (H, W, 3) uint8 RGB
    lit: Field  # (H, W) float32, the share of directed light
    glow: Field = field(init=False)  # (H, W) float32, light of lamps in the picture

    def __post_init__(self) -> None:
        self.glow = np.zeros_like(self.lit)

    def shine(self, light: Light) -> Field:
        """(H, W, 3) float32 linear light."""
        colours = cv2.split(np.asarray(cv2.LUT(self.albedo, _TO_LINEAR), np.float32))
        lamps = bool(self.glow.any())
        halo = _halo(self.glow) if lamps else self.glow
        channels = []
        for colour, direct, ambient in zip(colours, light.direct, light.ambient, strict=True):
            seen = colour * (self.lit * np.float32(direct) + np.float32(ambient))
            channels.append(seen + colour * self.glow + 0.03 * halo if lamps else seen)
        return np.asarray(cv2.merge(channels), np.float32)

    def fill(self, camera: Camera, points: Floats, colour: tuple[float, ...], share: float) -> None:
        """Fill a polygon in space, (N, 3) in camera space, if all of it lies before the camera."""
        if points[:, 2].min() < 200:
            return
        path = np.rint(camera.project(points)).astype(np.int32)
        cv2.fillPoly(self.albedo, [path], colour, cv2.LINE_AA)
        cv2.fillPoly(self.lit, [path], (share,))


def window(shape: tuple[int, ...], view: Floats, size_wh: tuple[int, ...]) -> tuple[slice, slice]:
    """Rows and columns of the picture that something of a shape (h, w, ...) appears in."""
    height, width = shape[:2]
    hull = transform(view, np.array([(0, 0), (width, 0), (width, height), (0, height)]))
    limit = np.array(size_wh) - 1
    x0, y0 = np.clip(np.floor(hull.min(axis=0)), 0, limit).astype(int).tolist()
    x1, y1 = np.clip(np.ceil(hull.max(axis=0)), 0, limit).astype(int).tolist()
    return slice(y0, y1 + 1), slice(x0, x1 + 1)


def warp(
    image: Picture,
    view: Floats,
    size_wh: tuple[int, int],
    border: int = cv2.BORDER_REPLICATE,
) -> Picture:
    """`cv2.warpPerspective`, whose places are pixels' middles, for places from corners."""
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    matrix = np.linalg.inv(half) @ view @ half
    flags = cv2.INTER_LINEAR
    warped = cv2.warpPerspective(image, matrix, size_wh, flags=flags, borderMode=border)
    return np.asarray(warped, image.dtype)


def _halo(glow: Field) -> Field:
    small = cv2.resize(glow, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    soft = cv2.GaussianBlur(small, (0, 0), 6)
    return np.asarray(cv2.resize(soft, glow.shape[::-1]), np.float32)


_GROUND_PX, _GROUND_MM = 768, 9.0
_WALL_PX_PER_M = 80.0
# Plates are drawn at one of these resolutions, at least twice as fine as they are seen.
_SHEET_PX_PER_MM = (0.75, 1.5, 3.0)
_HULL_MM = 3900.0
_FACE_BOX_MM = (-1000.0, -750.0, 1000.0, 560.0)


@dataclass(frozen=True)
class Vehicle:
    """A vehicle and the plate on it."""

    pose: Pose  # where it stands
    draw: Draw  # draws its face
    ground_mm: float  # height of the plate above the ground
    # kind, text, layout: Of the plate.
    kind: str
    text: str
    layout: Layout
    px_per_mm: float  # of the plate in the picture, about

    def face_outline(self, camera: Camera) -> Floats:
        """(4, 2) corners of its face in the picture."""
        return camera.project(self.pose.at(self._box(0.0)))

    def hides(self, other: "Vehicle", camera: Camera) -> bool:
        """Whether another vehicle's plate lies within this one's silhouette."""
        ends = (0.0, _HULL_MM) if self.draw in HULL_TOP_MM else (0.0,)
        corners = np.concatenate([self._box(end) for end in ends])
        silhouette = cv2.convexHull(camera.project(self.pose.at(corners)).astype(np.float32))
        plate = other.pose.plate.homography(camera)
        quad = transform(plate, 1.2 * corners_of(other.layout.size_mm))
        return any(cv2.pointPolygonTest(silhouette, (x, y), False) >= 0 for x, y in quad.tolist())

    def _box(self, away: float) -> Floats:
        """(4, 3) corners of its face, or of its far end, in its own axes."""
        reach, _ = REACH_MM[self.draw]
        sides = ((-reach, -500), (reach, -500), (reach, 500), (-reach, 500))
        return np.array([(x, y, away) for x, y in sides])


def build(
    camera: Camera, vehicles: Sequence[Vehicle], light: Light, tilt: Floats, rng: Generator
) -> tuple[Field, float]:
    """Put a scene together.

    Returns (H, W, 3) float32 linear light, and that of the last plate's white.
    """
    width, height = camera.size_wh
    haze = 0.08 * fractal(rng, (height // 4, width // 4), 2, 1.6)
    rise = np.linspace(0.2, 1, height // 4)[:, None]
    sky = colour_field(rise + haze, ((118, 150, 196), (196, 208, 222), (226, 228, 230)))
    sky = np.asarray(cv2.resize(sky, camera.size_wh), np.uint8)
    stage = Stage(sky, np.full((height, width), light.far, np.float32))
    _lay_ground(stage, camera, vehicles[-1], light, tilt, rng)
    _raise_wall(stage, camera, vehicles[-1], light, tilt, rng)
    shadows = [_park(stage, camera, vehicle, light, rng) for vehicle in vehicles]
    picture = stage.shine(light)
    white = 1.0
    for vehicle, shadow in zip(vehicles, shadows, strict=True):
        white = _hang_plate(picture, camera, vehicle, light, shadow, rng)
    return picture, white


def _lay_ground(
    stage: Stage, camera: Camera, vehicle: Vehicle, light: Light, tilt: Floats, rng: Generator
) -> None:
    side = _GROUND_PX, _GROUND_PX
    kind = int(rng.integers(5))
    texture = snow(rng, side) if kind == 0 else paving(rng, side) if kind == 1 else None
    if texture is None:
        texture = asphalt(rng, side, wet=kind == 2)
    origin = vehicle.pose.at(np.array([[0, vehicle.ground_mm, 0]]))[0]
    plane = Plane(origin, tilt[:, 0], tilt[:, 2])
    middle = _GROUND_PX / 2 * _GROUND_MM
    to_mm = np.array([[_GROUND_MM, 0, -middle], [0, _GROUND_MM, -middle], [0, 0, 1]])
    view = plane.homography(camera) @ to_mm
    seen = warp(texture, view, camera.size_wh, cv2.BORDER_WRAP)
    # Only what lies before the camera is ground: there the depth is positive.
    depth = np.linalg.inv(plane.homography(camera))[2]
    width, height = camera.size_wh
    y, x = np.arange(height)[:, None], np.arange(width)[None]
    below = (depth[0] * x + depth[1] * y + depth[2] > 0).astype(np.uint8)
    cv2.copyTo(seen, below, stage.albedo)
    share = max(0.25, float(-tilt[:, 1] @ light.sun)) * max(light.far, 0.35)
    cv2.copyTo(np.full_like(stage.lit, share), below, stage.lit)


def _raise_wall(
    stage: Stage, camera: Camera, vehicle: Vehicle, light: Light, tilt: Floats, rng: Generator
) -> None:
    distance, tall = rng.uniform(3500, 12000), float(rng.uniform(2200, 9000))
    turned = tilt @ turn_about(1, rng.uniform(-22, 22))
    foot = vehicle.pose.at(np.array([[0, vehicle.ground_mm, 0]]))[0] + tilt[:, 2] * distance
    plane = Plane(foot, turned[:, 0], turned[:, 1])
    size = round(min(tall, 6000) / 1000 * _WALL_PX_PER_M), round(12 * _WALL_PX_PER_M)
    texture = WALLS[rng.integers(len(WALLS))](rng, size, _WALL_PX_PER_M)
    mm = 1000 / _WALL_PX_PER_M
    view = plane.homography(camera) @ np.array([[mm, 0, -6000], [0, mm, -size[0] * mm], [0, 0, 1]])
    corners = np.array([(-13000, -tall), (13000, -tall), (13000, 0), (-13000, 0)])
    space = plane.origin + corners[:, :1] * plane.right + corners[:, 1:] * plane.down
    if space[:, 2].min() < 500:
        return
    mask = np.zeros(stage.lit.shape, np.uint8)
    cv2.fillConvexPoly(mask, np.rint(camera.project(space)).astype(np.int32), (255,), cv2.LINE_AA)
    cv2.copyTo(warp(texture, view, camera.size_wh, cv2.BORDER_REFLECT), mask, stage.albedo)
    cv2.copyTo(np.full_like(stage.lit, light.on(plane) * light.far), mask, stage.lit)


def _park(
    stage: Stage, camera: Camera, vehicle: Vehicle, light: Light, rng: Generator
) -> Field | None:
    """Draw a vehicle without its plate; returns the shadow that falls on its face, if any."""
    plane, size = vehicle.pose.face, vehicle.layout.size_mm
    scale = float(np.clip(1.1 * vehicle.px_per_mm, 0.15, 0.6))
    face = draw_face(vehicle.draw, (size[0] / 2, size[1] / 2), scale, rng)
    if vehicle.draw in HULL_TOP_MM:
        _draw_hull(stage, camera, vehicle, face.paint)
    view = plane.homography(camera)
    rows, columns = window(face.rgba.shape, view @ face.to_mm, camera.size_wh)
    size_wh = columns.stop - columns.start, rows.stop - rows.start
    moved = np.array([[1, 0, -columns.start], [0, 1, -rows.start], [0, 0, 1]]) @ view
    seen = warp(face.rgba, moved @ face.to_mm, size_wh, cv2.BORDER_CONSTANT)
    cover = cv2.extractChannel(seen, 3).astype(np.float32) / 255
    rgb, albedo = cv2.cvtColor(seen, cv2.COLOR_RGBA2RGB), stage.albedo[rows, columns]
    albedo[:] = cv2.blendLinear(rgb, albedo.copy(), cover, 1 - cover)
    share: Field | float = light.on(plane)
    shadow = cast_shadow(rng, _FACE_BOX_MM) if light.shadow else None
    if shadow is not None:
        share = share * warp(shadow, moved @ _shadow_to_mm(), size_wh)
    lit = stage.lit[rows, columns]
    lit += cover * (share - lit)
    if face.glow.any():
        glow = warp(face.glow, moved @ face.to_mm, size_wh, cv2.BORDER_CONSTANT)
        stage.glow[rows, columns] += glow
    return shadow


def _draw_hull(stage: Stage, camera: Camera, vehicle: Vehicle, paint: Colour) -> None:
    """Draw what can be seen of a vehicle's top and flanks, and the dark ground below it."""
    pose, ground, top = vehicle.pose, vehicle.ground_mm, HULL_TOP_MM[vehicle.draw]
    reach, far = 0.97 * REACH_MM[vehicle.draw][0], _HULL_MM
    eye = pose.turn.T @ -pose.centre
    base = [(-reach, ground, 0), (reach, ground, 0), (reach, ground, far), (-reach, ground, far)]
    stage.fill(camera, pose.at(np.array(base)), (34, 34, 36), 0.0)
    if eye[1] < top:
        lid = np.array(base) * (1, 0, 1) + (0, top, 0)
        stage.fill(camera, pose.at(lid), times(paint, 0.95), 0.7)
    for side in (-1, 1):
        x, sill = side * reach, 0.65 * ground
        if side * eye[0] < reach:
            continue
        wall = np.array([(x, top, 0), (x, sill, 0), (x, sill, far), (x, top, far)])
        stage.fill(camera, pose.at(wall), times(paint, 0.8), 0.35)
        if top > -500:
            pane = np.array([(x, top, 500), (x, -160, 250), (x, -140, 3000), (x, top, 2500)])
            stage.fill(camera, pose.at(pane), (44, 50, 58), 0.35)
        for z in (750, 3200):
            wheel = [(x, ground - 320 + dy, z + dz) for dz, dy in disc(0, 0, 320, 320)]
            hub = [(x, ground - 320 + dy, z + dz) for dz, dy in disc(0, 0, 190, 190)]
            stage.fill(camera, pose.at(np.array(wheel)), (22, 22, 23), 0.35)
            stage.fill(camera, pose.at(np.array(hub)), (128, 130, 134), 0.35)


def _hang_plate(
    picture: Field,
    camera: Camera,
    vehicle: Vehicle,
    light: Light,
    shadow: Field | None,
    rng: Generator,
) -> float:
    """Draw a vehicle's plate in linear light, in place; returns the light of its white."""
    plane = vehicle.pose.plate
    fine = next((p for p in _SHEET_PX_PER_MM if p >= 2 * vehicle.px_per_mm), _SHEET_PX_PER_MM[-1])
    sheet = draw_sheet(vehicle.text, vehicle.kind, vehicle.layout, fine, rng)
    share = light.on(plane) + relief(sheet.height, plane, light.sun, float(rng.uniform(0, 0.5)))
    if shadow is not None:
        to_sheet = np.linalg.inv(sheet.to_mm) @ _shadow_to_mm()
        size_wh = sheet.cover.shape[1], sheet.cover.shape[0]
        share *= warp(shadow, to_sheet, size_wh)
    received = share[..., None] * light.direct.astype(np.float32) + light.ambient.astype(np.float32)
    seen = sheet.reflectance * received * np.float32(light.returned)
    shine = gleam(rng, (seen.shape[0], seen.shape[1]))
    brightest = light.on(plane) * light.direct.mean() + light.ambient.mean()
    if shine is not None:
        seen += shine[..., None] * np.float32(brightest * light.returned)
    view = plane.homography(camera)
    _overlay(picture, seen, sheet, view, fine / vehicle.px_per_mm)
    return float(sheet.white * brightest * light.returned)


def _overlay(picture: Field, seen: Field, sheet: Sheet, view: Floats, finer: float) -> None:
    """Lay a plate over the picture, each pixel the mean of several of the plate's own."""
    rows, columns = window(sheet.cover.shape, view @ sheet.to_mm, picture.shape[1::-1])
    width, height = columns.stop - columns.start, rows.stop - rows.start
    fold = int(np.clip(round(finer), 2, 5))
    zoom = np.diag((fold, fold, 1.0))
    zoom[:2, 2] = -fold * columns.start, -fold * rows.start
    layers = np.dstack((seen * sheet.cover[..., None], sheet.cover))
    size_wh = width * fold, height * fold
    warped = warp(layers, zoom @ view @ sheet.to_mm, size_wh, cv2.BORDER_CONSTANT)
    small = cv2.resize(warped, (width, height), interpolation=cv2.INTER_AREA)
    part = picture[rows, columns]
    part *= 1 - small[..., 3:]
    part += small[..., :3]


def _shadow_to_mm() -> Floats:
    mm = 1 / SHADOW_PX_PER_MM
    return np.array([[mm, 0, _FACE_BOX_MM[0]], [0, mm, _FACE_BOX_MM[1]], [0, 0, 1]])
