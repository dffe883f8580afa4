"""What the calibration is measured on: plates as a gate or a dashcam sees them.

A person can read them all: how small, how blurred and how dirty they may be is bounded
beforehand. None is chosen or dropped by whether the recognizer reads it.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from plate_models.rectification import crop_boxes, widen_boxes
from plate_models.spec import RECTIFIER
from plate_models.training.synthetic.crops import CropStyle, render_crop
from plate_models.training.synthetic.kinds import kind_named
from plate_models.training.synthetic.photo import PhotoStyle, photograph
from plate_models.training.synthetic.plates import PlateStyle
from plate_models.training.synthetic.scenes import paint_plate

Image = NDArray[np.uint8]
Floats = NDArray[np.float64]

# Kept around a cut region, so that a photo's effects don't end where the crop does.
_RIM = 8
_ATTEMPTS = 50


READABLE_CROPS = CropStyle(
    steep_share=0.2,
    plate=PlateStyle(worn_share=0.1, dirty_share=0.1, snowy_share=0.01),
    photo=PhotoStyle(
        dark_gain=(0.25, 0.55),
        glare_share=0.05,
        motion_share=0.15,
        motion_px=(1, 3),
        jpeg_quality=(30, 96),
    ),
)
SECOND_CAMERA = PhotoStyle(
    dark_share=0.1,
    dark_gain=(0.4, 0.7),
    day_gain=(0.7, 1.2),
    dark_haze=(0, 15),
    day_haze=(0, 30),
    cast_shares=(0.1, 0.3),
    shadow_share=0.1,
    glare_share=0.03,
    defocus=0.15,
    motion_share=0.1,
    motion_px=(1, 3),
    noise=(0.4, 5),
    jpeg_quality=(30, 96),
)


@dataclass(frozen=True)
class CalibrationMix:
    """How hard the crops are.

    Attributes:
        kinds: Kinds of plates with the share of each; shares add up to 1.
        painted_share: Share of plates painted into real photos, of other countries' cars, in
            place of the plate that was there. The rest is rendered altogether.
        character_px: Least height of a plate's smallest characters in the photo, by which a
            plate of each kind is so wide at least: 56 px for a car's.
        median_size, size_spread: Rendered plates are wider than that by a factor whose
            logarithm is normal, with this median and this standard deviation; for cars the
            median is 146 px.
        largest: Largest factor; where it lies outside 1 to this, it is drawn again.
        painted_over_px: Least width of a plate that is painted over. The new one is about as
            wide. The photos' plates are smaller than those a gate sees: of the smallest, the
            two cameras together would leave nothing to read.
        crops: View, boxes, wear and camera of rendered plates; the boxes of painted ones err
            in the same way. Motion blurs by no more than about 1.4 strokes.
        camera: Of the photos that plates are painted into, before they are compressed again.
            They have their own light, so that it is changed less.
    """

    kinds: tuple[tuple[str, float], ...] = (
        ("ru.car", 0.72),
        ("ru.car.square", 0.05),
        ("ru.motorcycle", 0.04),
        ("ru.tractor", 0.03),
        ("ru.trailer", 0.04),
        ("ru.taxi", 0.04),
        ("ru.police", 0.03),
        ("ru.military", 0.025),
        ("ru.diplomatic", 0.025),
    )
    painted_share: float = 0.5
    character_px: float = 6.25
    median_size: float = 2.6
    size_spread: float = 0.42
    largest: float = 10.0
    painted_over_px: float = 80.0
    crops: CropStyle = READABLE_CROPS
    camera: PhotoStyle = SECOND_CAMERA


DEFAULT_MIX = CalibrationMix()


@dataclass(frozen=True)
class CalibrationCrop:
    """One crop with what is known of it.

    Attributes:
        image: (h, w, 3) uint8 RGB of ``RECTIFIER.crop_hw``, as the rectifier gets it.
        text: What stands on the plate, in Latin letters.
        kind: Name of the plate's format, such as "ru.car".
        lines: Of text, 1 or 2.
        source: "rendered" or "painted".
        width_px: Of the plate in its photo.
    """

    image: Image
    text: str
    kind: str
    lines: int
    source: str
    width_px: float


@cache
def least_width(kind: str, character_px: float) -> float:
    """Width in pixels at which a plate's smallest characters are so high."""
    shares = [
        height / layout.size_mm[0]
        for layout in kind_named(kind).layouts
        for group in (*layout.serial, layout.region)
        for height in (group.digit_height, group.letter_height)
        if height > 0
    ]
    return character_px / min(shares)


def draw_kind(rng: np.random.Generator, mix: CalibrationMix) -> str:
    """Draw a kind of plate by its share."""
    names, shares = zip(*mix.kinds, strict=True)
    return str(names[rng.choice(len(names), p=np.array(shares) / sum(shares))])


def draw_size(rng: np.random.Generator, mix: CalibrationMix) -> float:
    """Draw a plate's width, relative to the least of its kind, in [1, ``mix.largest``]."""
    while True:
        size = mix.median_size * float(np.exp(rng.normal(0, mix.size_spread)))
        if 1 <= size <= mix.largest:
            return size


def render(rng: np.random.Generator, mix: CalibrationMix = DEFAULT_MIX) -> CalibrationCrop:
    """Render a plate with all that is around it."""
    kind = draw_kind(rng, mix)
    width = least_width(kind, mix.character_px) * draw_size(rng, mix)
    style = replace(mix.crops, width_px=(width, width), two_line_width_px=(width, width))
    sample = render_crop(rng, style, kind)
    return CalibrationCrop(sample.image, sample.text, kind, sample.lines, "rendered", width)


def paint(
    photo: Image, box: Floats, rng: np.random.Generator, mix: CalibrationMix = DEFAULT_MIX
) -> CalibrationCrop:
    """Paint a plate over the one in a photo and cut it out as in serving.

    Args:
        photo: (H, W, 3) uint8 RGB.
        box: (4,) float x0, y0, x1, y1 of the plate in the photo's pixels.
        rng: Source of all chance.
        mix: How hard crops are.

    Raises:
        ValueError: The box has no area inside the photo, or it is too small for any plate
            whose characters can be read.
    """
    # Photos are large and plates small: everything happens in the plate's surroundings.
    reach = box[2] - box[0]
    corner = np.maximum(np.floor(box[:2] - reach), 0).astype(int)
    end = np.ceil(box[2:] + reach).astype(int)
    around = photo[corner[1] : end[1], corner[0] : end[0]]
    here = (box - np.tile(corner, 2)).astype(np.float32)
    for _ in range(_ATTEMPTS):
        kind = draw_kind(rng, mix)
        patch = paint_plate(around, here, rng, kind)
        width = float(np.ptp(patch.quad[:, 0]))
        if width >= least_width(kind, mix.character_px):
            found = _jitter(patch.box, patch.lines, rng, mix.crops)
            crop = _cut(patch.paste(around), found, patch.lines, rng, mix)
            return CalibrationCrop(crop, patch.text, kind, patch.lines, "painted", width)
    raise ValueError(f"the box {box.tolist()} is too small for a legible plate")


def _jitter(
    box: NDArray[np.float32], lines: int, rng: np.random.Generator, style: CropStyle
) -> Floats:
    """Move a box's sides as the detector errs: as the renderer does for its crops."""
    size = (box[2:] - box[:2]).astype(np.float64)
    # Of two lines, heights move less far, as their margin is smaller.
    slack = np.array([1, RECTIFIER.margin_hw(lines)[0] / RECTIFIER.margin_hw(1)[0]])
    share = style.box_jitter[int(rng.random() < style.sloppy_share)]
    sigma = share * size * (1, 2) * slack
    limit = size * style.box_limit * slack
    moved = [np.clip(rng.normal(0, 1, 2) * sigma, -limit, limit) for _ in range(2)]
    return np.concatenate((box[:2] + moved[0], box[2:] + moved[1]))


def _cut(
    around: Image, box: Floats, lines: int, rng: np.random.Generator, mix: CalibrationMix
) -> Image:
    """Photograph what is around a box, and cut it out."""
    boxes, counts = torch.from_numpy(box)[None], torch.tensor([lines])
    x0, y0, x1, y1 = widen_boxes(boxes, counts)[0].tolist()
    left, top = max(int(x0) - _RIM, 0), max(int(y0) - _RIM, 0)
    seen = around[top : int(y1) + _RIM + 1, left : int(x1) + _RIM + 1]
    photo = torch.from_numpy(photograph(np.ascontiguousarray(seen), rng, mix.camera))
    moved = boxes - torch.tensor([left, top, left, top])
    return crop_boxes(photo, moved, counts)[0].permute(1, 2, 0).contiguous().numpy()
