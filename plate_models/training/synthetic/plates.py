"""A flat plate: its sheet, ink, relief, flag, screws and holder."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import cv2
import numpy as np
import numpy.typing as npt

from plate_models.training.synthetic.glyphs import Mask
from plate_models.training.synthetic.holders import draw_screws, mount
from plate_models.training.synthetic.ink import CORNER_MM, draw_ink, loosen, rounded_box
from plate_models.training.synthetic.kinds import CAR, Ground, Layout, PlateKind, kind_named
from plate_models.training.synthetic.wear import add_dirt, add_snow, wear_ink

# Below this resolution, in pixels per millimetre, embossing is not seen.
_RELIEF_SCALE = 0.5
_FLAG = ((235, 235, 235), (40, 70, 160), (195, 45, 50))
# The grounds' colours are those of a sheet of this level.
_FULL_LEVEL = 250.0

Image = npt.NDArray[np.uint8]
Quad = npt.NDArray[np.float32]
Colour = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PlateStyle:
    """How plates differ from one another before a camera sees them.

    Attributes:
        jitter_mm: Standard deviation of a character's position.
        bolder_mm: Range of the change of the stroke width.
        paper, ink: Ranges of the grey levels of white sheets and of black paint. Coloured
            sheets are darkened as white ones are, and white paint is as bright as they.
        tint: Standard deviation of the sheet's colour per channel, in grey levels.
        relief: Range of the embossing's strength, in grey levels.
        screw_radius_mm: Range of the size of the screws.
        screw_shares: Chances of a screw at its standard place, and of a stray one.
        worn_share, dirty_share, snowy_share: Chances of each kind of decay.
        holder_share: Chance of a holder around a car's plate.
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
        kind: Name of its format, such as "ru.car".
        lines: Of text, 1 or 2.
    """

    rgb: Image
    alpha: Mask
    px_per_mm: float
    quad: Quad
    kind: str
    lines: int


@lru_cache(maxsize=64)
def _outline(size_wh: tuple[int, int], radius: float) -> Mask:
    return rounded_box(size_wh, 0, radius)


def _draw_flag(rgb: Image, layout: Layout, scale: float) -> None:
    left, top, right, bottom = layout.flag
    x0, x1 = round(left * scale), round(right * scale)
    rows = [round((top + (bottom - top) / 3 * i) * scale) for i in range(4)]
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


def _mix_colours(
    ground: Ground, rng: np.random.Generator, style: PlateStyle
) -> tuple[Colour, Colour]:
    """Colours of the sheet and of the paint on it, RGB in about [0, 255]."""
    low, high = (np.array(end) for end in ground.sheet)
    shade = low + (high - low) * (0.7 * rng.random() + 0.3 * rng.random(3))
    paper = shade * (rng.uniform(*style.paper) / _FULL_LEVEL) + rng.normal(0, style.tint, 3)
    level = rng.uniform(*(style.paper if ground.light_ink else style.ink))
    return paper, level + rng.normal(0, style.tint / 2, 3)


def _paint(
    ink: Mask,
    kind: PlateKind,
    layout: Layout,
    rng: np.random.Generator,
    scale: float,
    style: PlateStyle,
) -> Image:
    """The plate's sheet with its ink, relief, flag and screws."""
    paper, paint = _mix_colours(kind.ground, rng, style)
    if rng.random() < style.worn_share:
        ink = wear_ink(ink, rng)
    table = paper + np.linspace(0, 1, 256)[:, None] * (paint - paper)
    levels = np.clip(table, 0, 255).astype(np.uint8).reshape(1, 256, 3)
    rgb = np.asarray(cv2.LUT(cv2.merge((ink, ink, ink)), levels), np.uint8)
    relief = rng.uniform(*style.relief) * (1 if rng.random() < 0.5 else -1)
    if scale >= _RELIEF_SCALE:
        rgb = _emboss(rgb, ink, relief, max(1, round(1.2 * scale)))
    if rng.random() < style.flag_share * kind.flag_share:
        _draw_flag(rgb, layout, scale)
    draw_screws(rgb, rng, scale, layout.screws, style.screw_shares, style.screw_radius_mm)
    return rgb


def render_plate(
    text: str,
    rng: np.random.Generator,
    px_per_mm: float = 1.0,
    style: PlateStyle = DEFAULT_STYLE,
    kind: str = CAR,
) -> PlateImage:
    """Draw one plate, flat and evenly lit, with or without a holder around it.

    Args:
        text: As :func:`plate_models.training.synthetic.texts.sample_text` gives it for the kind.
        rng: Source of everything that the text leaves open.
        px_per_mm: Resolution; glyphs are cached per value, so use few.
        style: How much plates differ.
        kind: Name of a format, a key of ``KINDS``.

    Raises:
        ValueError: There is no such kind, or its texts have another length.
    """
    plate_kind = kind_named(kind)
    fitting = plate_kind.layouts_of(text)
    layout = loosen(fitting[rng.integers(len(fitting))], plate_kind, rng)
    bolder = style.bolder_mm[rng.integers(len(style.bolder_mm))]
    ink = draw_ink(text, plate_kind, layout, rng, px_per_mm, style.jitter_mm, bolder)
    plate = _paint(ink, plate_kind, layout, rng, px_per_mm, style)
    if rng.random() < style.dirty_share:
        add_dirt(plate, rng)
    height, width = plate.shape[:2]
    radius = CORNER_MM * px_per_mm
    alpha, left, top, rgb = _outline((width, height), radius), 0, 0, plate
    if rng.random() < style.holder_share * plate_kind.holder_share:
        rgb, (left, top) = mount(plate, alpha, rng, px_per_mm)
        alpha = _outline((rgb.shape[1], rgb.shape[0]), radius)
    if rng.random() < style.snowy_share:
        add_snow(rgb, rng)
    quad = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    quad += np.array([left, top], np.float32)
    return PlateImage(rgb, alpha, px_per_mm, quad, kind, plate_kind.lines)
