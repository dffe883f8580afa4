"""From boxes to straight plates: crops of the photo, the rectifier's theta, rows and corners.

Theta maps output to input coordinates, both in [-1, 1] with pixel edges at the ends
(`torch.nn.functional.affine_grid`, ``align_corners=False``). Boxes are float pixels of the
photo; pixel i covers [i, i + 1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plate_models.detection import check_image
from plate_models.motion import without_motion
from plate_models.pixels import Floats, Lines, crop, join, lift_contrast, resample, to_host
from plate_models.spec import RECTIFIER, RectifierSpec

# (N, 3, h, w) float32 crops to rectified plates and theta.
Rectify = Callable[[Any], tuple[Any, Any]]

# Corners TL, TR, BR, BL of the rectified frame, with a 1 behind each.
FRAME = np.array([[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]], np.float32)


@dataclass(frozen=True)
class Rectified:
    """N plates after the rectifier: crops and plates where the photo is, the rest on the host."""

    crops: Any
    plates: Any
    theta: Floats
    quads: Floats


def straighten(
    image: Any,
    boxes: Floats,
    lines: Lines,
    rectify: Rectify,
    spec: RectifierSpec = RECTIFIER,
    motions: Floats | None = None,
) -> Rectified:
    """Crop plates and straighten them; one that its box cut is cropped anew, once.

    The image is (H, W, 3) uint8 RGB on any device, an array or a tensor; on the host are (N, 4)
    float boxes x0, y0, x1, y1 in its pixels, N >= 1, (N,) int64 lines of text on each plate, and
    (N, 2) motions x, y in its pixels, of which the blur is taken from their crops.
    """
    if motions is None:
        motions = np.zeros((len(boxes), 2), np.float32)
    found = _straighten_once(image, boxes, lines, rectify, spec, motions)
    reach = np.abs(corners_in_crop(found.theta)).max(axis=(1, 2))
    cut = np.flatnonzero(reach > spec.look_again_from)
    if len(cut):
        hulls = hulls_of(found.quads)[cut]
        again = _straighten_once(image, hulls, lines[cut], rectify, spec, motions[cut])
        for name in ("crops", "plates", "theta", "quads"):
            getattr(found, name)[cut] = getattr(again, name)
    return found


def _straighten_once(
    image: Any, boxes: Floats, lines: Lines, rectify: Rectify, spec: RectifierSpec, motions: Floats
) -> Rectified:
    crops = crop_boxes(image, boxes, lines, spec)
    if motions.any():
        first, last = np.split(widen_boxes(boxes, lines, spec), 2, axis=1)
        crops = without_motion(crops, motions * spec.crop_hw[::-1] / (last - first).clip(1))
    crops = (lift_contrast(crops) - spec.mean) / spec.std
    plates, thetas = zip(*map(rectify, parts_of(crops, spec.max_batch_size)), strict=True)
    theta = np.concatenate([to_host(each) for each in thetas])
    return Rectified(crops, join(plates), theta, quads_from_theta(theta, boxes, lines, spec))


def parts_of(batch: Any, most: int) -> list[Any]:
    """A batch in parts of at most so many rows."""
    return [batch[start : start + most] for start in range(0, len(batch), most)]


def widen_boxes(
    boxes_xyxy: NDArray[Any], lines: Lines | None = None, spec: RectifierSpec = RECTIFIER
) -> NDArray[Any]:
    """Grow (N, 4) boxes by shares of their own height and width, half of it on each side.

    `lines` are (N,) int64, 1 or 2, None if all plates have one. The boxes may reach beyond
    the photo.
    """
    first, last = boxes_xyxy[:, :2], boxes_xyxy[:, 2:]
    margins = np.array([spec.margin_hw(1)[::-1], spec.margin_hw(2)[::-1]], boxes_xyxy.dtype)
    margin = (last - first) * margins[0 if lines is None else lines - 1] / 2
    return np.concatenate((first - margin, last + margin), axis=1)


def crop_boxes(
    image: Any, boxes_xyxy: Floats, lines: Lines | None = None, spec: RectifierSpec = RECTIFIER
) -> Any:
    """Cut boxes out of a photo, with their margin, and resize each to the crop's size.

    Resizing is at subpixel positions, so that a crop moves smoothly with its box.

    The image is (H, W, 3) uint8 RGB, else it is a ValueError; the (N, 4) float boxes, N >= 1, are
    in its pixels, `lines` as for `widen_boxes`. Returns (N, 3, h, w) float32
    RGB, whole numbers in [0, 255], (h, w) = ``spec.crop_hw``, on the image's device.
    """
    check_image(image)
    regions = widen_boxes(np.asarray(boxes_xyxy, np.float64), lines, spec).tolist()
    return join([crop(image, region, spec.crop_hw) for region in regions])


def rectified_rgb(found: Rectified, spec: RectifierSpec = RECTIFIER) -> NDArray[np.uint8]:
    """Rectified plates for people to see: (N, h, w, 3) uint8 RGB, on the host."""
    shown = resample(found.crops, found.theta, spec.shown_hw)
    pictures = (shown * spec.std + spec.mean).round().clip(0, 255).swapaxes(1, 2).swapaxes(2, 3)
    return to_host(pictures, np.uint8)


def theta_of_rows(theta: Floats, spans: Sequence[tuple[float, float]]) -> Floats:
    """(S * N, 2, 3): theta of S rows of each of N plates, from above, of the plates' (N, 2, 3).

    Spans are the rows' shares of the plate's height (from, to).
    """
    # A row's height and middle, in the frame's [-1, 1].
    rows = [[[1.0, 0, 0], [0, end - start, start + end - 1], [0, 0, 1]] for start, end in spans]
    return np.asarray((theta[:, None] @ np.array(rows, theta.dtype)).reshape(-1, 2, 3))


def corners_in_crop(theta: Floats) -> Floats:
    """Corners TL, TR, BR, BL of the rectified frame, (N, 4, 2) in [-1, 1] of the crop."""
    return np.asarray(FRAME @ theta.transpose(0, 2, 1))


def quads_from_theta(
    theta: Floats, boxes_xyxy: Floats, lines: Lines | None = None, spec: RectifierSpec = RECTIFIER
) -> Floats:
    """(N, 4, 2): corners of the rectified plates, in photo pixels, of `crop_boxes`' boxes.

    They are TL, TR, BR, BL of the plate's own orientation.
    """
    region = widen_boxes(boxes_xyxy.astype(theta.dtype), lines, spec)[:, None]  # (N, 1, 4)
    first, last = region[..., :2], region[..., 2:]
    return np.asarray((first + last) / 2 + corners_in_crop(theta) * (last - first) / 2)


def hulls_of(quads: Floats) -> Floats:
    """(N, 4) x0, y0, x1, y1: the smallest boxes around (N, P, 2) corners."""
    return np.concatenate((quads.min(axis=1), quads.max(axis=1)), axis=1)
