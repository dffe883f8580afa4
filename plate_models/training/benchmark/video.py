"""Clips of a car that comes near, filmed by a fixed camera and badly encoded."""

from dataclasses import replace

import numpy as np
from numpy.random import SeedSequence, default_rng

from plate_models.training.benchmark.camera import (
    GATE_PITCH_DEG,
    ROLL_DEG,
    Camera,
    Frame,
    sample_frames,
    turn_about,
)
from plate_models.training.benchmark.designs import FOREIGN, sample_design
from plate_models.training.benchmark.light import sample_light
from plate_models.training.benchmark.optics import sample_lens, sense
from plate_models.training.benchmark.photos import SEED, BenchmarkPhoto, label
from plate_models.training.benchmark.plates import draw_sheet, fold_at
from plate_models.training.benchmark.scenes import build
from plate_models.training.codec import through_codec
from plate_models.training.imaging import encode_jpeg
from plate_models.training.synthetic.kinds import CAR, DRAWN

CLIPS = 48
# The first frames aren't kept: a stream's first picture is better than those that follow.
_LEAD, FRAMES = 8, 16
_SIZES_WH, _SMALL_SHARE = ((1280, 720), (1920, 1080)), 0.7
_KBITS = (300.0, 1000.0)
# Height of the smallest characters in the first and in the last frame, in pixels.
_FAR_PX, _NEAR_PX = (4.0, 7.0), (16.0, 28.0)
_FOCAL, _WHITE_LEVEL = (0.9, 1.8), (0.3, 0.9)
# Frames are kept as JPEG files that lose next to nothing more.
_QUALITY = 97


def clip_kind(index: int) -> str:
    """Kind of plate of a clip: every other one a Russian car's, the rest in turn."""
    others = [kind for kind in (*DRAWN, *FOREIGN) if kind != CAR]
    return others[index // 2 % len(others)] if index % 2 else CAR


def render_clip(index: int, seed: int = SEED) -> list[BenchmarkPhoto]:
    """Film a car that comes near, in H.264 at 0.3 to 1 Mbit/s; the same number, the same frames.

    Returns the frames as photos, such as "clip-0003-08".
    """
    kind, at = clip_kind(index), (99, index)
    rng = default_rng(SeedSequence(seed, spawn_key=at))
    size_wh = _SIZES_WH[int(rng.random() >= _SMALL_SHARE)]
    camera = Camera(size_wh, float(rng.uniform(*_FOCAL)) * size_wh[0])
    tilt = turn_about("zx", rng.uniform(-ROLL_DEG, ROLL_DEG), rng.uniform(*GATE_PITCH_DEG))
    design = sample_design(kind, rng)
    far, near = (float(rng.uniform(*px)) / design.character_mm for px in (_FAR_PX, _NEAR_PX))
    start, _ = sample_frames(rng, camera, design.size_mm, far, tilt)
    face, hung = sample_frames(rng, camera, design.size_mm, near, tilt)
    light, lens = sample_light(rng, tilt), sample_lens(rng, size_wh, design.character_mm * near / 2)
    sheet = draw_sheet(design, near, rng)
    level, look = float(rng.uniform(*_WHITE_LEVEL)), int(rng.integers(2**32))
    films, labels = [], []
    for number, share in enumerate(np.linspace(0, 1, _LEAD + FRAMES)):
        origin = start.origin + share * (face.origin - start.origin)
        face_now, hung_now = Frame(origin, face.turn), Frame(origin, hung.turn)
        seen_px = near * float(face.origin[2] / origin[2])
        shown = replace(sheet, fold=fold_at(1 / sheet.to_mm[0, 0], seen_px))
        # The same chance in every frame: scene and camera stay, only the noise is new.
        picture, white = build(camera, face_now, hung_now, shown, light, default_rng(look))
        noise = default_rng(SeedSequence(seed, spawn_key=(*at, number)))
        seen = lens.see(picture) * np.float32(level / white)
        films.append(sense(seen, light.dark, default_rng(look), noise))
        labels.append(label(design, kind, hung_now, camera, lens, light))
    rate = f"{np.exp(rng.uniform(*np.log(_KBITS))):.0f}k"
    films = through_codec(films, "libx264", b=rate, maxrate=rate, bufsize=rate, g="250")
    kept = list(enumerate(zip(films, labels, strict=True)))[_LEAD:]
    return [
        BenchmarkPhoto(
            f"clip-{index:04d}-{number:02d}", encode_jpeg(pixels, _QUALITY).tobytes(), shown
        )
        for number, (pixels, shown) in kept
    ]
