"""Endless training crops: a plate on a car, photographed, and cropped as in serving.

The camera is simulated at the photo's own scale. A plate 60 px wide is blurred, made noisy and
compressed at 60 px and only then enlarged to the crop's size, as in serving.
"""

from dataclasses import dataclass, field, replace

import cv2
import numpy as np
from numpy.random import Generator

from plate_models import pixels
from plate_models.spec import RECTIFIER
from plate_models.training import imaging
from plate_models.training.imaging import Field, Floats, Image
from plate_models.training.synthetic import plates
from plate_models.training.synthetic.kinds import TRAINING_SHARES, Shares
from plate_models.training.synthetic.latin import LATIN
from plate_models.training.synthetic.photo import BAD_CAMERAS, PhotoStyle, photograph
from plate_models.training.synthetic.plates import PlateImage, PlateStyle
from plate_models.training.synthetic.scenes import draw_clutter
from plate_models.training.tables import choose, log_uniform, pick, tables_of

# The kind of crops without a plate, and without a text to read.
CLUTTER = "clutter"


@dataclass(frozen=True)
class CropStyle:
    """The distribution of rendered crops."""

    # Names of kinds with their odds: a third of the crops are plates of any country.
    kinds: Shares = (*TRAINING_SHARES, (LATIN, 0.52), (CLUTTER, 0.05))
    width_px: tuple[float, float] = (38, 400)  # of the plate in the photo, logarithmic
    two_line_width_px: tuple[float, float] = (30, 260)
    steep_share: float = 0.45  # of plates seen at a steeper angle
    tilt_share: float = 0.15  # of plates that are turned further about the optical axis
    # Standard deviation of the box's left and right sides, as a share of its width: of ordinary
    # boxes and of sloppy ones. Top and bottom move by twice that share of the height, but less on
    # two-line plates: their margin is smaller.
    box_jitter: tuple[float, float] = (0.02, 0.055)
    sloppy_share: float = 0.4
    holder_box_share: float = 0.25  # of boxes around the holder, not the plate
    plate: PlateStyle = field(default_factory=PlateStyle)
    # Of night scenes lit by an infrared lamp: sheets shine, everything else is nearly black.
    infrared_share: float = 0.06
    photo: PhotoStyle = BAD_CAMERAS


DEFAULT_CROPS = CropStyle()
_TABLES = tables_of(__file__)
# Standard deviations of roll, yaw and pitch, of ordinary plates and of steep ones; the roll's of
# tilted plates.
_SPREAD_DEG, _TILT_DEG = ((2.5, 15, 9), (8, 36, 17)), 15
_DISTANCE = (4, 16)  # of the camera, in plate widths
_BOX_LIMIT = (0.14, 0.3)  # the most that a box's sides move, as shares of its width and height
# Share of plates that shine in front of a dim car: sheets reflect headlights back, paint does not.
_LIT_SHARE = 0.2
# A photo that keeps less of a plate's detail is taken again: no person could read the plate.
_LEAST_KEPT = 0.4
_ATTEMPTS = 5


@dataclass(frozen=True)
class CropSample:
    """One training example of the rectifier and the recognizer."""

    image: Image  # (H, W, 3) uint8 RGB of ``RECTIFIER.crop_hw``
    # (4, 2) float32, the plate's corners TL, TR, BR, BL in crop pixels, where (0, 0) is the corner
    # of the first pixel and not its centre.
    quad: Field
    rows: tuple[str, ...]  # one or two lines of text, in Latin letters; ("",) for clutter

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.rows)


def _sample_view(plate: PlateImage, width_px: float, rng: Generator, style: CropStyle) -> Floats:
    """Draw a homography from the plate's image to photo pixels around an arbitrary origin."""
    spread = np.array(_SPREAD_DEG[int(rng.random() < style.steep_share)])
    if rng.random() < style.tilt_share:
        spread[0] = _TILT_DEG
    angles = np.clip(rng.normal(0, 1, 3) * spread, (-38, -64, -45), (38, 64, 45))
    return plates.project(plate, angles, rng.uniform(*_DISTANCE), width_px)


def _sample_box(
    corners: Floats, lines: int, rng: Generator, style: CropStyle
) -> tuple[Floats, Floats]:
    """Draw a box as the detector may find it, with its errors, plus the rectifier's margin."""
    low, high = corners.min(axis=0), corners.max(axis=0)
    margin_h, margin_w = RECTIFIER.margin_hw(lines)
    slack = np.array([1, margin_h / RECTIFIER.margin_hw(1)[0]])
    sigma = style.box_jitter[int(rng.random() < style.sloppy_share)] * (high - low) * (1, 2) * slack
    limit = (high - low) * _BOX_LIMIT * slack
    moved = [np.clip(rng.normal(0, 1, 2) * sigma, -limit, limit) for _ in range(2)]
    low, high = low + moved[0], high + moved[1]
    margin = (high - low) * (margin_w, margin_h) / 2
    return low - margin, high + margin


def _paint(rng: Generator) -> Floats:
    colour = np.array(choose(_TABLES["paints"], rng))
    painted = colour * rng.uniform(0.7, 1.2) + rng.normal(0, 8, 3)
    return np.asarray(np.clip(painted, 2, 250))


def _paint_background(size_hw: tuple[int, int], quad: Field, rng: Generator) -> Image:
    """Paint the part of a car around a plate, (H, W, 3) uint8 RGB."""
    height, width = size_hw
    shade = 1 + rng.normal(0, rng.uniform(0.02, 0.3), (4, 4))
    shade += rng.normal(0, rng.uniform(0, 0.2), (4, 1))
    coarse = np.clip(shade[..., None] * _paint(rng), 0, 255).astype(np.uint8)
    image = np.asarray(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC), np.uint8)
    if rng.random() < 0.2:
        grain = np.abs(rng.normal(0, rng.uniform(1, 8), (height, width, 1)))
        image = np.clip(image + grain, 0, 255).astype(np.uint8)
    along = quad[1] - quad[0]
    slope = float(along[1] / max(1e-3, abs(along[0])))

    def bar(y: float, slope: float, thick: float, colour: Floats) -> None:
        ends = (0, round(y - slope * width / 2)), (width, round(y + slope * width / 2))
        cv2.line(image, *ends, colour.tolist(), max(1, round(thick)), cv2.LINE_AA)

    if rng.random() < 0.12:  # a grille
        step = max(3.0, rng.uniform(0.05, 0.16) * height)
        colour = np.full(3, rng.uniform(10, 170)) + rng.normal(0, 6, 3)
        for y in np.arange(rng.uniform(-0.2, 0.8) * height, 1.2 * height, step):
            bar(y, slope, 0.4 * step, colour)
    # Edges of bumpers and lids, about parallel to the plate.
    for _ in range(int(rng.integers(0, 6))):
        colour = _paint(rng) if rng.random() < 0.4 else np.full(3, rng.beta(0.5, 0.7) * 250)
        thick = rng.beta(1, 3) * 0.4 * height
        bar(rng.uniform(-0.1, 1.1) * height, slope + rng.normal(0, 0.04), thick, colour)
    middle, size = quad.mean(axis=0), np.ptp(quad, axis=0)
    if rng.random() < 0.5:  # the recess or the bumper's face that carries the plate
        grown = middle + (quad - middle) * (rng.uniform(1.05, 1.7), rng.uniform(1.1, 2.4))
        grown += rng.normal(0, 0.06, 2) * size
        colour = _paint(rng) if rng.random() < 0.35 else np.full(3, rng.uniform(5, 50))
        cv2.fillConvexPoly(image, np.rint(grown).astype(np.int32), colour.tolist(), cv2.LINE_AA)
    if rng.random() < 0.12:
        word = pick(_TABLES["words"], rng)
        y = rng.choice((0.1, 1.0)) + rng.uniform(-0.1, 0.1)
        place = round(rng.uniform(-0.1, 0.8) * width), round(y * height)
        scale, tone = rng.uniform(0.08, 0.22) * height / 22, [rng.uniform(60, 250)] * 3
        cv2.putText(image, word, place, cv2.FONT_HERSHEY_DUPLEX, scale, tone, 1, cv2.LINE_AA)
    if rng.random() < 0.5:  # the plate's shadow
        shift = rng.normal(0, 0.04, 2) * size[1]
        corners = np.rint(quad + np.array((shift[0], abs(shift[1])))).astype(np.int32)
        cv2.fillConvexPoly(image, corners, [rng.uniform(0, 40)] * 3, cv2.LINE_AA)
    return image


def _compose(
    plate: PlateImage, view: Floats, size_wh: tuple[int, int], infrared: bool, rng: Generator
) -> Image:
    """Render the plate through the homography ``view`` over a background."""
    width, height = size_wh
    corners = imaging.apply_homography(view, plate.quad).astype(np.float32)
    scene = _paint_background((height, width), corners, rng)
    if infrared or rng.random() < _LIT_SHARE:
        share = rng.uniform(0.02, 0.3) if infrared else rng.uniform(0.2, 0.7)
        scene = np.asarray(cv2.convertScaleAbs(scene, alpha=share), np.uint8)
    warped = imaging.warp_layers(plate.layers, view, size_wh)
    if infrared:
        # In infrared light, dyes of sheets and of paint are bright; carbon black is not.
        contrast = rng.uniform(0.5, 1)
        pale = 0.9 * (1 - contrast) * warped[..., 3:]
        warped[..., :3] = np.rint(contrast * warped[..., :3] + pale)
    below = cv2.cvtColor(255 - warped[..., 3], cv2.COLOR_GRAY2RGB)
    return np.asarray(cv2.add(cv2.multiply(scene, below, scale=1 / 255), warped[..., :3]), np.uint8)


def cut_crop(photo: Image, low: Floats, high: Floats, quad: Floats) -> tuple[Image, Field]:
    """Crop a region of a photo, as serving does, and scale it to the rectifier's crop.

    Returns the crop, (H, W, 3) uint8 of ``RECTIFIER.crop_hw``, and the quad in crop pixels.
    """
    (left, top), (right, bottom) = low.tolist(), high.tolist()
    cut = pixels.crop(photo, (left, top, right, bottom), RECTIFIER.crop_hw)[0]
    corners = (quad - low) * RECTIFIER.crop_hw[::-1] / (high - low)
    return np.asarray(cut.transpose(1, 2, 0), np.uint8, "C"), corners.astype(np.float32)


def crop_around(photo: Image, quad: Floats, lines: int, rng: Generator) -> tuple[Image, Field]:
    """Crop a plate with these corners in a box with a detector's errors; returns as `cut_crop`."""
    return cut_crop(photo, *_sample_box(quad, lines, rng, DEFAULT_CROPS), quad)


def _kept(scene: Image, photo: Image, quad: Floats) -> float:
    """Correlation of the scene's and the photo's fine detail within a quad (4, 2), in [0, 1]."""
    (left, top), (right, bottom) = np.clip(quad.min(axis=0), 0, None), quad.max(axis=0)
    part = slice(int(top), int(bottom) + 1), slice(int(left), int(right) + 1)
    side = max(3, round(0.06 * (right - left)))
    details = []
    for image in (scene, photo):
        grey = cv2.cvtColor(image[part], cv2.COLOR_RGB2GRAY).astype(np.float32)
        details.append((grey - cv2.blur(grey, (side, side))).ravel())
    first, second = details
    spread = float(np.linalg.norm(first) * np.linalg.norm(second))
    return abs(float(first @ second)) / max(spread, 1e-6)


def render_crop(
    rng: Generator, style: CropStyle = DEFAULT_CROPS, kind: str | None = None
) -> CropSample:
    """Render one crop as the pipeline crops a detected plate.

    The same generator state gives the same sample. The kind is `LATIN`, `CLUTTER` or a key of
    ``KINDS``; None draws a kind by the style's odds. Raises ValueError for another kind.
    """
    if kind is None:
        (kind,) = choose(style.kinds, rng)
    design = None if kind == CLUTTER else plates.sample_design(kind, rng)
    rows = design.rows if design else ("",)
    widths = style.width_px if len(rows) == 1 else style.two_line_width_px
    width_px = log_uniform(widths, rng)
    if design:
        plate = plates.render_plate(design, 1.6 * width_px, rng, style.plate)
    else:
        plate = draw_clutter(width_px, rng, boards=False)
    view = _sample_view(plate, width_px, rng, style)
    outline = plate.quad
    if rng.random() < style.holder_box_share:
        outline = imaging.box_corners(*plate.alpha.shape[::-1]).astype(np.float32)
    low, high = _sample_box(imaging.apply_homography(view, outline), len(rows), rng, style)
    # A margin of random size keeps edge effects out of the crop and shifts the JPEG grid.
    origin = low - rng.uniform(6, 14, 2)
    size = np.ceil(high - origin + 8).astype(int)
    size_wh, camera = (int(size[0]), int(size[1])), style.photo
    infrared = rng.random() < style.infrared_share
    if infrared:
        # Infrared scenes have little contrast: much blur would make plates illegible.
        camera = replace(
            camera,
            dark_share=0,
            grey_share=1,
            smear_share=0.3,
            defocus=0.6 * camera.defocus,
            motion_share=0.5 * camera.motion_share,
        )
    scene = _compose(plate, imaging.shift_by(*-origin) @ view, size_wh, infrared, rng)
    quad = imaging.apply_homography(view, plate.quad) - origin
    for _ in range(_ATTEMPTS):
        photo = photograph(scene, rng, camera)
        if _kept(scene, photo, quad) > _LEAST_KEPT:
            break
    return CropSample(*cut_crop(photo, low - origin, high - origin, quad), rows)
