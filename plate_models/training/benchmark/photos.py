"""Photos of the benchmark, each made from its kind and its number alone."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.random import Generator, SeedSequence, default_rng
from numpy.typing import NDArray

from plate_models.training.benchmark.camera import (
    DASHCAM_PITCH_DEG,
    GATE_PITCH_DEG,
    ROLL_DEG,
    Camera,
    Floats,
    corners_of,
    sample_pose,
    transform,
    turn_about,
)
from plate_models.training.benchmark.light import sample_light
from plate_models.training.benchmark.optics import Lens, sample_lens, take
from plate_models.training.benchmark.plates import choose_layout
from plate_models.training.benchmark.scenes import Vehicle, build
from plate_models.training.benchmark.vehicles import REACH_MM, faces_of
from plate_models.training.synthetic.kinds import KINDS, kind_named
from plate_models.training.synthetic.texts import sample_text
from plate_models.training.worker_pool import map_ahead

SEED = 20_260
PER_KIND = 500
CHARACTER_PX = (9.0, 36.0)
_SIZES_WH, _SMALL_SHARE = ((960, 540), (1280, 720)), 0.6
_PAIR_SHARE = 0.125
# Two vehicles fit side by side up to this height of their plates' smallest characters.
_PAIR_PX = (9.0, 11.5)
_GATE_SHARE = 0.6
_FOCAL = (0.8, 1.8)
_WHITE_LEVEL, _DARK_WHITE_LEVEL = (0.3, 0.9), (0.22, 0.8)
_TRIES = 40


@dataclass(frozen=True)
class BenchmarkPlate:
    """One plate of a photo."""

    text: str  # in Latin letters, the upper line first
    kind: str  # name of its format, such as "ru.car"
    lines: int  # of text, 1 or 2
    # (4, 2) float32, corners TL, TR, BR, BL in pixels of the photo, where (0, 0) is the corner of
    # the first pixel.
    quad: NDArray[np.float32]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """x0, y0, x1, y1: the hull of the quad."""
        (x0, y0), (x1, y1) = self.quad.min(axis=0).tolist(), self.quad.max(axis=0).tolist()
        return x0, y0, x1, y1

    @property
    def width(self) -> float:
        """Mean length of the quad's upper and lower side, in pixels."""
        sides = self.quad[[1, 2]] - self.quad[[0, 3]]
        return float(np.hypot(*sides.T).mean())


@dataclass(frozen=True)
class BenchmarkPhoto:
    """A photo as a camera stores it."""

    name: str  # its kind and number, such as "ru.car-0017"
    file: bytes  # a JPEG file
    dark: bool  # taken at dusk, by night or by lamplight
    plates: tuple[BenchmarkPlate, ...]  # all of its plates


def render_photo(kind: str, index: int, seed: int = SEED) -> BenchmarkPhoto:
    """Make one photo of the benchmark; the same arguments make the same bytes.

    Args:
        kind: Of its plates, a key of ``KINDS``.
        index: Number of the photo, 0 or more.
        seed: Of the whole benchmark.

    Raises:
        ValueError: There is no such kind.
    """
    plate_kind = kind_named(kind)
    key = list(KINDS).index(kind), index
    rng = default_rng(SeedSequence(seed, spawn_key=key))
    size_wh = _SIZES_WH[int(rng.random() >= _SMALL_SHARE)]
    camera = Camera(size_wh, float(rng.uniform(*_FOCAL)) * size_wh[0])
    pitch = GATE_PITCH_DEG if rng.random() < _GATE_SHARE else DASHCAM_PITCH_DEG
    tilt = turn_about(2, rng.uniform(-ROLL_DEG, ROLL_DEG)) @ turn_about(0, rng.uniform(*pitch))
    pair = bool(rng.random() < _PAIR_SHARE)
    character_px = float(np.exp(rng.uniform(*np.log(_PAIR_PX if pair else CHARACTER_PX))))
    vehicles = _place_vehicles(kind, camera, tilt, character_px, pair, rng)
    light = sample_light(rng, tilt)
    lens = sample_lens(rng, size_wh, character_px)
    picture, white = build(camera, vehicles, light, tilt, rng)
    level = float(rng.uniform(*(_DARK_WHITE_LEVEL if light.dark else _WHITE_LEVEL)))
    file = take(lens.see(picture) * np.float32(level / white), light.dark, rng)
    plates = tuple(
        BenchmarkPlate(vehicle.text, kind, plate_kind.lines, _quad(vehicle, camera, lens))
        for vehicle in vehicles
    )
    return BenchmarkPhoto(f"{kind}-{index:04d}", file, light.dark, plates)


def photo_named(name: str, seed: int = SEED) -> BenchmarkPhoto:
    """Make a photo again from its name."""
    kind, _, number = name.rpartition("-")
    return render_photo(kind, int(number), seed)


def _place_vehicles(
    kind: str, camera: Camera, tilt: Floats, character_px: float, pair: bool, rng: Generator
) -> list[Vehicle]:
    """One vehicle, or a pair side by side if it fits, the far one first."""
    if not pair:
        return [_place(kind, camera, tilt, character_px, (0.12, 0.88), rng)]
    left = _place(kind, camera, tilt, character_px, (0.12, 0.34), rng)
    for _ in range(_TRIES):
        right = _place(kind, camera, tilt, character_px, (0.62, 0.88), rng)
        # Both stand on the same ground: a lower plate is nearer to it.
        lower = float((right.pose.centre - left.pose.centre) @ tilt[:, 1])
        right = replace(right, ground_mm=left.ground_mm - lower)
        low, high = REACH_MM[right.draw][1]
        faces = [vehicle.face_outline(camera) for vehicle in (left, right)]
        apart = faces[0][:, 0].max() < faces[1][:, 0].min() and low <= right.ground_mm <= high
        if apart and not left.hides(right, camera) and not right.hides(left, camera):
            return sorted((left, right), key=lambda vehicle: -vehicle.pose.centre[2])
    return [left]


def _place(
    kind: str,
    camera: Camera,
    tilt: Floats,
    character_px: float,
    zone: tuple[float, float],
    rng: Generator,
) -> Vehicle:
    text = sample_text(rng, kind)
    layout = choose_layout(text, kind_named(kind), rng)
    scale = character_px / layout.region.digit_height
    pose = sample_pose(rng, camera, layout.size_mm, scale, zone, tilt)
    faces = faces_of(kind)
    draw = faces[rng.integers(len(faces))]
    ground = float(rng.uniform(*REACH_MM[draw][1]))
    return Vehicle(pose, draw, ground, kind, text, layout, scale)


def _quad(vehicle: Vehicle, camera: Camera, lens: Lens) -> NDArray[np.float32]:
    view = vehicle.pose.plate.homography(camera)
    corners = transform(view, corners_of(vehicle.layout.size_mm))
    return lens.bend_points(corners).astype(np.float32)


def render_photos(
    numbered: Iterable[tuple[str, int]], workers: int, seed: int = SEED
) -> Iterator[BenchmarkPhoto]:
    """Render photos in the order asked for."""
    return map_ahead(partial(_render, seed=seed), numbered, workers)


def _render(numbered: tuple[str, int], seed: int) -> BenchmarkPhoto:
    return render_photo(*numbered, seed)
