"""A flat car plate (GOST R 50577 type 1): layout, ink, relief, screws and holder."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import cv2
import numpy as np
import numpy.typing as npt

from plate_models.synthetic.glyphs import (
    DIGIT_HEIGHT,
    DIGITS,
    GLYPHS,
    LETTER_HEIGHT,
    Mask,
    glyph_mask,
)
from plate_models.synthetic.holders import draw_screws, mount
from plate_models.synthetic.wear import add_dirt, add_snow, wear_ink

PLATE_WIDTH_MM = 520.0
PLATE_HEIGHT_MM = 112.0
_BASELINE_MM = 94.8
_REGION_HEIGHT_MM = 58.0
_REGION_TOP_MM = 13.5
_COUNTRY_HEIGHT_MM = 20.0
_COUNTRY_TOP_MM = 79.5
_CORNER_MM = 9.0
_LINES_MM = (2.0, 2.6, 3.2)
# Below this resolution, in pixels per millimetre, embossing is not seen.
_RELIEF_SCALE = 0.5
_FLAG = ((235, 235, 235), (40, 70, 160), (195, 45, 50))

Image = npt.NDArray[np.uint8]
Quad = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Layout:
    """Where things stand on the plate: horizontal positions in millimetres."""

    main: tuple[float, ...]
    divider: float
    region: tuple[float, ...]
    country: float
    flag: tuple[float, float]


# Measured on photos; a three-digit region takes its room from the serial number.
LAYOUTS = {
    2: Layout((61.2, 124.5, 180.3, 236.3, 300.2, 355.4), 397, (426, 469.3), 405, (466, 509)),
    3: Layout((49.5, 105.7, 161.5, 217.6, 274, 329.7), 369, (391, 434, 476.3), 405, (466, 509)),
}


@dataclass(frozen=True)
class PlateStyle:
    """How plates differ from one another before a camera sees them.

    Attributes:
        jitter_mm: Standard deviation of a character's position.
        bolder_mm: Range of the change of the stroke width.
        paper, ink: Ranges of the grey levels of the reflective sheet and the paint.
        tint: Standard deviation of the sheet's colour per channel, in grey levels.
        relief: Range of the embossing's strength, in grey levels.
        screw_radius_mm: Range of the size of the screws.
        screw_shares: Chances of a screw at its standard place, and of a stray one.
        worn_share, dirty_share, snowy_share: Chances of each kind of decay.
        holder_share: Chance of a holder around the plate.
        flag_share: Chance of a flag beside the country's letters.
    """

    jitter_mm: float = 0.8
    bolder_mm: tuple[float, ...] = (-2.2, -1.4, -0.7, -0.7, 0.0, 1.0)
    paper: tuple[float, float] = (185, 250)
    ink: tuple[float, float] = (12, 75)
    tint: float = 4.0
    relief: tuple[float, float] = (0, 45)
    screw_radius_mm: tuple[float, float] = (2.5, 8.5)
    screw_shares: tuple[float, float] = (0.85, 0.08)
    worn_share: float = 0.15
    dirty_share: float = 0.3
    snowy_share: float = 0.05
    holder_share: float = 0.82
    flag_share: float = 0.85


DEFAULT_STYLE = PlateStyle()


@dataclass(frozen=True)
class PlateImage:
    """A flat plate with its holder.

    Attributes:
        rgb: (H, W, 3) uint8.
        alpha: (H, W) uint8; 0 outside the plate's and the holder's rounded corners.
        px_per_mm: Resolution.
        quad: (4, 2) float32, the plate's own corners (TL, TR, BR, BL) in pixels of
            ``rgb``; the holder lies outside it.
    """

    rgb: Image
    alpha: Mask
    px_per_mm: float
    quad: Quad


def _stamp(ink: Mask, mask: Mask, centre_x: float, top_y: float) -> None:
    """Lay a glyph's coverage over the ink at a place in pixels, clipped to it."""
    left = round(centre_x - mask.shape[1] / 2)
    top = round(top_y)
    x0, y0 = max(left, 0), max(top, 0)
    x1 = min(left + mask.shape[1], ink.shape[1])
    y1 = min(top + mask.shape[0], ink.shape[0])
    if x0 < x1 and y0 < y1:
        patch = ink[y0:y1, x0:x1]
        np.maximum(patch, mask[y0 - top : y1 - top, x0 - left : x1 - left], out=patch)


@lru_cache(maxsize=64)
def _border(px_per_mm: float, divider_mm: float, thick_mm: float) -> Mask:
    """The black frame and the line before the region, as coverage."""
    scale = 4 * px_per_mm
    size_wh = round(PLATE_WIDTH_MM * scale), round(PLATE_HEIGHT_MM * scale)
    inset = 2.8
    outer = _rounded_box(size_wh, inset * scale, (_CORNER_MM - inset) * scale)
    inner_inset = inset + thick_mm
    inner = _rounded_box(size_wh, inner_inset * scale, (_CORNER_MM - inner_inset) * scale)
    border = outer - inner
    left = round((divider_mm - thick_mm / 2) * scale)
    border[
        round(inset * scale) : round((PLATE_HEIGHT_MM - inset) * scale),
        left : left + round(thick_mm * scale),
    ] = 255
    small = round(PLATE_WIDTH_MM * px_per_mm), round(PLATE_HEIGHT_MM * px_per_mm)
    return np.asarray(cv2.resize(border, small, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _rounded_box(size_wh: tuple[int, int], inset: float, radius: float) -> Mask:
    """A filled box with round corners, ``inset`` pixels from the image's sides."""
    width, height = size_wh
    box = np.zeros((height, width), np.uint8)
    low, r = round(inset), max(1, round(radius))
    right, bottom = width - 1 - low, height - 1 - low
    cv2.rectangle(box, (low + r, low), (right - r, bottom), (255,), -1)
    cv2.rectangle(box, (low, low + r), (right, bottom - r), (255,), -1)
    for x in (low + r, right - r):
        for y in (low + r, bottom - r):
            cv2.circle(box, (x, y), r, (255,), -1)
    return box


@lru_cache(maxsize=64)
def _outline(size_wh: tuple[int, int], radius: float) -> Mask:
    return _rounded_box(size_wh, 0, radius)


def _draw_ink(text: str, rng: np.random.Generator, scale: float, style: PlateStyle) -> Mask:
    """Coverage of everything black on a plate."""
    layout = LAYOUTS[len(text) - 6]
    ink = _border(scale, layout.divider, _LINES_MM[rng.integers(len(_LINES_MM))]).copy()
    bolder = style.bolder_mm[rng.integers(len(style.bolder_mm))]
    drift = rng.normal(0, 1.5 * style.jitter_mm, 2)
    jitter = rng.normal(0, style.jitter_mm, (len(text), 2)) + drift
    for index, char in enumerate(text):
        in_region = index >= 6
        height = DIGIT_HEIGHT if char in DIGITS else LETTER_HEIGHT
        bottom = _BASELINE_MM
        if in_region:
            height, bottom = _REGION_HEIGHT_MM, _REGION_TOP_MM + _REGION_HEIGHT_MM
        mask = glyph_mask(char, scale, height, bolder)
        centre = (layout.main + layout.region)[index]
        margin = 2.0 * height / GLYPHS[char].height
        x, y = centre + jitter[index, 0], bottom - height - margin + jitter[index, 1]
        _stamp(ink, mask, x * scale, y * scale)
    _draw_country(ink, layout, scale, bolder)
    return ink


def _draw_country(ink: Mask, layout: Layout, scale: float, bolder: float) -> None:
    for index, char in enumerate("RUS"):
        mask = glyph_mask(char, scale, _COUNTRY_HEIGHT_MM, bolder - 0.5)
        x = layout.country + 6.5 + 20.0 * index
        _stamp(ink, mask, x * scale, (_COUNTRY_TOP_MM - 0.7) * scale)


def _draw_flag(rgb: Image, layout: Layout, scale: float) -> None:
    x0, x1 = (round(x * scale) for x in layout.flag)
    rows = [round((78.5 + 7.5 * i) * scale) for i in range(4)]
    edge = max(1, round(0.8 * scale))
    rgb[rows[0] - edge : rows[3] + edge, x0 - edge : x1 + edge] = 60
    for (y0, y1), colour in zip(pairwise(rows), _FLAG, strict=True):
        rgb[y0:y1, x0:x1] = colour


def _emboss(rgb: Image, ink: Mask, strength: float, step: int) -> Image:
    """Light the raised characters from one side; negative strength from the other."""
    lit = np.zeros_like(ink)
    dim = np.zeros_like(ink)
    near, far = ink[: -2 * step, : -2 * step], ink[2 * step :, 2 * step :]
    lit[step:-step, step:-step] = cv2.subtract(near, far)
    dim[step:-step, step:-step] = cv2.subtract(far, near)
    factor = strength / 255
    rgb = np.asarray(cv2.addWeighted(rgb, 1, cv2.merge((lit, lit, lit)), factor, 0), np.uint8)
    return np.asarray(cv2.addWeighted(rgb, 1, cv2.merge((dim, dim, dim)), -factor, 0), np.uint8)


def _paint(
    ink: Mask, text: str, rng: np.random.Generator, scale: float, style: PlateStyle
) -> Image:
    """The plate's sheet with its ink, relief, flag and screws."""
    paper = rng.uniform(*style.paper) + rng.normal(0, style.tint, 3)
    paint = rng.uniform(*style.ink) + rng.normal(0, style.tint / 2, 3)
    if rng.random() < style.worn_share:
        ink = wear_ink(ink, rng)
    table = paper + np.linspace(0, 1, 256)[:, None] * (paint - paper)
    levels = np.clip(table, 0, 255).astype(np.uint8).reshape(1, 256, 3)
    rgb = np.asarray(cv2.LUT(cv2.merge((ink, ink, ink)), levels), np.uint8)
    relief = rng.uniform(*style.relief) * (1 if rng.random() < 0.5 else -1)
    if scale >= _RELIEF_SCALE:
        rgb = _emboss(rgb, ink, relief, max(1, round(1.2 * scale)))
    if rng.random() < style.flag_share:
        _draw_flag(rgb, LAYOUTS[len(text) - 6], scale)
    draw_screws(rgb, rng, scale, style.screw_shares, style.screw_radius_mm)
    return rgb


def render_plate(
    text: str,
    rng: np.random.Generator,
    px_per_mm: float = 1.0,
    style: PlateStyle = DEFAULT_STYLE,
) -> PlateImage:
    """Draw one plate, flat and evenly lit, with or without a holder around it.

    Args:
        text: As :func:`plate_models.synthetic.texts.sample_text` gives it.
        rng: Source of everything that the text leaves open.
        px_per_mm: Resolution; glyphs are cached per value, so use few.
        style: How much plates differ.

    Raises:
        ValueError: The text does not have eight or nine characters.
    """
    if len(text) - 6 not in LAYOUTS:
        raise ValueError(f"{text!r}: expected 8 or 9 characters, got {len(text)}")
    ink = _draw_ink(text, rng, px_per_mm, style)
    plate = _paint(ink, text, rng, px_per_mm, style)
    if rng.random() < style.dirty_share:
        add_dirt(plate, rng)
    height, width = plate.shape[:2]
    radius = _CORNER_MM * px_per_mm
    alpha, left, top, rgb = _outline((width, height), radius), 0, 0, plate
    if rng.random() < style.holder_share:
        rgb, (left, top) = mount(plate, alpha, rng, px_per_mm)
        alpha = _outline((rgb.shape[1], rgb.shape[0]), radius)
    if rng.random() < style.snowy_share:
        add_snow(rgb, rng)
    quad = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    quad += np.array([left, top], np.float32)
    return PlateImage(rgb, alpha, px_per_mm, quad)
