"""A flat plate: its sheet, ink, relief, flag, screws and holder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import cv2
import numpy as np
from numpy.random import Generator
from scipy.spatial.transform import Rotation

from plate_models.training import imaging
from plate_models.training.imaging import Field, Floats, Image, Mask
from plate_models.training.synthetic.ink import CORNER_MM, draw_ink, loosen, rounded_box
from plate_models.training.synthetic.kinds import Layout, PlateKind, Point, kind_named, sample_text
from plate_models.training.synthetic.latin import LATIN, LatinPlate, paint_latin, sample_latin
from plate_models.training.synthetic.wear import add_dirt, add_obstacle, add_snow, wear_ink
from plate_models.training.tables import Range, pick, tables_of

_TABLES = tables_of(__file__)
_AD_FONTS = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_TRIPLEX)
_FULL_WIDTH_MM = 520.0
# Factor on a style's probability of a holder, for plates of any country.
_HOLDER_SHARE = 0.6
# Below this resolution, in pixels per millimetre, embossing is invisible.
_RELIEF_SCALE = 0.5
# Grey level of a white sheet in full light; the colours of sheets are relative to it.
_FULL_LEVEL = 250.0
# Resolutions of plates in pixels per millimetre: few, because glyphs are cached per resolution.
_LEVELS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4)
# Largest picture of a plate: a plate that fills a photo is smooth anyway.
_MAX_PIXELS = 60_000


@dataclass(frozen=True)
class PlateStyle:
    """The distribution of plates' properties, before they are photographed."""

    jitter_mm: float = 0.8  # standard deviation of a character's position
    bolder_mm: tuple[float, ...] = (-2.2, -1.4, -0.7, -0.7, 0.0, 1.0)  # added to strokes' widths
    # Grey levels of white sheets and of black paint. Coloured sheets are darkened as white ones
    # are; white paint is as bright as white sheets.
    paper: tuple[float, float] = (185, 250)
    ink: tuple[float, float] = (12, 75)
    screw_shares: tuple[float, float] = (0.85, 0.08)  # at each standard place; elsewhere
    worn_share: float = 0.15
    dirty_share: float = 0.3
    snowy_share: float = 0.05
    hidden_share: float = 0.08  # behind a tow bar, a cable, mud or stripes of snow
    holder_share: float = 0.82  # around a car's plate


@dataclass(frozen=True)
class Design:
    """A plate's text and kind, before it is printed."""

    rows: tuple[str, ...]  # lines of text without spaces, the upper line first
    size_mm: Point  # width and height of the smallest such plate
    appearance: PlateKind | LatinPlate


@dataclass(frozen=True)
class PlateImage:
    """A flat plate with its holder."""

    rgb: Image  # (H, W, 3) uint8
    alpha: Mask  # (H, W) uint8; 0 outside the plate's and the holder's rounded corners
    # (4, 2) float32, the plate's own corners (TL, TR, BR, BL) in pixels of ``rgb``, without the
    # holder.
    quad: Field

    @property
    def layers(self) -> Image:
        """(H, W, 4) uint8: RGB premultiplied by alpha, and alpha."""
        cover = cv2.cvtColor(self.alpha, cv2.COLOR_GRAY2RGB)
        return np.dstack((cv2.multiply(self.rgb, cover, scale=1 / 255), self.alpha))


def sample_design(kind: str, rng: Generator, text: str = "") -> Design:
    """Design a plate of a kind, `LATIN` or a key of ``KINDS``, with a given or a random text.

    The text of a `LATIN` plate is always random. Raises ValueError: There is no such kind, or the
    text follows none of its patterns.
    """
    if kind == LATIN:
        latin = sample_latin(rng)
        design = Design(latin.rows, latin.size_mm, latin)
    else:
        own = kind_named(kind)
        rows = own.rows(text or sample_text(rng, kind, repeats=True))
        design = Design(rows, own.smallest_mm, own)
    return replace(design, rows=tuple(row.replace(" ", "") for row in design.rows))


def render_plate(
    design: Design, width_px: float, rng: Generator, style: PlateStyle = PlateStyle()
) -> PlateImage:
    """Draw a plate, flat and evenly lit, with or without a holder around it.

    ``width_px`` is the plate's width in the photo, which decides the resolution.

    Raises FileNotFoundError: ``latin.FONTS`` has no typeface for the plate.
    """
    wide, high = design.size_mm
    allowed = [level for level in _LEVELS if level**2 * wide * high <= _MAX_PIXELS]
    scale = next((level for level in allowed if level * wide >= width_px), allowed[-1])
    kind = design.appearance
    if isinstance(kind, LatinPlate):
        plate, holder_share = _print_latin(kind, rng, scale, style), _HOLDER_SHARE
    else:
        plate = _print_plate("".join(design.rows), kind, rng, scale, style)
        holder_share = kind.holder_share
    # Dirt lies on the plate alone, snow and obstacles also on the holder.
    if rng.random() < style.dirty_share:
        add_dirt(plate, rng)
    height, width = plate.shape[:2]
    alpha, left, top, rgb = rounded_box((width, height), 0, CORNER_MM * scale), 0, 0, plate
    if rng.random() < style.holder_share * holder_share:
        rgb, (left, top) = _mount(plate, alpha, rng, scale)
        alpha = rounded_box((rgb.shape[1], rgb.shape[0]), 0, CORNER_MM * scale)
    if rng.random() < style.snowy_share:
        add_snow(rgb, rng)
    if rng.random() < style.hidden_share:
        add_obstacle(rgb, rng, height / len(design.rows))
    quad = (imaging.box_corners(width, height) + np.array([left, top])).astype(np.float32)
    return PlateImage(rgb, alpha, quad)


def _print_plate(
    text: str, kind: PlateKind, rng: Generator, scale: float, style: PlateStyle
) -> Image:
    """Draw a plate with ink, relief, flag and screws, but without dirt and holder."""
    low, high = (np.array(end) for end in kind.sheet)
    if kind.table.sizes_mm:
        sheet = tuple((low + (high - low) * rng.random()).tolist())
        size = pick(kind.table.sizes_mm, rng)
        colours = sheet, (245,) * 3 if kind.light_ink else (15,) * 3
        latin = LatinPlate(kind.rows(text), size, kind.table.band, colours, kind.typefaces)
        return _print_latin(latin, rng, scale, style)
    layout = loosen(pick(kind.layouts_of(text), rng), kind, rng)
    ink = draw_ink(text, kind, layout, rng, scale, style.jitter_mm, pick(style.bolder_mm, rng))
    shade = low + (high - low) * (0.7 * rng.random() + 0.3 * rng.random(3))
    paper = shade * (rng.uniform(*style.paper) / _FULL_LEVEL) + rng.normal(0, 4, 3)
    level = rng.uniform(*(style.paper if kind.light_ink else style.ink))
    paint = level + rng.normal(0, 2, 3)
    if rng.random() < style.worn_share:
        ink = wear_ink(ink, rng)
    table = paper + np.linspace(0, 1, 256)[:, None] * (paint - paper)
    rgb = _emboss(np.clip(table, 0, 255).astype(np.uint8)[ink], ink, rng, scale)
    if kind.flag and rng.random() < 0.85 * kind.flag_share:
        _draw_flag(rgb, kind.flag, layout, scale)
    _draw_screws(rgb, rng, scale, layout.size_mm, layout.screws, style.screw_shares)
    return rgb


def _print_latin(latin: LatinPlate, rng: Generator, scale: float, style: PlateStyle) -> Image:
    rgb, ink = paint_latin(latin, rng, scale)
    gain: Floats = rng.uniform(*style.paper) / _FULL_LEVEL * (1 + rng.normal(0, 0.015, 3))
    rgb = np.clip(rgb * gain + rng.uniform(0, 25), 0, 255).astype(np.uint8)
    rgb = _emboss(rgb, ink, rng, scale)
    width, height = latin.size_mm
    places = (0.05 * width, height / 2), (0.95 * width, height / 2), (0.25 * width, 0.08 * height)
    screws = tuple(place for place in places if rng.random() < 0.5)
    _draw_screws(rgb, rng, scale, latin.size_mm, screws, style.screw_shares)
    return rgb


def _draw_flag(rgb: Image, stripes: Sequence[str], layout: Layout, scale: float) -> None:
    left, top, right, bottom = layout.flag
    x0, x1 = round(left * scale), round(right * scale)
    count = len(stripes)
    rows = [round((top + (bottom - top) / count * i) * scale) for i in range(count + 1)]
    edge = max(1, round(0.8 * scale))
    rgb[rows[0] - edge : rows[-1] + edge, x0 - edge : x1 + edge] = 60
    for (y0, y1), stripe in zip(pairwise(rows), stripes, strict=True):
        rgb[y0:y1, x0:x1] = _TABLES["flag"][stripe]


def _emboss(rgb: Image, ink: Mask, rng: Generator, scale: float) -> Image:
    """Shade the embossed characters with light from a random side."""
    strength = rng.uniform(0, 45) * (1 if rng.random() < 0.5 else -1)
    if scale < _RELIEF_SCALE:
        return rgb
    step, slope = max(1, round(1.2 * scale)), np.zeros(ink.shape, np.float32)
    near, far = ink[: -2 * step, : -2 * step], ink[2 * step :, 2 * step :]
    slope[step:-step, step:-step] = near.astype(np.float32) - far
    lit = rgb + (strength / 255) * slope[..., None]
    return np.clip(lit, 0, 255).astype(np.uint8)


def _draw_screws(
    rgb: Image, rng: Generator, scale: float, size_mm: Point, screws: Sequence[Point], shares: Range
) -> None:
    standard, stray = shares
    chosen = [place for place in screws if rng.random() < standard]
    width, height = size_mm
    while rng.random() < stray:
        rows = 9, height / 2, height - 9
        chosen.append((float(rng.uniform(12, width - 12)), float(rng.choice(rows))))
    radius = float(rng.uniform(2.5, 8.5))
    colour = np.array(pick(_TABLES["screws"], rng), np.float64)
    sub_pixels = scale * 16
    for place in chosen:
        centre = np.rint((place + rng.normal(0, 2.2, 2)) * sub_pixels).astype(int).tolist()
        size = max(radius * rng.uniform(0.85, 1.15), 0.8 / scale)
        for part, factor in ((1.25, 0.55), (1.0, 1.0), (0.45, rng.uniform(0.6, 1.0))):
            tone = (colour * factor).tolist()
            cv2.circle(rgb, centre, round(size * part * sub_pixels), tone, -1, cv2.LINE_AA, 4)


def _write_advertisement(rgb: Image, rng: Generator, rows: tuple[int, int], tone: float) -> None:
    """Write one to three phrases between two rows of the holder."""
    height = (rows[1] - rows[0]) * rng.uniform(0.35, 0.7)
    colour = np.clip(tone + rng.normal(0, 15, 3), 0, 255).tolist()
    font, gap = pick(_AD_FONTS, rng), " " * int(rng.integers(2, 9))
    text = gap.join(rng.choice(_TABLES["advertisements"], rng.integers(1, 4)))
    place = round(rgb.shape[1] * rng.uniform(0.03, 0.5)), round((sum(rows) + height) / 2)
    thick = 1 if height < 18 else 2
    cv2.putText(rgb, text, place, font, height / 22, colour, thick, cv2.LINE_AA)


def _mount(
    plate: Image, outline: Mask, rng: Generator, px_per_mm: float
) -> tuple[Image, tuple[int, int]]:
    """Put a plate in a holder; returns the holder's image and the plate's position (x, y) there."""
    height, width = plate.shape[:2]
    slim = (width / px_per_mm / _FULL_WIDTH_MM) ** 0.5
    side_mm, upper_mm = rng.uniform(2, 11, 2)
    if rng.random() < 0.08:
        upper_mm = rng.uniform(14, 24)
    lower_mm = rng.uniform(12, 26) if rng.random() < 0.7 else rng.uniform(3, 9)
    side, upper, lower = (round(mm * slim * px_per_mm) for mm in (side_mm, upper_mm, lower_mm))
    tone = pick(_TABLES["holders"], rng)
    rgb = np.empty((height + upper + lower, width + 2 * side, 3), np.uint8)
    rgb[:] = colour = np.clip(tone + rng.normal(0, 4, 3), 0, 255)
    # The upper edge catches light from the sky.
    rgb[: upper // 3] = np.minimum(colour + rng.uniform(0, 40, 3), 255)
    letters = 225.0 if tone < 100 else 35.0
    letters += (tone - letters) * rng.uniform(0, 0.6)
    for rows in ((0, upper), (height + upper, height + upper + lower)):
        if rows[1] - rows[0] > 10 * px_per_mm and rng.random() < 0.8:
            _write_advertisement(rgb, rng, rows, letters)
    # Many holders overlap the plate's edge.
    lip = round(max(0.0, rng.uniform(-3, 4.5)) * px_per_mm)
    shown = slice(lip, height - lip), slice(lip, width - lip)
    window = rgb[upper : upper + height, side : side + width][shown]
    cv2.copyTo(plate[shown], outline[shown], dst=window)
    return rgb, (side, upper)


def project(plate: PlateImage, angles_deg: Floats, distance: float, width_px: float) -> Floats:
    """Project a plate into a pinhole camera that points at its middle, ``width_px`` wide.

    The angles are roll, yaw and pitch, the distance is in widths of the plate. Returns the (3, 3)
    homography from pixels of the plate's image to photo pixels relative to the plate's middle.
    """
    roll, yaw, pitch = np.radians(angles_deg)
    turn = Rotation.from_euler("ZXY", (roll, pitch, yaw)).as_matrix()
    width, (x, y) = np.ptp(plate.quad[:, 0]), plate.quad.mean(axis=0)
    # Plate points have z = 0, so the turn's third column drops out.
    camera = np.column_stack([turn[:, :2], [0, 0, distance]])
    view: Floats = camera @ np.diag((1 / width, 1 / width, 1)) @ imaging.shift_by(-x, -y)
    scale = width_px / np.ptp(imaging.apply_homography(view, plate.quad)[:, 0])
    return np.diag((scale, scale, 1)) @ view
