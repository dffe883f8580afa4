"""The rendered benchmark: photos of plates from a renderer that training never sees.

Each photo is made from its kind and its number alone.

With training it shares only what defines a plate: glyphs, kinds with their layouts and
ranges of colours, texts. Backgrounds, vehicles, light, wear, lens, sensor and camera are
its own. It is meant as a fair test of legible plates as a camera over a gate or behind a
windscreen sees them; what a person can read decided its ranges, not what our nets can:

- Photos of 960x540 or 1280x720 pixels with one plate.
- The smallest characters (those of the region) are 9 to 36 pixels high along the plate's
  more foreshortened side, logarithmically: plates of type 1 are about 80 to 350 pixels wide,
  those with two lines 50 to 250.
- Yaw up to 38 degrees either way, roll up to 5; a gate's camera looks down by 2 to 26
  degrees, a dashcam by -4 to 7. Nothing is more than 48 degrees from the plate's normal.
- Defocus and motion blur spread a point over at most 0.17 and 0.18 of those characters'
  height. Sensors hold 700 to 25,000 electrons; JPEG quality is 48 to 95.
- Exposure puts the plate's white at 0.22 to 0.9 of what saturates. Shadows keep the
  ambient light; dirt hides no character.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import SeedSequence, default_rng
from numpy.typing import NDArray

from plate_models.spec import RECOGNIZER
from plate_models.training.benchmark.camera import (
    DASHCAM_PITCH_DEG,
    GATE_PITCH_DEG,
    ROLL_DEG,
    Camera,
    corners_of,
    sample_frames,
    turn_about,
)
from plate_models.training.benchmark.light import sample_light
from plate_models.training.benchmark.optics import sample_lens, take
from plate_models.training.benchmark.plates import choose_layout, draw_sheet
from plate_models.training.benchmark.scenes import build
from plate_models.training.imaging import apply_homography
from plate_models.training.synthetic.kinds import kind_named, kinds_of
from plate_models.training.synthetic.texts import sample_text
from plate_models.training.worker_pool import map_ahead

SEED = 20_260
PER_KIND = 500
CHARACTER_PX = (9.0, 36.0)
_SIZES_WH, _SMALL_SHARE = ((960, 540), (1280, 720)), 0.6
_GATE_SHARE = 0.6
_FOCAL = (0.8, 1.8)
_WHITE_LEVEL, _DARK_WHITE_LEVEL = (0.3, 0.9), (0.22, 0.8)


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
    # A country's photos stay as they are when another country is added.
    country = plate_kind.country.name
    own = () if country == RECOGNIZER.country else tuple(country.encode())
    number = list(kinds_of(country)).index(kind)
    rng = default_rng(SeedSequence(seed, spawn_key=(number, index, *own)))
    size_wh = _SIZES_WH[int(rng.random() >= _SMALL_SHARE)]
    camera = Camera(size_wh, float(rng.uniform(*_FOCAL)) * size_wh[0])
    pitch = GATE_PITCH_DEG if rng.random() < _GATE_SHARE else DASHCAM_PITCH_DEG
    tilt = turn_about("zx", rng.uniform(-ROLL_DEG, ROLL_DEG), rng.uniform(*pitch))
    character_px = float(np.exp(rng.uniform(*np.log(CHARACTER_PX))))
    text = sample_text(rng, kind)
    layout = choose_layout(text, plate_kind, rng)
    scale = character_px / layout.region.digit_height
    face, hung = sample_frames(rng, camera, layout.size_mm, scale, tilt)
    light = sample_light(rng, tilt)
    lens = sample_lens(rng, size_wh, character_px)
    sheet = draw_sheet(text, plate_kind, layout, scale, rng)
    picture, white = build(camera, face, hung, sheet, light, rng)
    level = float(rng.uniform(*(_DARK_WHITE_LEVEL if light.dark else _WHITE_LEVEL)))
    file = take(lens.see(picture) * np.float32(level / white), light.dark, rng)
    corners = apply_homography(hung.homography(camera), corners_of(layout.size_mm))
    quad = lens.bend_points(corners).astype(np.float32)
    plate = BenchmarkPlate(text, kind, plate_kind.lines, quad)
    return BenchmarkPhoto(f"{kind}-{index:04d}", file, light.dark, (plate,))


def photo_named(name: str, seed: int = SEED) -> BenchmarkPhoto:
    """Make a photo again from its name."""
    kind, _, number = name.rpartition("-")
    return render_photo(kind, int(number), seed)


def render_photos(
    numbered: Iterable[tuple[str, int]], workers: int, seed: int = SEED
) -> Iterator[BenchmarkPhoto]:
    """Render photos in the order asked for."""
    return map_ahead(partial(_render, seed=seed), numbered, workers)


def _render(numbered: tuple[str, int], seed: int) -> BenchmarkPhoto:
    return render_photo(*numbered, seed)
