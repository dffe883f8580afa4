"""Videos of passing vehicles in front of a fixed camera, and the true plates in each frame.

A video depends on its kind and number alone: H.264 at 0.5 to 4 Mbit/s and 5 to 25 frames per
second, of 1280x720 or 1920x1080 pixels. Vehicles drive in a straight line: they enter and leave the
image, or approach from far away or drive away. The first and the last frames show no vehicle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator, SeedSequence, default_rng

from plate_models.training.benchmark import scenes
from plate_models.training.benchmark.camera import Camera, Frame, sample_camera, sample_frames
from plate_models.training.benchmark.optics import Lens, sample_lens, sense
from plate_models.training.benchmark.photos import BENCHMARK_KINDS, CHARACTER_PX, label
from plate_models.training.benchmark.plates import Design, draw_sheet, sample_design
from plate_models.training.benchmark.scenes import Light, Place, Vehicle
from plate_models.training.benchmark.textures import draw_background
from plate_models.training.imaging import Field, Floats, Image, decode, encode
from plate_models.training.labels import LabelledPlate
from plate_models.training.synthetic.kinds import CAR
from plate_models.training.tables import log_uniform

# "alike": two vehicles side by side whose texts differ in one or two digits. "hidden": occluded for
# a while by a post or a lorry. "returning": passes twice. "glimpse": in two or three frames only.
FILM_KINDS = (
    "approaching", "leaving", "crossing", "hidden", "alike", "parked", "returning", "glimpse",
)  # fmt: skip
_ANY_WAY = ("hidden", "alike", "returning", "glimpse")  # kinds that drive in any direction
# Height of the smallest characters in pixels: at a path's far end, and at its reference place.
_FAR_PX, _NEAR_PX, _ALIKE_PX = (4.0, 7.0), (10.0, 26.0), (10.0, 15.0)
# Durations in seconds: of a pass, of a pass behind a cover, of standing, and between two passes.
_PASSING, _PASSING_COVER, _STANDING, _AWAY = (0.8, 4.0), (3.5, 5.0), (3.0, 8.0), (6.5, 12.0)
_FPS = (5, 25)
# Largest number of frames of a pass. To keep it, vehicles of most kinds drive faster; videos of
# "hidden" and "parked" vehicles, with the second limit, get fewer frames per second.
_MOST_FRAMES, _MOST_PATIENT_FRAMES = 28, 50
_LANE_MM, _BODY_MM = (2000.0, 2600.0), 900.0
_TRIES = 60
# Shares of the distance between the camera and a path's reference place.
_STEP, _NEAREST, _FARTHER, _GLIMPSED = 0.03, 0.3, 1.2, 1.7

_SEED = 31_070
_SIZES_WH, _FOCAL = ((1280, 720), (1920, 1080)), (0.9, 1.8)
_SMALL_SHARE = 0.85
_KBITS, _KEYFRAMES_S = (500.0, 4000.0), 2
# Exposure times; the longest motion blur, as a share of a character's height.
_EXPOSURE_S, _MOST_MOTION = (1 / 1000, 1 / 200), 0.18
_HIDDEN_S, _HIDDEN_AT = (0.7, 2.0), (0.45, 0.6)
# Shares of the image's width: a lorry's speed per second, the narrowest post.
_LORRY_SPEED, _POST = (0.4, 1.0), 0.06
_EMPTY_FRAMES = 3


@dataclass(frozen=True)
class Film:
    """A video, and the plates in its frames."""

    name: str  # kind and number, such as "hidden-0017"
    size_wh: tuple[int, int]  # of the frames, in pixels
    packets: tuple[bytes, ...]  # H.264, in decoding order
    # Time of each frame; while no vehicle is there for long, there is one frame per second.
    times_s: tuple[float, ...]
    # For each frame, pairs of pass number and plate. A plate is legible if it is whole, near
    # enough, not too oblique and not partly occluded. A completely occluded plate is not listed.
    truths: tuple[tuple[tuple[int, LabelledPlate], ...], ...]

    def frames(self) -> Iterator[Image]:
        """Decode the frames: (H, W, 3) uint8 RGB each."""
        return decode(self.packets, "h264")


@dataclass(frozen=True)
class Drive:
    """One pass of a vehicle along a straight path."""

    design: Design
    vehicle: Vehicle  # at its reference place
    way: Floats  # (3,) unit vector of the path's direction
    times: Sequence[float]  # in seconds
    places: Sequence[float]  # at these times, in millimetres along the path

    def at(self, time: float, camera: Camera) -> Vehicle | None:
        """The vehicle at a time; None before and after the pass."""
        if not self.times[0] <= time < self.times[-1]:
            return None
        vehicle = self.vehicle
        origin = vehicle.face.origin + self.way * np.interp(time, self.times, self.places)
        face, plate = (replace(frame, origin=origin) for frame in (vehicle.face, vehicle.plate))
        return replace(vehicle, face=face, plate=plate, px_per_mm=camera.focal / float(origin[2]))

    def middle(self, time: float, camera: Camera) -> Floats:
        """(2,) the plate's middle in pixels of the image."""
        x, y, z = self.vehicle.face.origin + self.way * np.interp(time, self.times, self.places)
        return np.asarray(np.array((x, y)) * camera.focal / z + np.array(camera.size_wh) / 2)


@dataclass(frozen=True)
class _Cover:
    """An occlusion of everything between two columns of the image: a post or a passing lorry."""

    surface: Field  # (H, W, 3) linear light, repeated horizontally
    edges: tuple[float, float]  # left and right at time 0, in pixels
    speed: float  # in pixels a second

    def span(self, time: float) -> tuple[float, float]:
        return self.edges[0] + self.speed * time, self.edges[1] + self.speed * time

    def lay_over(self, picture: Field, time: float) -> None:
        low, high = np.rint(self.span(time)).astype(int).tolist()
        columns = np.arange(max(0, low), min(picture.shape[1], high))
        picture[:, columns] = self.surface[:, (columns - low) % picture.shape[1]]


@dataclass(frozen=True)
class _Scene:
    """Camera, vehicles and their surroundings."""

    camera: Camera
    lens: Lens  # each frame has its own motion blur instead
    light: Light
    place: Place
    drives: Sequence[Drive]
    cover: _Cover | None
    exposure_s: float

    def there(self, time: float) -> list[tuple[int, Drive, Vehicle]]:
        """Number, drive and vehicle of each pass in progress, the farthest first."""
        found = [(n, drive, drive.at(time, self.camera)) for n, drive in enumerate(self.drives)]
        present = [(n, drive, vehicle) for n, drive, vehicle in found if vehicle]
        return sorted(present, key=lambda one: -one[2].face.origin[2])

    def flux_at(self, time: float) -> Field:
        """(H, W, 3) float32 light on the sensor."""
        there = self.there(time)
        picture = scenes.compose(self.place, self.camera, [one[2] for one in there], self.light)
        if self.cover:
            self.cover.lay_over(picture, time)
        motion = np.zeros(2)
        for _, drive, vehicle in there:
            before, after = (drive.middle(time + s, self.camera) for s in (0, self.exposure_s))
            character_px = self.camera.focal * drive.design.character_mm / vehicle.face.origin[2]
            motion = after - before
            motion *= min(1, _MOST_MOTION * character_px / max(float(np.hypot(*motion)), 1e-6))
        moving = replace(self.lens, motion_px=(float(motion[0]), float(motion[1])))
        return moving.project(picture)

    def truths(self, time: float) -> Iterator[tuple[int, LabelledPlate]]:
        """The plates in the image, with the numbers of their passes."""
        for number, drive, vehicle in self.there(time):
            plate, design = vehicle.plate, drive.design
            shown = label(design, plate, self.camera, self.lens)
            low, high = np.array(shown.box[:2]), np.array(shown.box[2:])
            hides, ends = self.cover.span(time) if self.cover else (0.0, 0.0)
            outside = ((high < 0) | (low > self.camera.size_wh)).any()
            if outside or hides <= low[0] < high[0] <= ends:
                continue
            legible = bool(
                ((low > 0) & (high < self.camera.size_wh)).all()
                and not (hides < high[0] and ends > low[0])
                and design.character_mm * plate.scale(self.camera, design.size_mm)
                >= CHARACTER_PX[0]
                and not plate.oblique
            )
            yield number, replace(shown, legible=legible)


def render_film(kind: str, index: int, kbits: tuple[float, float] = _KBITS) -> Film:
    """Render a video of a kind out of `FILM_KINDS`; the same arguments give the same bytes.

    The bit rate is drawn from the range ``kbits``, in kilobits per second.
    """
    at = FILM_KINDS.index(kind), index
    rng = default_rng(SeedSequence(_SEED, spawn_key=at))
    camera, tilt = sample_camera(rng, _SIZES_WH, _SMALL_SHARE, _FOCAL)
    light = scenes.sample_light(rng, tilt)
    fps, drives = _sample_drives(kind, index, camera, tilt, rng)
    first = drives[0].vehicle
    character_px = drives[0].design.character_mm * camera.focal / float(first.face.origin[2])
    lens = sample_lens(rng, camera.size_wh, character_px)
    place = scenes.shade(draw_background(rng, camera.size_wh), camera, first.face, light, rng)
    cover = _hide(drives[0], place, camera, light, rng) if kind == "hidden" else None
    factor = scenes.choose_exposure(first, light, rng)
    exposure, rate = np.exp(rng.uniform(*np.log((_EXPOSURE_S, kbits)).T))
    scene = _Scene(camera, lens, light, place, drives, cover, float(exposure))
    camera_seed, times = int(rng.integers(2**32)), _moments(drives, fps)

    def pictures() -> Iterator[Image]:
        last = None
        for number, time in enumerate(times):
            now = [one[2].face.origin.tolist() for one in scene.there(time)], cover and time
            if now != last:  # else only the noise changes
                flux, last = scene.flux_at(time) * factor, now
            noise = default_rng(SeedSequence(_SEED, spawn_key=(*at, number)))
            yield sense(flux, light.dark, default_rng(camera_seed), noise)

    speed = dict.fromkeys(("b", "maxrate", "bufsize"), f"{rate:.0f}k")
    packets = encode(pictures(), "libx264", fps, g=str(_KEYFRAMES_S * fps), **speed)
    truths = tuple(tuple(scene.truths(time)) for time in times)
    return Film(f"{kind}-{index:04d}", camera.size_wh, tuple(packets), tuple(times), truths)


def _hide(drive: Drive, place: Place, camera: Camera, light: Light, rng: Generator) -> _Cover:
    """Occlude a plate for a while: by a lorry, or by a post if the plate moves far enough."""
    surface = replace(place, background=draw_background(rng, camera.size_wh))
    lasts, share = rng.uniform(*_HIDDEN_S), rng.uniform(*_HIDDEN_AT)
    start = share * drive.times[-1] - lasts / 2
    (x0, _), (x1, _) = (drive.middle(start + after, camera) for after in (0, lasts))
    speed = 0.0
    if abs(x1 - x0) < _POST * camera.size_wh[0] or rng.random() < 0.4:
        # The lorry drives towards the plate.
        speed = float(rng.uniform(*_LORRY_SPEED) * camera.size_wh[0] * (-1 if x1 > x0 else 1))
    low, high = sorted((float(x0 - speed * start), float(x1 - speed * (start + lasts))))
    return _Cover(scenes.compose(surface, camera, [], light), (low, high), speed)


def _moments(drives: Sequence[Drive], fps: int) -> list[float]:
    """Times of frames: every frame during and around a pass, else one frame per second."""
    around = _EMPTY_FRAMES
    spans = [(drive.times[0] * fps - around, drive.times[-1] * fps + around) for drive in drives]
    numbers = range(-around, int(drives[-1].times[-1] * fps) + 1 + around)
    return [n / fps for n in numbers if n % fps == 0 or any(a <= n <= b for a, b in spans)]


def _sample_drives(
    kind: str, index: int, camera: Camera, tilt: Floats, rng: Generator
) -> tuple[int, list[Drive]]:
    """Draw a video's frames per second and its passes."""
    # Every second video shows a Russian car's plate; the rest show the other kinds in turn.
    others = [plate for plate in BENCHMARK_KINDS if plate != CAR]
    plate = others[index // 2 % len(others)] if index % 2 else CAR
    designs = [sample_design(plate, rng)]
    if kind == "alike":
        designs.append(sample_design(plate, rng, _resembling(designs[0].text, rng)))
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
        vehicle = Vehicle(face, hung, sheet, px_per_mm, scenes.draw_body(design.size_mm, rng))
        drives.append(Drive(design, vehicle, way, times, places))
    if kind == "returning":
        later = passing + float(rng.uniform(*_AWAY))
        drives.append(replace(drives[0], times=[time + later for time in times]))
    return fps, drives


def _choose_way(
    kind: str, across: bool, designs: Sequence[Design], camera: Camera, tilt: Floats, rng: Generator
) -> tuple[list[tuple[Frame, Frame]], Floats, tuple[float, float], float]:
    """Draw a path: each vehicle's and plate's frame, direction, ends, and pixels per millimetre."""
    design = designs[0]
    lane = rng.choice((-1, 1)) * rng.uniform(*_LANE_MM)
    for _ in range(_TRIES):
        near = log_uniform(_ALIKE_PX if len(designs) > 1 else _NEAR_PX, rng)
        near /= design.character_mm
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
            frames[1][1].is_whole(camera, design.size_mm) and beside[2] < _FARTHER * hung.origin[2]
        )
        if to_outside and fits and (from_outside or not across):
            break
    ends = -back - across * _BODY_MM, forth + across * _BODY_MM
    if kind == "glimpse":
        places = np.linspace(*ends, 100).tolist()
        moved = {place: replace(hung, origin=hung.origin + place * way) for place in places}
        visible = [place for place, frame in moved.items() if frame.is_whole(camera, design.size_mm)
                and frame.origin[2] < _GLIMPSED * hung.origin[2]]  # fmt: skip
        ends = visible[0], visible[-1]
    return frames[: len(designs)], way, ends, near


def _walk(
    start: Frame, way: Floats, camera: Camera, design: Design, far: float
) -> tuple[float, bool]:
    """Distance until a plate leaves the image, or is too near or too far; whether it leaves."""
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


def _resembling(text: str, rng: Generator) -> str:
    """Draw a similar text of the same format: one or two of the first three digits differ."""
    characters = list(text)
    digits = [place for place, character in enumerate(text) if character.isdigit()][:3]
    for place in rng.choice(digits, rng.integers(1, 3), replace=False):
        characters[place] = str(rng.choice([d for d in "123456789" if d != text[place]]))
    return "".join(characters)
