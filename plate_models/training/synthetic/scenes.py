"""Paints plates into real photos, in place of the photos' own plates, and clutter beside them.

A detector mistakes clutter for plates: signs, lettering, cameras' clocks, windows, vents.
"""

import re

import cv2
import numpy as np
from numpy.random import Generator
from PIL import Image as Pictures
from PIL import ImageDraw

from plate_models.training import imaging
from plate_models.training.imaging import Field, Floats, Image, Mask
from plate_models.training.synthetic.kinds import CAR
from plate_models.training.synthetic.plates import PlateImage, project, render_plate, sample_design
from plate_models.training.tables import log_uniform, pick, tables_of

# Grey level of a rendered plate's sheet in full light.
_PAPER = 215.0
# Standard deviations of roll, yaw and pitch.
_SPREAD_DEG = (2.5, 16, 8)
# Margin around the old plate that is painted over, as a share of its box's width and height.
_RIM = 0.10
# Pixels of clutter per pixel of the photo: details survive the warp.
_FINER = 1.5
_MAX_SIDE = 700
# Free fonts (Bitstream Vera's licence) that come with matplotlib.
_FONTS = ("Sans-Bold", "Sans-Bold", "Sans", "SansMono-Bold", "SansMono", "Serif-Bold", "Serif")
_FONT_SIZE = 48
_TABLES = tables_of(__file__)


def paint_plate(
    photo: Image, box: Field, rng: Generator, kind: str = CAR
) -> tuple[Image, Field, tuple[str, ...]]:
    """Replace the plate in a box with a rendered plate in the same light and colour cast.

    The colours around the old plate are painted over it first, because the new plate may be lower
    or narrower. The photo is (H, W, 3) uint8 RGB, the box (4,) x0, y0, x1, y1 in photo pixels.
    Returns a painted copy of the photo, the plate's corners TL, TR, BR, BL in photo pixels, (4, 2)
    float32, and its lines of text. Raises ValueError if the box has no area inside the photo, or if
    the kind is neither `LATIN` nor in ``KINDS``.
    """
    plate, view, rows = _hang_plate(kind, box, rng)
    quad = imaging.apply_homography(view, plate.quad)
    outline = imaging.apply_homography(view, imaging.box_corners(*plate.alpha.shape[::-1]))
    size = np.array([box[2] - box[0], box[3] - box[1]])
    low = np.minimum(outline.min(axis=0), box[:2] - _RIM * size) - 3
    high = np.maximum(outline.max(axis=0), box[2:] + _RIM * size) + 3
    limit = np.array(photo.shape[1::-1])
    x0, y0 = np.clip(np.floor(low), 0, limit).astype(int).tolist()
    x1, y1 = np.clip(np.ceil(high), 0, limit).astype(int).tolist()
    if x1 - x0 < 2 or y1 - y0 < 2:
        raise ValueError(f"expected a box inside the photo of {limit.tolist()}, got {box.tolist()}")
    scene = photo[y0:y1, x0:x1].astype(np.float32)
    light = _light_of(photo, box, rng)
    _cover(scene, box - np.array([x0, y0, x0, y0]), rng)
    _overlay_plate(scene, plate, imaging.shift_by(-x0, -y0) @ view, light, rng)
    painted = photo.copy()
    painted[y0:y1, x0:x1] = np.clip(scene, 0, 255)
    return painted, quad.astype(np.float32), rows


def paint_clutter(photo: Image, plates: Field, width: float, rng: Generator) -> None:
    """Paint clutter into a photo, in place, away from the photo's plates; nothing if it won't fit.

    The photo is (H, W, 3) uint8 RGB, the plates are (K, 4) float32 x0, y0, x1, y1 in photo pixels,
    the width is that of a plate in pixels.
    """
    sheet = draw_clutter(width, rng)
    # Cameras print clocks onto the image, without perspective and light.
    flat = rng.random() < 0.3
    angles = np.zeros(3) if flat else np.clip(rng.normal(0, 1, 3) * _SPREAD_DEG, -40, 40)
    view = project(sheet, angles, rng.uniform(4, 12), sheet.rgb.shape[1] / _FINER)
    corners = imaging.apply_homography(view, sheet.quad)
    limit, rim = photo.shape[1::-1], 0.3 * (plates[:, 2:] - plates[:, :2])
    for _ in range(4):
        middle = rng.uniform(0, limit)
        low = np.clip(np.floor(corners.min(axis=0) + middle), 0, limit).astype(int)
        high = np.clip(np.ceil(corners.max(axis=0) + middle), 0, limit).astype(int)
        clear = (high < plates[:, :2] - rim) | (low > plates[:, 2:] + rim)
        if clear.any(axis=1).all() and (high - low >= 4).all():
            place = slice(low[1], high[1]), slice(low[0], high[0])
            scene = photo[place].astype(np.float32)
            light = np.ones(3)
            if not flat:
                light = _light_of(photo, np.concatenate((low, high)), rng) * rng.uniform(0.7, 1.6)
            _overlay_plate(scene, sheet, imaging.shift_by(*(middle - low)) @ view, light, rng)
            photo[place] = np.clip(scene, 0, 255)
            return


def _light_of(photo: Image, box: Field, rng: Generator) -> Floats:
    """Gain per channel that makes a white sheet as bright as the old plate.

    The gain takes over the old plate's brightness, but its colour only in part, because the old
    plate may be a yellow one in white light.
    """
    x0, y0, x1, y1 = np.clip(np.rint(box), 0, None).astype(int)
    pixels = photo[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)].reshape(-1, 3)
    if not len(pixels):
        return np.ones(3)
    # The brighter pixels are the old plate's sheet, unless the old plate was black.
    paper = np.percentile(pixels, 85, axis=0) + 1
    brightness = np.clip(paper.mean() / _PAPER * np.exp(rng.normal(0, 0.12)), 0.1, 1.15)
    cast = (paper / paper.mean()) ** rng.uniform(0.2, 0.8)
    return np.asarray(brightness * np.clip(cast, 0.5, 1.5))


def _cover(scene: Field, box: Floats, rng: Generator) -> None:
    """Paint over a box, in scene pixels, with a blend of the rows above and below it, in place."""
    h, w = scene.shape[:2]
    rim = _RIM * np.array([box[2] - box[0], box[3] - box[1]])
    low, high = box[:2] - rim, box[2:] + rim
    x0, y0 = np.clip(np.floor(low), 0, (w - 1, h - 1)).astype(int)
    x1, y1 = np.clip(np.ceil(high), (x0 + 1, y0 + 1), (w, h)).astype(int)
    above = scene[max(y0 - 2, 0) : y0 + 1, x0:x1].mean(axis=0)
    below = scene[y1 - 1 : y1 + 2, x0:x1].mean(axis=0)
    share = np.linspace(0, 1, y1 - y0)[:, None, None]
    between = above[None] * (1 - share) + below[None] * share
    length = max(int((x1 - x0) * 0.15) | 1, 3)
    filling = np.asarray(cv2.blur(between, (length, 1)), np.float32)
    # Some cars have a dark recess behind the plate; on the others the filling must be invisible.
    filling *= rng.uniform(0.65, 0.95) if rng.random() < 0.3 else rng.uniform(0.96, 1.04)
    filling += rng.normal(0, 2.0, filling.shape).astype(np.float32)
    mask = np.zeros((h, w), np.float32)
    mask[y0:y1, x0:x1] = 1
    sigma = float(rng.uniform(0.5, 0.06 * (x1 - x0) + 0.6))
    soft = np.asarray(cv2.GaussianBlur(mask, (0, 0), sigma), np.float32)[y0:y1, x0:x1, None]
    scene[y0:y1, x0:x1] += soft * (filling - scene[y0:y1, x0:x1])


def _hang_plate(
    kind: str, box: Field, rng: Generator
) -> tuple[PlateImage, Floats, tuple[str, ...]]:
    """Render a plate of a kind in the middle of a box.

    A plate of one line is as wide as the old plate. A plate of two lines is 1.2 to 1.6 times as
    high as the old plate, which may have been a long one, but no wider.

    Returns the plate, the (3, 3) homography from pixels of its image to photo pixels, and the
    plate's lines of text.
    """
    design = sample_design(kind, rng)
    old_width, old_height = (box[2:] - box[:2]).tolist()
    width = old_width * rng.uniform(0.9, 1.05)
    true_width, true_height = design.size_mm
    if len(design.rows) == 2:
        width = min(width, old_height * rng.uniform(1.2, 1.6) * true_width / true_height)
    plate = render_plate(design, 1.2 * width, rng)
    angles = np.clip(rng.normal(0, 1, 3) * _SPREAD_DEG, -40, 40)
    view = project(plate, angles, rng.uniform(4, 12), width)
    corners = imaging.apply_homography(view, plate.quad)
    low, high = corners.min(axis=0), corners.max(axis=0)
    slack = max(old_height - (high[1] - low[1]), 0.0)
    middle = (box[:2] + box[2:]) / 2 + np.array([0, rng.uniform(-0.4, 0.4) * slack])
    return plate, imaging.shift_by(*(middle - (low + high) / 2)) @ view, design.rows


def _overlay_plate(
    scene: Field, plate: PlateImage, view: Floats, light: Floats, rng: Generator
) -> None:
    h, w = scene.shape[:2]
    sigma = float(rng.uniform(0.35, 1.1))
    warped = cv2.GaussianBlur(imaging.warp_layers(plate.layers, view, (w, h)), (0, 0), sigma)
    # A gradient of light down the plate, as a car's curved body and the sky cause.
    tilt = 1 + rng.normal(0, 0.08) * np.linspace(-1, 1, h)[:, None, None]
    lit = warped[..., :3] * light.astype(np.float32) * tilt.astype(np.float32)
    scene += lit - warped[..., 3:] * (scene / 255)


def draw_clutter(width_px: float, rng: Generator, boards: bool = True) -> PlateImage:
    """Draw flat clutter, with 1.5 pixels per pixel of the photo.

    The width is that of a plate nearby: most clutter has about this size, or has parts of it. With
    `boards`, lettering may stand on a board; without a scene around it, a board could be a plate.
    """
    if rng.random() < 0.6:
        rgb, alpha = _draw_sign(width_px * _FINER, rng, boards)
    else:
        rgb, alpha = _draw_windows(width_px * _FINER, rng)
    rgb, alpha = rgb[:_MAX_SIDE, :_MAX_SIDE], alpha[:_MAX_SIDE, :_MAX_SIDE]
    return PlateImage(rgb, alpha, imaging.box_corners(*alpha.shape[::-1]).astype(np.float32))


def _draw_sign(width: float, rng: Generator, boards: bool) -> tuple[Image, Mask]:
    """Draw lines of text on a board, without a board, or outlined as cameras print them."""
    font = pick(_FONTS, rng)
    rows = [_write(_make_text(rng), font) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    longest = max(rows, key=lambda row: row.shape[1]).shape
    # Boards vary in width; letters may be narrower than the font has them.
    inner_w = max(width * float(np.exp(rng.uniform(-0.5, 0.5))), 8)
    row_h = max(inner_w * longest[0] / longest[1] * rng.uniform(0.8, 1.8), 4)
    row_h = min(row_h, width)
    pad_w, pad_h = (round(1 + row_h * share) for share in rng.uniform(0.05, 0.7, 2))
    pitch = row_h * rng.uniform(1.1, 1.6)
    ink = np.zeros((round(pitch * len(rows)) + 2 * pad_h, round(inner_w) + 2 * pad_w), np.uint8)
    for index, row in enumerate(rows):
        w = max(round(inner_w * min(row.shape[1] / longest[1], 1)), 2)
        scaled = cv2.resize(row, (w, round(row_h)), interpolation=cv2.INTER_AREA)
        y, x = pad_h + round(index * pitch), pad_w + (round(inner_w) - w) // 2
        ink[y : y + len(scaled), x : x + w] = scaled
    ground, letters = _draw_colours(rng)
    style, stroke = rng.uniform(0 if boards else 0.5, 1), max(round(0.08 * row_h), 1)
    if style < 0.5 and rng.random() < 0.5:
        inset = int(rng.integers(0, stroke + 1))
        corner = ink.shape[1] - 1 - inset, ink.shape[0] - 1 - inset
        cv2.rectangle(ink, (inset, inset), corner, 255, stroke)
    rgb = (ground + (letters - ground) * (ink[..., None] / 255)).astype(np.uint8)
    if style < 0.5:
        return rgb, np.full_like(ink, 255)
    if style < 0.75:
        return rgb, ink
    return rgb, np.asarray(cv2.dilate(ink, np.ones((2 * stroke + 1,) * 2, np.uint8)), np.uint8)


def _draw_windows(width: float, rng: Generator) -> tuple[Image, Mask]:
    """Draw one pane with bars or slats, or rows of panes: windows, shutters, vents, lamps."""
    single = rng.random() < 0.4
    # The rows are about as wide as a plate, and the panes are spaced like characters.
    columns, rows = (1, 1) if single else (int(n) for n in rng.integers((3, 1), (13, 8)))
    w = max(round(width * float(np.exp(rng.uniform(-0.6, 0.6))) / columns / 1.2), 3)
    h = max(round(w / log_uniform((1.5, 7) if single else (0.5, 3), rng)), 3)
    gaps = np.rint(rng.uniform(0.05, 0.25 if single else 0.6, 2) * min(h, w) / 2).astype(int) + 1
    wall, pane = _draw_colours(rng)
    tile = np.empty((h + 2 * gaps[1], w + 2 * gaps[0], 3), np.float32)
    tile[:] = wall
    glass = np.zeros(tile.shape[:2], np.float32)
    inside = slice(gaps[1], gaps[1] + h), slice(gaps[0], gaps[0] + w)
    glass[inside] = 1
    # Panes reflect the sky or a street, and lamps are rounded.
    shade = 1 + rng.normal(0, 0.25) * np.linspace(-1, 1, h, dtype=np.float32)[:, None, None]
    tile[inside] = pane * shade
    bar = rng.uniform(0.3, 1.6) * np.array(wall if rng.random() < 0.5 else pane)
    thick = max(round(min(h, w) * rng.uniform(0.02, 0.08)), 1)
    for axis, most in ((0, 8), (1, 4)):
        count = int(rng.integers(0, most)) if rng.random() < 0.5 else 0
        for place in np.linspace(0, (h, w)[axis], count + 2)[1:-1].astype(int) + gaps[1 - axis]:
            tile.swapaxes(0, axis)[place : place + thick] = bar
    corner = gaps[0] + w - 1, gaps[1] + h - 1
    if rng.random() < 0.6:
        cv2.rectangle(tile, gaps.tolist(), [int(v) for v in corner], bar.tolist(), thick)
    front, panes = np.tile(tile, (rows, columns, 1)), np.tile(glass, (rows, columns))
    gains = np.kron(rng.uniform(0.4, 1.4, (rows, columns)), np.ones(tile.shape[:2])) - 1
    front *= 1 + (panes * gains)[..., None]
    cover = panes if rng.random() < 0.4 else np.ones_like(panes)
    return np.clip(front, 0, 255).astype(np.uint8), (255 * cover).astype(np.uint8)


def _draw_colours(rng: Generator) -> tuple[Floats, Floats]:
    """Draw a dark and a light colour, (3,) in [0, 255], in random order."""
    pair = []
    for low, high in ((10, 110), (150, 255)):
        vivid = rng.uniform(0, 1) if rng.random() < 0.5 else 0.1
        colour = 1 - vivid * rng.random(3)
        pair.append(rng.uniform(low, high) * colour / colour.max())
    return (pair[0], pair[1]) if rng.random() < 0.5 else (pair[1], pair[0])


def _make_text(rng: Generator) -> str:
    pattern = pick(_TABLES["words" if rng.random() < 0.5 else "patterns"], rng)
    sounds = pick(_TABLES["sounds"], rng)
    case = pick((str.upper, str.title, str.lower), rng)

    def fill(match: re.Match[str]) -> str:
        if match[0] == "#":
            return str(rng.integers(10))
        letters = (sounds[n % 2] for n in range(rng.integers(0, 2), rng.integers(4, 11)))
        return case("".join(pick(sound, rng) for sound in letters))

    return re.sub("[#@]", fill, pattern)


def _write(text: str, font_name: str) -> Mask:
    font = imaging.carried_font(f"DejaVu{font_name}.ttf", _FONT_SIZE)
    left, top, right, bottom = (int(side) for side in font.getbbox(text))
    picture = Pictures.new("L", (right - left, bottom - top))
    ImageDraw.Draw(picture).text((-left, -top), text, fill=255, font=font)
    return np.asarray(picture)
