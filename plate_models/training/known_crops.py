"""Crops of plates whose text is known: what scores are calibrated and engines compared on.

Plates are as a gate or a dashcam sees them, half of them rendered, half painted into real
photos. A person can read them all: how small, how blurred and how dirty they may be is bounded
beforehand. None is chosen or dropped by whether the recognizer reads it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plate_models.images import decode
from plate_models.rectification import crop_boxes, widen_boxes
from plate_models.spec import Specs
from plate_models.training.imaging import Floats, Image
from plate_models.training.labels import load_labels, validation_names
from plate_models.training.synthetic.crops import CropStyle, jitter_box, render_crop
from plate_models.training.synthetic.kinds import CALIBRATION_SHARES, Shares, draw_kind, kind_named
from plate_models.training.synthetic.latin import LATIN
from plate_models.training.synthetic.photo import PhotoStyle, photograph
from plate_models.training.synthetic.plates import PlateStyle
from plate_models.training.synthetic.scenes import paint_plate

Box = tuple[float, float, float, float]

# Of different chance and, where plates are painted into photos, of different photos.
SETS = ("fit", "measure")
# Kept around a cut region, so that a photo's effects don't end where the crop does.
_RIM = 8
_APART_PX = 16
_ATTEMPTS = 50
# Height of a character of a plate of any country, as a share of the plate's width: the least.
_LATIN_CHARACTER = 0.13
_BLOCK = 100

READABLE_CROPS = CropStyle(
    steep_share=0.2,
    tilt_share=0.06,
    infrared_share=0.03,
    infrared_contrast=(0.5, 1),
    plate=PlateStyle(worn_share=0.1, dirty_share=0.1, snowy_share=0.01, hidden_share=0.02),
    photo=PhotoStyle(
        dark_gain=(0.25, 0.55),
        glare_share=0.05,
        headlight_share=0.02,
        motion_share=0.15,
        motion_px=(1, 3),
        grey_share=0.1,
        video_share=0.12,
        video_quantizer=(18, 34),
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
    grey_share=0.1,
    noise=(0.4, 5),
    video_share=0.12,
    video_quantizer=(18, 34),
    jpeg_quality=(30, 96),
)


@dataclass(frozen=True)
class CropMix:
    """How hard the crops are."""

    kinds: Shares = CALIBRATION_SHARES  # names of plates' kinds, with the share of each
    latin_share: float = 0.4  # of rendered plates that are of any country, not of a kind
    # Of plates painted into photos of other countries' cars, in place of the plate there.
    painted_share: float = 0.5
    # Least height of a plate's smallest characters, which bounds its width: 56 px for a car's.
    character_px: float = 6.25
    # Rendered plates are wider by a log-normal factor, drawn again outside 1 to the largest.
    median_size: float = 2.6
    size_spread: float = 0.42
    largest: float = 10.0
    # Least width of a plate that is painted over. The photos' plates are smaller than those
    # a gate sees: of the smallest, two cameras together would leave nothing to read.
    painted_over_px: float = 80.0
    crops: CropStyle = READABLE_CROPS
    # Of the photos that plates are painted into. They have their own light, so it changes less.
    camera: PhotoStyle = SECOND_CAMERA


DEFAULT_MIX = CropMix()


@dataclass(frozen=True)
class KnownCrop:
    """One crop with what is known of it."""

    image: Image  # (h, w, 3) uint8 RGB of ``RECTIFIER.crop_hw``, as the rectifier gets it
    text: str  # what stands on the plate, in Latin letters
    kind: str  # name of the plate's format, such as "ru.car"
    lines: int  # of text, 1 or 2
    source: str  # "rendered" or "painted"
    width_px: float  # of the plate in its photo


def least_width(kind: str, character_px: float) -> float:
    """Width in pixels at which a plate's smallest characters are so high."""
    share = _LATIN_CHARACTER if kind == LATIN else kind_named(kind).smallest_character
    return character_px / share


def render(rng: np.random.Generator, mix: CropMix = DEFAULT_MIX) -> KnownCrop:
    """Render a plate with all that is around it."""
    kind, size = LATIN if rng.random() < mix.latin_share else draw_kind(rng, mix.kinds), 0.0
    while not 1 <= size <= mix.largest:
        size = mix.median_size * float(np.exp(rng.normal(0, mix.size_spread)))
    width = least_width(kind, mix.character_px) * size
    style = replace(mix.crops, width_px=(width, width), two_line_width_px=(width, width))
    sample = render_crop(rng, style, kind)
    return KnownCrop(sample.image, sample.text, kind, sample.lines, "rendered", width)


def paint(
    photo: Image, box: Floats, rng: np.random.Generator, mix: CropMix = DEFAULT_MIX
) -> KnownCrop:
    """Paint a plate over the one in a photo's box (4,), and cut it out as in serving.

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
        kind = draw_kind(rng, mix.kinds)
        patch = paint_plate(around, here, rng, kind)
        width = float(np.ptp(patch.quad[:, 0]))
        if width >= least_width(kind, mix.character_px):
            low, high = patch.box[:2].astype(np.float64), patch.box[2:].astype(np.float64)
            found = np.concatenate(jitter_box(low, high, patch.lines, rng, mix.crops))
            crop = _cut(patch.paste(around), found, patch.lines, rng, mix)
            return KnownCrop(crop, patch.text, kind, patch.lines, "painted", width)
    raise ValueError(f"the box {box.tolist()} is too small for a legible plate")


def _cut(around: Image, box: Floats, lines: int, rng: np.random.Generator, mix: CropMix) -> Image:
    """Photograph what is around a box, and cut it out."""
    boxes, counts = torch.from_numpy(box)[None], torch.tensor([lines])
    x0, y0, x1, y1 = widen_boxes(boxes, counts)[0].tolist()
    left, top = max(int(x0) - _RIM, 0), max(int(y0) - _RIM, 0)
    seen = around[top : int(y1) + _RIM + 1, left : int(x1) + _RIM + 1]
    photo = torch.from_numpy(photograph(np.ascontiguousarray(seen), rng, mix.camera))
    moved = boxes - torch.tensor([left, top, left, top])
    return crop_boxes(photo, moved, counts)[0].permute(1, 2, 0).contiguous().numpy()


@dataclass(frozen=True)
class Block:
    """Crops that one process makes at a time.

    A crop depends on the seed, its set, its source and its place alone: not on the number of
    processes, and on no seed of a training, which use no spawn keys.
    """

    key: tuple[int, int, int]  # spawn key of its chance: set, source, place
    count: int = 0  # crops to render; 0 where plates are painted
    photo: Path | None = None  # file to paint into
    boxes: tuple[Box, ...] = ()  # boxes of that photo, one for each plate to paint

    def make(self, seed: int, mix: CropMix) -> list[KnownCrop]:
        """Make its crops."""
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=self.key))
        if self.photo is None:
            return [render(rng, mix) for _ in range(self.count)]
        image = decode(self.photo.read_bytes())
        return [paint(image, np.array(box), rng, mix) for box in self.boxes]


def plan(data: Path, part: str, crops: int, mix: CropMix) -> list[Block]:
    """Say which crops one of `SETS` has.

    Plates to fit to are painted into the photos of ``data/world_photos`` that the detector was
    trained on, plates to measure with into its validation photos. A FileNotFoundError says that
    there are none, a ValueError that no plate there is large enough to be painted over.
    """
    index, painted = SETS.index(part), round(crops * mix.painted_share)
    rendered = range(0, crops - painted, _BLOCK)
    blocks = [
        Block((index, 0, place), count=min(_BLOCK, rendered.stop - start))
        for place, start in enumerate(rendered)
    ]
    if not painted:
        return blocks
    photos = load_labels(data / "world_photos")
    held_out = validation_names(photo.path.name for photo in photos)
    places = [
        (photo.path, plate.box)
        for photo in photos
        for plate in photo.plates
        if (photo.path.name in held_out) == (part == "measure")
        and plate.box[2] - plate.box[0] >= mix.painted_over_px
    ]
    if not places:
        raise ValueError(f"{data}: no plate of world_photos is wide enough to be painted over")
    # So many plates, evenly spread over the places, photo by photo.
    of_photo: dict[Path, list[Box]] = {}
    for number, (path, box) in enumerate(places):
        times = (number + 1) * painted // len(places) - number * painted // len(places)
        of_photo.setdefault(path, []).extend([box] * times)
    return blocks + [
        Block((index, 1, place), photo=path, boxes=tuple(boxes))
        for place, (path, boxes) in enumerate(of_photo.items())
        if boxes
    ]


def lay_out(
    crops: Sequence[KnownCrop], specs: Specs
) -> Iterator[tuple[Sequence[KnownCrop], Tensor, Tensor]]:
    """Lay crops side by side in photos; yields some crops, their photo, their boxes.

    A photo is (H, W, 3) uint8 of the detector's first canvas, which is not scaled on its way; the
    (N, 4) float64 boxes x0, y0, x1, y1 cut out exactly these crops. Around each crop its edge is
    repeated: the pipeline may look wider, and must not see another plate.
    """
    height, width = specs.detector.canvases_hw[0]
    crop_h, crop_w = specs.rectifier.crop_hw
    around = ((crop_h, crop_h), (_APART_PX, _APART_PX), (0, 0))
    pitch_h, pitch_w = 3 * crop_h, crop_w + 2 * _APART_PX
    columns, rows = width // pitch_w, height // pitch_h
    for start in range(0, len(crops), columns * rows):
        part = crops[start : start + columns * rows]
        photo = np.zeros((height, width, 3), np.uint8)
        boxes = []
        for place, crop in enumerate(part):
            y, x = place // columns * pitch_h, place % columns * pitch_w
            photo[y : y + pitch_h, x : x + pitch_w] = np.pad(crop.image, around, mode="edge")
            margin_h, margin_w = specs.rectifier.margin_hw(crop.lines)
            half = np.array([crop_w / (1 + margin_w), crop_h / (1 + margin_h)]) / 2
            middle = np.array([x + pitch_w / 2, y + pitch_h / 2])
            boxes.append(np.concatenate((middle - half, middle + half)))
        yield part, torch.from_numpy(photo), torch.from_numpy(np.stack(boxes))
