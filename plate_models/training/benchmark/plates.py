"""A flat plate as a surface that reflects light: sheet, print, flag, bolts, frame, soil.

Only what defines a plate comes from the renderer that training uses: glyphs, layouts and
the ranges of the grounds' colours. Soil is kept so thin that every character stays legible.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.random import Generator

from plate_models.training.benchmark.designs import Design
from plate_models.training.benchmark.textures import fractal
from plate_models.training.imaging import Field, Floats, Image, shift_by
from plate_models.training.synthetic.glyphs import Point
from plate_models.training.synthetic.ink import CORNER_MM, rounded_box

_MUD = ((0.20, 0.155, 0.11), (0.12, 0.10, 0.085), (0.30, 0.28, 0.25))
# Chances of each, and the most of a colour that they hide.
_DUST_SHARE, _SPRAY_SHARE, _RUN_SHARE, _SCRATCH_SHARE = 0.45, 0.3, 0.25, 0.25
_DUST_COVER, _SPRAY_COVER, _RUN_COVER = 0.4, 0.8, 0.4

_PAD_MM = 30.0
_FRAME_SHARE, _BOLT_SHARE = 0.55, 0.4
_BOLTS = ((0.02, 0.02, 0.02), (0.3, 0.3, 0.3), (0.6, 0.6, 0.6), (0.4, 0.3, 0.12))
_WORDS = ("Avtodom", "SERVIS 24", "moto & auto", "Don Motors", "Baltika-Lada", "KAMA trade")
# Plates are drawn at one of these resolutions, at least twice as fine as they are seen.
_PX_PER_MM = (0.75, 1.5, 3.0)
_MOST_FOLD = 8


@dataclass(frozen=True)
class Sheet:
    """A flat plate with what it is fixed with."""

    reflectance: Field  # (H, W, 3) float32 RGB, linear, in [0, 1]
    cover: Field  # (H, W) float32; 0 outside the plate and its frame
    size_mm: tuple[float, float]  # width and height of the plate
    to_mm: Floats  # (3, 3) from pixels to millimetres about the plate's middle
    fold: int  # how much finer it is than seen, for `see`
    white: float  # reflectance of the brighter one of sheet and print, in its brightest channel

    def seen_at(self, px_per_mm: float) -> "Sheet":
        """The same sheet, seen from elsewhere at another resolution."""
        return replace(self, fold=_fold_at(1 / self.to_mm[0, 0], px_per_mm))


def draw_sheet(design: Design, seen_px_per_mm: float, rng: Generator) -> Sheet:
    """Make a plate, fine enough to be seen at a resolution."""
    px_per_mm = next((p for p in _PX_PER_MM if p >= 2 * seen_px_per_mm), _PX_PER_MM[-1])
    plate, white = design.print(px_per_mm, rng)
    height, width = plate.shape[:2]
    _soil(plate, rng, px_per_mm)
    _bolt(plate, design.screws, rng, px_per_mm)
    pad = round(_PAD_MM * px_per_mm)
    around = pad, pad, pad, pad
    reflectance = np.asarray(cv2.copyMakeBorder(plate, *around, cv2.BORDER_REPLICATE), np.float32)
    cover = np.pad(rounded_box((width, height), 0, CORNER_MM * px_per_mm), pad)
    if rng.random() < _FRAME_SHARE * design.holder_share:
        _frame(reflectance, cover, design.size_mm, px_per_mm, rng)
    mm, (wide, tall) = 1 / px_per_mm, design.size_mm
    to_mm = shift_by(-wide / 2 - pad * mm, -tall / 2 - pad * mm) @ np.diag((mm, mm, 1))
    opaque = cover.astype(np.float32) / 255
    fold = _fold_at(px_per_mm, seen_px_per_mm)
    return Sheet(reflectance, opaque, design.size_mm, to_mm, fold, white)


def _fold_at(px_per_mm: float, seen_px_per_mm: float) -> int:
    """How many samples a pixel needs each way to see all of a sheet."""
    return int(np.clip(round(px_per_mm / seen_px_per_mm), 2, _MOST_FOLD))


def _soil(sheet: Field, rng: Generator, px_per_mm: float) -> None:
    """Age a plate, in place: dust, drops of mud, runs of rain, scratches."""
    mud = _MUD[rng.integers(len(_MUD))]
    size = height, width = sheet.shape[0], sheet.shape[1]
    fall = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    if rng.random() < _DUST_SHARE:
        drift = 0.5 + 0.25 * fractal(rng, size, 3 * px_per_mm, 1.4)
        _cover(sheet, np.clip(drift, 0, 1) * rng.uniform(0.05, _DUST_COVER), mud)
    if rng.random() < _SPRAY_SHARE:
        # No drop is much larger than a stroke is wide.
        drops = fractal(rng, size, rng.uniform(0.8, 1.8) * px_per_mm, 0.4)
        level = rng.uniform(2.2, 3.2) - rng.uniform(0, 1.0) * fall
        _cover(sheet, np.clip(3 * (drops - level), 0, rng.uniform(0.3, _SPRAY_COVER)), mud)
    if rng.random() < _RUN_SHARE:
        columns = fractal(rng, (2, width), 2 * px_per_mm, 0.6)[:1]
        below = np.maximum(fall, rng.uniform(0, 0.6))
        _cover(sheet, np.clip(columns - 0.4, 0, 1) * below * rng.uniform(0.1, _RUN_COVER), mud)
    if rng.random() < _SCRATCH_SHARE:
        tone = float(rng.choice((0.08, 0.45, 0.7)))
        for _ in range(int(rng.integers(1, 7))):
            start = rng.uniform(0, 1, 2) * (width, height)
            stop = start + rng.normal(0, 40, 2) * px_per_mm
            ends = [np.rint(point).astype(int).tolist() for point in (start, stop)]
            cv2.line(sheet, ends[0], ends[1], (tone, tone, tone), max(1, round(0.8 * px_per_mm)))


def _cover(sheet: Field, cover: Field, colour: tuple[float, float, float]) -> None:
    sheet += cover.astype(np.float32)[..., None] * (np.array(colour, np.float32) - sheet)


def _bolt(plate: Field, screws: Sequence[Point], rng: Generator, px_per_mm: float) -> None:
    """Screw round heads where plates of the kind are fixed."""
    if rng.random() >= _BOLT_SHARE:
        return
    radius = rng.uniform(3.5, 6.5) * px_per_mm
    tone = np.array(_BOLTS[rng.integers(len(_BOLTS))])
    for place in np.rint(np.array(screws) * px_per_mm).astype(int).tolist():
        cv2.circle(plate, place, round(radius * 1.25), (tone * 0.45).tolist(), -1)
        cv2.circle(plate, place, round(radius), tone.tolist(), -1)


def _frame(
    image: Field, cover: Image, size_mm: tuple[float, float], px_per_mm: float, rng: Generator
) -> None:
    """Lay rails around a plate, in place: metal, dark or light, with a lip that says a name."""
    pad, lap = round(_PAD_MM * px_per_mm), round(rng.uniform(0, 2.2) * px_per_mm)
    rail, lip = (float(mm) for mm in rng.uniform((4, 4), (9, 22)))
    width, height = (round(mm * px_per_mm) for mm in size_mm)
    x0, x1 = round(pad - rail * px_per_mm), round(pad + width + rail * px_per_mm)
    y0, y1 = round(pad - rail * px_per_mm), round(pad + height + lip * px_per_mm)
    tone = float((0.015, 0.03, 0.3, 0.55, 0.7)[rng.integers(5)])
    whole = np.zeros(cover.shape, np.uint8)
    whole[y0:y1, x0:x1] = rounded_box((x1 - x0, y1 - y0), 0, 4 * px_per_mm)
    rails = whole > 127
    rails[pad + lap : pad + height - lap, pad + lap : pad + width - lap] = False
    # Rails are round: light from above falls on their upper half.
    rows = np.linspace(1.5, 0.6, image.shape[0], dtype=np.float32)[:, None, None]
    image[:] = np.where(rails[..., None], tone * rows, image)
    np.maximum(cover, whole, out=cover)
    if lip > 13 and rng.random() < 0.8:
        word = _WORDS[rng.integers(len(_WORDS))]
        letters = (0.7, 0.7, 0.65) if tone < 0.2 else (0.03, 0.03, 0.1)
        place = round(x0 + rng.uniform(0.1, 0.6) * width), round(y1 - 0.3 * lip * px_per_mm)
        font = cv2.FONT_HERSHEY_COMPLEX | cv2.FONT_ITALIC
        cv2.putText(image, word, place, font, lip * px_per_mm / 45, letters, 1, cv2.LINE_AA)
