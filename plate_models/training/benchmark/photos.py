"""The benchmark's photos: each depends on its kind, variant and number alone."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator, SeedSequence, default_rng

from plate_models.training.benchmark import scenes
from plate_models.training.benchmark.camera import Camera, Frame, sample_camera, sample_frames
from plate_models.training.benchmark.optics import Lens, sample_lens, sense, store
from plate_models.training.benchmark.plates import FOREIGN, Design, draw_sheet, sample_design
from plate_models.training.benchmark.textures import draw_background
from plate_models.training.imaging import DECODERS, Image, through_codec
from plate_models.training.labels import LabelledPlate
from plate_models.training.synthetic.kinds import DRAWN
from plate_models.training.tables import log_uniform

_SEED = 20_260
CHARACTER_PX = (9.0, 36.0)
BENCHMARK_KINDS = (*DRAWN, *FOREIGN)
VARIANTS = ("", "night", "codec")
_SIZES_WH, _SMALL_SHARE = ((960, 540), (1280, 720)), 0.6
_GATE_SHARE = 0.6
_FOCAL = (0.8, 1.8)

# Of videos: the constant rate factor, and the largest motion from frame to frame, in pixels.
_RATE_FACTOR, _MOST_X, _MOST_Y = (26, 34), 6, 3


@dataclass(frozen=True)
class BenchmarkPhoto:
    """A photo file with its label."""

    name: str  # kind, variant if any, and number, such as "ru.car-0017" or "ru.car-night-0017"
    file: bytes  # JPEG
    plate: LabelledPlate  # the photo's only plate


def label(design: Design, hung: Frame, camera: Camera, lens: Lens) -> LabelledPlate:
    """Label a plate with text, format, box and quad in pixels of the photo."""
    quad = lens.bend_points(hung.quad(camera, design.size_mm))
    (x0, y0), (x1, y1) = quad.min(axis=0).tolist(), quad.max(axis=0).tolist()
    about = design.text, True, design.kind.format.lines, design.kind.format.name
    return LabelledPlate((x0, y0, x1, y1), *about, tuple((x, y) for x, y in quad.tolist()))


def render_photo(kind: str, index: int, variant: str = "") -> BenchmarkPhoto:
    """Render a photo of the benchmark; the same arguments give the same bytes.

    Raises ValueError unless the kind is in `BENCHMARK_KINDS` and the variant in `VARIANTS`.
    """
    place = BENCHMARK_KINDS.index(kind), index, *([VARIANTS.index(variant)] if variant else [])
    rng = default_rng(SeedSequence(_SEED, spawn_key=place))
    camera, tilt = sample_camera(rng, _SIZES_WH, _SMALL_SHARE, _FOCAL, _GATE_SHARE)
    character_px = log_uniform(CHARACTER_PX, rng)
    design = sample_design(kind, rng)
    scale = character_px / design.character_mm
    face, hung = sample_frames(rng, camera, design.size_mm, scale, tilt)
    light = scenes.infrared(rng) if variant == "night" else scenes.sample_light(rng, tilt)
    lens = sample_lens(rng, camera.size_wh, character_px)
    sheet = draw_sheet(design, scale, rng)
    background = draw_background(rng, camera.size_wh)
    vehicle = scenes.Vehicle(face, hung, sheet, scale, scenes.draw_body(design.size_mm, rng))
    around = scenes.shade(background, camera, face, light, rng)
    factor = scenes.choose_exposure(vehicle, light, rng)
    flux = lens.project(scenes.compose(around, camera, [vehicle], light)) * factor
    if variant == "night":
        # The sensor has no colour filter: all channels are the same.
        flux = np.repeat(flux @ rng.dirichlet((2, 2, 2)).astype(np.float32)[:, None], 3, axis=2)
    pixels = sense(flux, light.dark, rng)
    if variant == "night":
        pixels = np.repeat(pixels[..., 1:2], 3, axis=2)
    if variant == "codec":
        pixels = _as_filmed(pixels, rng)
    name = "-".join((kind, *filter(None, [variant]), f"{index:04d}"))
    return BenchmarkPhoto(name, store(pixels, rng), label(design, hung, camera, lens))


def _as_filmed(pixels: Image, rng: Generator) -> Image:
    """Encode an image as the last frame of a short, badly compressed video of a moving camera."""
    codec = str(rng.choice(list(DECODERS)))
    x, y = int(rng.integers(-_MOST_X, _MOST_X + 1)), int(rng.integers(-_MOST_Y, _MOST_Y + 1))
    frames = [np.roll(pixels, (y * left, x * left), axis=(0, 1)) for left in (3, 2, 1, 0)]
    factor = rng.integers(_RATE_FACTOR[0], _RATE_FACTOR[1] + 1)
    return through_codec(frames, codec, crf=str(factor))[-1]
