"""Where vehicles drive before a fixed camera, for films of their passes.

They drive straight on. They enter and leave the picture, or come from far away and go there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from plate_models.training.benchmark.camera import Camera, Frame, sample_frames
from plate_models.training.benchmark.designs import Design, design_with, sample_design
from plate_models.training.benchmark.photos import BENCHMARK_KINDS
from plate_models.training.benchmark.plates import draw_sheet
from plate_models.training.benchmark.scenes import Vehicle, draw_body
from plate_models.training.imaging import Floats
from plate_models.training.synthetic.kinds import CAR

# "alike": two side by side whose texts differ by one or two digits. "hidden": for a while, behind
# a post or a lorry. "returning": drives by twice. "glimpse": is in two or three frames.
FILM_KINDS = (
    "approaching", "leaving", "crossing", "hidden", "alike", "parked", "returning", "glimpse",
)  # fmt: skip
_ANY_WAY = ("hidden", "alike", "returning", "glimpse")
# Height of the smallest characters, in pixels: where a way begins, and at its chosen place.
_FAR_PX, _NEAR_PX, _ALIKE_PX = (4.0, 7.0), (10.0, 26.0), (10.0, 15.0)
# Seconds: to pass, to pass what hides, to stand, to be away.
_PASSING, _PASSING_COVER, _STANDING, _AWAY = (0.8, 4.0), (3.5, 5.0), (3.0, 8.0), (6.5, 12.0)
_FPS = (5, 25)
# Frames of a pass at most: those who drive by are faster in films of more frames a second, others
# have fewer frames a second.
_MOST_FRAMES, _MOST_PATIENT_FRAMES = 28, 50
_LANE_MM, _BODY_MM = (2000.0, 2600.0), 900.0
_TRIES = 60
# Of the distance of a vehicle's chosen place.
_STEP, _NEAREST, _FARTHER, _GLIMPSED = 0.03, 0.3, 1.2, 1.7


@dataclass(frozen=True)
class Drive:
    """One pass: a vehicle that is so far along its way, in millimetres, at these times."""

    kind: str  # of its plate
    design: Design
    vehicle: Vehicle
    way: Floats  # (3,) unit vector
    times: Sequence[float]
    places: Sequence[float]

    def at(self, time: float, camera: Camera) -> Vehicle | None:
        """The vehicle at a time; None while it isn't there."""
        if not self.times[0] <= time < self.times[-1]:
            return None
        origin = self.vehicle.face.origin + self.way * np.interp(time, self.times, self.places)
        return self.vehicle.at(origin, camera.focal / float(origin[2]))

    def middle(self, time: float, camera: Camera) -> Floats:
        """(2,) where the plate's middle is in the picture, in pixels."""
        x, y, z = self.vehicle.face.origin + self.way * np.interp(time, self.times, self.places)
        middle: Floats = np.array((x, y)) * camera.focal / z + np.array(camera.size_wh) / 2
        return middle


def sample_drives(
    kind: str, index: int, camera: Camera, tilt: Floats, rng: Generator
) -> tuple[int, list[Drive]]:
    """Choose a film's frames a second, and who drives where and when."""
    others = [name for name in BENCHMARK_KINDS if name != CAR]
    plate = others[index // 2 % len(others)] if index % 2 else CAR
    designs = [sample_design(plate, rng)]
    if kind == "alike":
        designs.append(design_with(plate, _resembling(designs[0].text, rng), rng))
    across = kind == "crossing" or (kind in _ANY_WAY and rng.random() < 0.5)
    frames, way, ends, px_per_mm = _choose_way(kind, across, designs, camera, tilt, rng)
    if kind == "leaving" or (kind in _ANY_WAY and rng.random() < 0.5):
        ends = ends[::-1]
    fps = int(rng.integers(_FPS[0], _FPS[1] + 1))
    if kind == "glimpse":
        passing = int(rng.integers(2, 4)) / fps
    elif kind == "hidden":
        passing = float(rng.uniform(*_PASSING_COVER))
        fps = min(fps, int(_MOST_PATIENT_FRAMES / passing))
    else:
        passing = min(float(rng.uniform(*_PASSING)), _MOST_FRAMES / fps)
    times, places = [-0.5 / fps, passing - 0.5 / fps], [*ends]
    if kind == "parked":
        stop, go = passing / 2, passing / 2 + float(rng.uniform(*_STANDING))
        passing += go - stop
        fps = min(fps, max(_FPS[0], int(_MOST_PATIENT_FRAMES / passing)))
        times, places = [times[0], stop, go, passing], [ends[0], 0.0, 0.0, ends[1]]
    drives = []
    for design, (face, hung) in zip(designs, frames, strict=True):
        sheet = draw_sheet(design, px_per_mm, rng)
        vehicle = Vehicle(face, hung, sheet, draw_body(design.size_mm, rng))
        drives.append(Drive(plate, design, vehicle, way, times, places))
    if kind == "returning":
        later = passing + float(rng.uniform(*_AWAY))
        drives.append(replace(drives[0], times=[time + later for time in times]))
    return fps, drives


def _choose_way(
    kind: str, across: bool, designs: Sequence[Design], camera: Camera, tilt: Floats, rng: Generator
) -> tuple[list[tuple[Frame, Frame]], Floats, tuple[float, float], float]:
    """Frames of each vehicle and its plate, their way and its ends, pixels per millimetre."""
    design = designs[0]
    lane = rng.choice((-1, 1)) * rng.uniform(*_LANE_MM)
    for _ in range(_TRIES):
        span = _ALIKE_PX if len(designs) > 1 else _NEAR_PX
        near = float(np.exp(rng.uniform(*np.log(span)))) / design.character_mm
        face, hung = sample_frames(rng, camera, design.size_mm, near, tilt)
        way = -face.turn[:, 2]
        if across:
            way = tilt @ np.array((rng.choice((-1, 1)), 0, rng.uniform(-0.3, 0.3)))
        way /= np.linalg.norm(way)
        far = near * design.character_mm / rng.uniform(*_FAR_PX)
        (back, from_outside), (forth, to_outside) = (
            _walk(hung, sign * way, camera, design, far) for sign in (-1, 1)
        )
        beside = hung.origin + lane * face.turn[:, 0]
        frames = [(face, hung), (replace(face, origin=beside), replace(hung, origin=beside))]
        fits = len(designs) == 1 or (
            is_whole(frames[1][1], camera, design) and beside[2] < _FARTHER * hung.origin[2]
        )
        if to_outside and fits and (from_outside or not across):
            break
    ends = -back - across * _BODY_MM, forth + across * _BODY_MM
    if kind == "glimpse":
        places = np.linspace(*ends, 100).tolist()
        moved = {place: replace(hung, origin=hung.origin + place * way) for place in places}
        seen = [place for place, frame in moved.items() if is_whole(frame, camera, design)
                and frame.origin[2] < _GLIMPSED * hung.origin[2]]  # fmt: skip
        ends = seen[0], seen[-1]
    return frames[: len(designs)], way, ends, near


def _walk(
    start: Frame, way: Floats, camera: Camera, design: Design, far: float
) -> tuple[float, bool]:
    """How far a plate goes until it is out of the picture, too near or too far; whether out."""
    depth = start.origin[2]
    for step in range(1, 400):
        place = _STEP * depth * step
        now = replace(start, origin=start.origin + place * way)
        if not _NEAREST * depth < now.origin[2] < far * depth:
            break
        quad = now.quad(camera, design.size_mm)
        if (quad.max(axis=0) < 0).any() or (quad.min(axis=0) > camera.size_wh).any():
            return place, True
    return place, False


def is_whole(plate: Frame, camera: Camera, design: Design) -> bool:
    """Whether a plate is in the picture with all of its corners."""
    quad = plate.quad(camera, design.size_mm)
    return bool((quad > 0).all() and (quad < camera.size_wh).all())


def _resembling(text: str, rng: Generator) -> str:
    """Another text of the same format: one or two of the first three digits differ."""
    characters = list(text)
    digits = [place for place, character in enumerate(text) if character.isdigit()][:3]
    for place in rng.choice(digits, rng.integers(1, 3), replace=False):
        characters[place] = str(rng.choice([d for d in "123456789" if d != text[place]]))
    return "".join(characters)
