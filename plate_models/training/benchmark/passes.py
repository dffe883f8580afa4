"""Films of passing vehicles, as a fixed camera sends them, and what passes in each.

Each is made from its kind and number alone: H.264 at 0.5 to 4 Mbit/s and 5 to 25 frames a second,
of 1280x720 or 1920x1080 pixels. The first and the last frames show no vehicle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator, SeedSequence, default_rng

from plate_models.training.benchmark.camera import (
    GATE_PITCH_DEG,
    MOST_OBLIQUE_DEG,
    ROLL_DEG,
    Camera,
    turn_about,
)
from plate_models.training.benchmark.drives import FILM_KINDS, Drive, sample_drives
from plate_models.training.benchmark.optics import Lens, sample_lens, sense
from plate_models.training.benchmark.photos import CHARACTER_PX, label
from plate_models.training.benchmark.scenes import (
    Light,
    Place,
    Vehicle,
    compose,
    sample_light,
    shade,
    white_of,
)
from plate_models.training.benchmark.textures import draw_background
from plate_models.training.codec import decode, encode
from plate_models.training.imaging import Field, Image
from plate_models.training.labels import LabelledPlate

_SEED = 31_070
_SIZES_WH, _SMALL_SHARE = ((1280, 720), (1920, 1080)), 0.85
_FOCAL, _WHITE_LEVEL, _DARK_WHITE_LEVEL = (0.9, 1.8), (0.3, 0.9), (0.22, 0.8)
_KBITS, _KEYFRAMES_S = (500.0, 4000.0), 2
# The most of a character's height that moves away during the exposure.
_EXPOSURE_S, _MOST_MOTION = (1 / 1000, 1 / 200), 0.18
_HIDDEN_S, _HIDDEN_AT = (0.7, 2.0), (0.45, 0.6)
# Of the picture's width: a lorry's speed a second, the narrowest post.
_LORRY_SPEED, _POST = (0.4, 1.0), 0.06
_EMPTY_FRAMES = 3


@dataclass(frozen=True)
class Film:
    """A film, and the plates that are in its frames.

    Attributes:
        name: Kind and number, such as "hidden-0017".
        size_wh: Of its pictures, in pixels.
        packets: H.264, in the order of decoding.
        times_s: When each frame was taken; one a second while no vehicle is there for long.
        truths: For each frame number of the pass and plate, which is legible where it is whole,
            near enough and not hidden in part. A plate that is hidden wholly isn't listed.
    """

    name: str
    size_wh: tuple[int, int]
    packets: tuple[bytes, ...]
    times_s: tuple[float, ...]
    truths: tuple[tuple[tuple[int, LabelledPlate], ...], ...]

    def frames(self) -> Iterator[Image]:
        """Decode it: (H, W, 3) uint8 RGB each."""
        return decode(self.packets, "h264")


@dataclass(frozen=True)
class _Cover:
    """What hides all between two columns of the picture: a post, or a lorry that drives by."""

    surface: Field  # (H, W, 3) linear light, repeated sideways
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
    """All that is before the camera and in it."""

    camera: Camera
    lens: Lens
    light: Light
    place: Place
    drives: Sequence[Drive]
    cover: _Cover | None
    exposure_s: float

    def there(self, time: float) -> list[tuple[int, Drive, Vehicle]]:
        """Who is there, the farthest first."""
        found = [(n, drive, drive.at(time, self.camera)) for n, drive in enumerate(self.drives)]
        present = [(n, drive, vehicle) for n, drive, vehicle in found if vehicle]
        return sorted(present, key=lambda one: -one[2].face.origin[2])

    def see(self, time: float) -> Field:
        """(H, W, 3) float32 light on the sensor."""
        there = self.there(time)
        picture = compose(self.place, self.camera, [one[2] for one in there], self.light)
        if self.cover:
            self.cover.lay_over(picture, time)
        motion = np.zeros(2)
        for _, drive, vehicle in there:
            before, after = (drive.middle(time + s, self.camera) for s in (0, self.exposure_s))
            character_px = self.camera.focal * drive.design.character_mm / vehicle.face.origin[2]
            motion = after - before
            motion *= min(1, _MOST_MOTION * character_px / max(float(np.hypot(*motion)), 1e-6))
        moving = replace(self.lens, motion_px=(float(motion[0]), float(motion[1])))
        return moving.see(picture)

    def truths(self, time: float) -> Iterator[tuple[int, LabelledPlate]]:
        """The plates in the picture, with the numbers of their passes."""
        for number, drive, vehicle in self.there(time):
            plate, design = vehicle.plate, drive.design
            shown = label(design, drive.kind, plate, self.camera, self.lens, self.light)
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
                and plate.obliqueness_deg <= MOST_OBLIQUE_DEG
            )
            yield number, replace(shown, legible=legible)


def render_film(kind: str, index: int) -> Film:
    """Make a film of a kind out of `FILM_KINDS`; the same arguments make the same bytes."""
    at = FILM_KINDS.index(kind), index
    rng = default_rng(SeedSequence(_SEED, spawn_key=at))
    size_wh = _SIZES_WH[int(rng.random() >= _SMALL_SHARE)]
    camera = Camera(size_wh, float(rng.uniform(*_FOCAL)) * size_wh[0])
    tilt = turn_about("zx", rng.uniform(-ROLL_DEG, ROLL_DEG), rng.uniform(*GATE_PITCH_DEG))
    light = sample_light(rng, tilt)
    fps, drives = sample_drives(kind, index, camera, tilt, rng)
    first = drives[0].vehicle
    character_px = drives[0].design.character_mm * camera.focal / float(first.face.origin[2])
    lens = replace(sample_lens(rng, size_wh, character_px), motion_px=(0.0, 0.0))
    place = shade(draw_background(rng, size_wh), camera, first.face, light, rng)
    cover = _hide(drives[0], place, camera, light, rng) if kind == "hidden" else None
    level = rng.uniform(*(_DARK_WHITE_LEVEL if light.dark else _WHITE_LEVEL))
    exposure, rate = np.exp(rng.uniform(*np.log((_EXPOSURE_S, _KBITS)).T))
    scene = _Scene(camera, lens, light, place, drives, cover, float(exposure))
    look, factor = int(rng.integers(2**32)), np.float32(level / white_of(first, light))
    times = _moments(drives, fps)

    def pictures() -> Iterator[Image]:
        last = None
        for number, time in enumerate(times):
            now = [one[2].face.origin.tolist() for one in scene.there(time)], cover and time
            if now != last:  # else only the noise is new
                seen, last = scene.see(time) * factor, now
            noise = default_rng(SeedSequence(_SEED, spawn_key=(*at, number)))
            yield sense(seen, light.dark, default_rng(look), noise)

    speed = dict.fromkeys(("b", "maxrate", "bufsize"), f"{rate:.0f}k")
    packets = encode(pictures(), "libx264", fps, g=str(_KEYFRAMES_S * fps), **speed)
    truths = tuple(tuple(scene.truths(time)) for time in times)
    return Film(f"{kind}-{index:04d}", size_wh, tuple(packets), tuple(times), truths)


def _hide(drive: Drive, place: Place, camera: Camera, light: Light, rng: Generator) -> _Cover:
    """Put something before a plate for a while: a post if it passes one, else a lorry."""
    surface = replace(place, background=draw_background(rng, camera.size_wh))
    lasts, share = rng.uniform(*_HIDDEN_S), rng.uniform(*_HIDDEN_AT)
    start = share * drive.times[-1] - lasts / 2
    (x0, _), (x1, _) = (drive.middle(start + after, camera) for after in (0, lasts))
    speed = 0.0
    if abs(x1 - x0) < _POST * camera.size_wh[0] or rng.random() < 0.4:
        # It comes towards the plate.
        speed = float(rng.uniform(*_LORRY_SPEED) * camera.size_wh[0] * (-1 if x1 > x0 else 1))
    low, high = sorted((float(x0 - speed * start), float(x1 - speed * (start + lasts))))
    return _Cover(compose(surface, camera, [], light), (low, high), speed)


def _moments(drives: Sequence[Drive], fps: int) -> list[float]:
    """Times of frames: all while somebody is there and just before and after, else few."""
    starts, ends = ([drive.times[end] * fps for drive in drives] for end in (0, -1))
    numbers = range(-_EMPTY_FRAMES, int(ends[-1]) + 1 + _EMPTY_FRAMES)
    near = (
        any(a - _EMPTY_FRAMES <= n <= b + _EMPTY_FRAMES for a, b in zip(starts, ends, strict=True))
        for n in numbers
    )
    return [n / fps for n, kept in zip(numbers, near, strict=True) if kept or n % fps == 0]
