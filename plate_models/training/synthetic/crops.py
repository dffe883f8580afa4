"""Endless training crops: a plate on a car, photographed, and cut out as in serving.

The chain runs at the photo's own scale. A plate 60 px wide is blurred, made noisy and
compressed at 60 px and only then enlarged to the crop's size: that is how small plates
look when they reach the rectifier.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from plate_models.spec import RECTIFIER
from plate_models.training.synthetic.backgrounds import paint_background
from plate_models.training.synthetic.kinds import kind_named
from plate_models.training.synthetic.photo import DEFAULT_PHOTO, Image, PhotoStyle, photograph
from plate_models.training.synthetic.plates import (
    DEFAULT_STYLE,
    PlateImage,
    PlateStyle,
    Quad,
    render_plate,
)
from plate_models.training.synthetic.projection import (
    FloatArray,
    apply_homography,
    project,
    resolution_for,
)
from plate_models.training.synthetic.texts import sample_text


@dataclass(frozen=True)
class CropStyle:
    """How rendered crops vary. Of two values, one is for most and one for the steep or sloppy."""

    # Kinds of plates with the share of each; shares add up to 1.
    kinds: tuple[tuple[str, float], ...] = (
        ("ru.car", 0.45),
        ("ru.car.square", 0.09),
        ("ru.motorcycle", 0.08),
        ("ru.tractor", 0.04),
        ("ru.trailer", 0.05),
        ("ru.taxi", 0.06),
        ("ru.police", 0.09),
        ("ru.military", 0.07),
        ("ru.diplomatic", 0.07),
    )
    width_px: tuple[float, float] = (48, 400)  # of the plate in the photo, logarithmic
    two_line_width_px: tuple[float, float] = (30, 260)
    # Standard deviations of the turn about the optical, the vertical and the horizontal axis.
    roll_deg: tuple[float, float] = (2.5, 8)
    yaw_deg: tuple[float, float] = (15, 36)
    pitch_deg: tuple[float, float] = (9, 17)
    steep_share: float = 0.45
    distance: tuple[float, float] = (4, 16)  # of the camera, in plate widths
    # Of each side of the box: standard deviation and limit, as shares of its width and height.
    # Heights move twice as far; those of two-line plates less, as their margin is smaller.
    box_jitter: tuple[float, float] = (0.02, 0.055)
    box_limit: tuple[float, float] = (0.14, 0.3)
    sloppy_share: float = 0.4
    holder_box_share: float = 0.25  # of boxes around the holder, not the plate
    # Of plates that shine in front of a dim car: sheets return headlights, paint does not.
    lit_share: float = 0.2
    plate: PlateStyle = DEFAULT_STYLE
    photo: PhotoStyle = DEFAULT_PHOTO


DEFAULT_CROPS = CropStyle()
# Resolutions plates are drawn at: few, because glyphs are cached per resolution.
_LEVELS = (0.35, 0.5, 0.7, 1.0, 1.4)
_RIM = 2


@dataclass(frozen=True)
class CropSample:
    """One training example of the rectifier and the recognizer."""

    image: Image  # (H, W, 3) uint8 RGB of ``RECTIFIER.crop_hw``
    text: str  # what stands on the plate, in Latin letters, the upper line first
    # (4, 2) float32, the plate's corners TL, TR, BR, BL in crop pixels, where (0, 0) is the corner
    # of the first pixel and not its centre.
    quad: Quad
    kind: str  # name of the plate's format, such as "ru.car"
    lines: int  # of text, 1 or 2
    rows: tuple[str, ...]  # the text line by line; one entry for one line


def _sample_view(
    plate: PlateImage, width_px: float, rng: np.random.Generator, style: CropStyle
) -> FloatArray:
    """Homography from the plate's picture to photo pixels around some origin."""
    steep = int(rng.random() < style.steep_share)
    spread = np.array([style.roll_deg[steep], style.yaw_deg[steep], style.pitch_deg[steep]])
    angles = np.clip(rng.normal(0, 1, 3) * spread, (-28, -64, -45), (28, 64, 45))
    view = project(plate, np.radians(angles), rng.uniform(*style.distance))
    hull = np.ptp(apply_homography(view, plate.quad), axis=0)
    return np.diag([width_px / hull[0], width_px / hull[0], 1.0]) @ view


def jitter_box(
    low: FloatArray, high: FloatArray, lines: int, rng: np.random.Generator, style: CropStyle
) -> tuple[FloatArray, FloatArray]:
    """Move the corners (2,) of a box as a detector errs."""
    # Of two lines, heights move less far, as their margin is smaller.
    slack = np.array([1, RECTIFIER.margin_hw(lines)[0] / RECTIFIER.margin_hw(1)[0]])
    size = high - low
    sigma = style.box_jitter[int(rng.random() < style.sloppy_share)] * size * (1, 2) * slack
    limit = size * style.box_limit * slack
    moved = [np.clip(rng.normal(0, 1, 2) * sigma, -limit, limit) for _ in range(2)]
    return low + moved[0], high + moved[1]


def _sample_box(
    corners: FloatArray, lines: int, rng: np.random.Generator, style: CropStyle
) -> tuple[FloatArray, FloatArray]:
    """A detector's box around the corners, widened by the rectifier's margin."""
    low, high = jitter_box(corners.min(axis=0), corners.max(axis=0), lines, rng, style)
    margin_h, margin_w = RECTIFIER.margin_hw(lines)
    margin = (high - low) * (margin_w, margin_h) / 2
    return low - margin, high + margin


def _compose(
    plate: PlateImage,
    view: FloatArray,
    size_wh: tuple[int, int],
    rng: np.random.Generator,
    style: CropStyle,
) -> Image:
    """Paint the plate, seen through ``view``, over a background."""
    width, height = size_wh
    corners = apply_homography(view, plate.quad).astype(np.float32)
    scene = paint_background((height, width), corners, rng)
    if rng.random() < style.lit_share:
        scene = np.asarray(cv2.convertScaleAbs(scene, alpha=rng.uniform(0.2, 0.7)), np.uint8)
    rgba, shrink = _shrink_to_view(plate, corners)
    # OpenCV counts from pixel centres, this file from pixel corners; the rim shifts, too.
    from_rim = np.array([[1, 0, 0.5 - _RIM], [0, 1, 0.5 - _RIM], [0, 0, 1]])
    to_centres = np.array([[1, 0, -0.5], [0, 1, -0.5], [0, 0, 1]])
    warp = to_centres @ view @ shrink @ from_rim
    seen = cv2.warpPerspective(_with_rim(rgba), warp, size_wh, borderMode=cv2.BORDER_REPLICATE)
    cover = cv2.extractChannel(seen, 3).astype(np.float32) / 255
    rgb = cv2.cvtColor(seen, cv2.COLOR_RGBA2RGB)
    return np.asarray(cv2.blendLinear(rgb, scene, cover, 1 - cover), np.uint8)


def _shrink_to_view(plate: PlateImage, corners: Quad) -> tuple[Image, FloatArray]:
    """Average pixels first where the warp would skip some: thin lines must not break up.

    Returns (H, W, 4) uint8 RGBA, and the (3, 3) homography from its pixels to the plate's.
    """
    sides = np.hypot(*(np.roll(corners, -1, axis=0) - corners).T)
    seen_wh = max(sides[0], sides[2]), max(sides[1], sides[3])
    drawn_wh = np.ptp(plate.quad, axis=0)
    rgba = np.asarray(cv2.cvtColor(plate.rgb, cv2.COLOR_RGB2RGBA), np.uint8)
    cv2.insertChannel(plate.alpha, rgba, 3)
    height, width = plate.alpha.shape
    goal = [
        min(size, round(size * float(1.4 * seen / drawn)))
        for size, seen, drawn in zip((width, height), seen_wh, drawn_wh, strict=True)
    ]
    small = np.asarray(cv2.resize(rgba, goal, interpolation=cv2.INTER_AREA), np.uint8)
    return small, np.diag([width / goal[0], height / goal[1], 1.0])


def _with_rim(rgba: Image) -> Image:
    """Repeat the edge's colours in a clear rim around a (H, W, 4) picture.

    Interpolation at the edge then fades the coverage and keeps the colour.
    """
    rimmed = cv2.copyMakeBorder(rgba, _RIM, _RIM, _RIM, _RIM, cv2.BORDER_REPLICATE)
    for edge in (rimmed[:_RIM], rimmed[-_RIM:], rimmed[:, :_RIM], rimmed[:, -_RIM:]):
        edge[..., 3] = 0
    return np.asarray(rimmed, np.uint8)


def _resize_as_served(region: Image) -> Image:
    """Scale to the rectifier's crop as ``geometry.crop_boxes`` does, at a fraction of its cost.

    Serving mixes pixels with a triangle filter. Where it shrinks, the same width comes
    from a blur and an average: a triangle's variance is twice that of a box, s^2 / 12.
    """
    height, width = RECTIFIER.crop_hw
    rows, columns = region.shape[:2]
    sigma_x, sigma_y = (
        scale / 12**0.5 if scale > 1 else 0.01 for scale in (columns / width, rows / height)
    )
    if max(sigma_x, sigma_y) > 0.1:
        region = np.asarray(cv2.GaussianBlur(region, (0, 0), sigma_x, None, sigma_y), np.uint8)
        small_wh = min(columns, width), min(rows, height)
        region = np.asarray(cv2.resize(region, small_wh, interpolation=cv2.INTER_AREA), np.uint8)
    crop = cv2.resize(region, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(crop, np.uint8)


def cut_crop(
    photo: Image, low: FloatArray, high: FloatArray, quad: FloatArray
) -> tuple[Image, Quad]:
    """Cut a region that lies inside the photo and scale it to the rectifier's crop.

    Returns the crop, (H, W, 3) uint8 of ``RECTIFIER.crop_hw``, and the quad in its pixels.
    """
    x0, y0 = (int(v) for v in np.floor(low))
    x1, y1 = (int(v) for v in np.ceil(high))
    crop = _resize_as_served(photo[y0:y1, x0:x1])
    scale = np.array([crop.shape[1] / (x1 - x0), crop.shape[0] / (y1 - y0)])
    return crop, ((quad - (x0, y0)) * scale).astype(np.float32)


def _sample_kind(rng: np.random.Generator, style: CropStyle) -> str:
    shares = np.cumsum([share for _, share in style.kinds])
    index = int(np.searchsorted(shares, rng.random() * shares[-1]))
    return style.kinds[min(index, len(style.kinds) - 1)][0]


def render_crop(
    rng: np.random.Generator, style: CropStyle = DEFAULT_CROPS, kind: str | None = None
) -> CropSample:
    """Render one crop as the pipeline cuts it around a detected plate.

    Args:
        rng: Source of all chance: the same state gives the same sample.
        style: How crops vary.
        kind: Of the plate, a key of ``KINDS``; drawn from the style's shares if None.

    Raises:
        ValueError: There is no such kind.
    """
    kind = kind or _sample_kind(rng, style)
    text = sample_text(rng, kind)
    plate_kind = kind_named(kind)
    widths = style.width_px if plate_kind.lines == 1 else style.two_line_width_px
    width_px = float(np.exp(rng.uniform(*np.log(widths))))
    level = resolution_for(1.6 * width_px, kind, _LEVELS)
    plate = render_plate(text, rng, level, style.plate, kind)
    view = _sample_view(plate, width_px, rng, style)
    outline = plate.quad
    if rng.random() < style.holder_box_share:
        height, width = plate.alpha.shape
        outline = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    low, high = _sample_box(apply_homography(view, outline), plate.lines, rng, style)
    # A rim of random size keeps edge effects out and moves the JPEG grid.
    origin = low - rng.uniform(6, 14, 2)
    shift = np.array([[1, 0, -origin[0]], [0, 1, -origin[1]], [0, 0, 1.0]])
    size = np.ceil(high - origin + 8).astype(int)
    scene = _compose(plate, shift @ view, (int(size[0]), int(size[1])), rng, style)
    photo = photograph(scene, rng, style.photo)
    quad = apply_homography(view, plate.quad) - origin
    crop, crop_quad = cut_crop(photo, low - origin, high - origin, quad)
    return CropSample(crop, text, crop_quad, kind, plate.lines, plate_kind.rows(text))
