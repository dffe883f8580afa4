"""From boxes to rectified plates: crops of the photo, the rectifier's theta, rows and corners.

Theta maps output to input coordinates, both in [-1, 1] with pixel edges at the ends
(`torch.nn.functional.affine_grid`, ``align_corners=False``). Boxes are floats in photo pixels;
pixel i covers [i, i + 1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plate_models import pixels
from plate_models.detection import check_image
from plate_models.motion import without_motion
from plate_models.pixels import Floats, Lines, to_host
from plate_models.spec import RECTIFIER, RectifierSpec

# (N, 3, h, w) float32 crops to rectified plates and theta.
Rectify = Callable[[Any], tuple[Any, Any]]

# Corners TL, TR, BR, BL of the rectified frame, in homogeneous coordinates.
FRAME = np.array([[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]], np.float32)


@dataclass(frozen=True)
class Rectified:
    """N rectified plates: `crops` and `plates` on the photo's device, the rest on the host."""

    crops: Any  # (N, 3, h, w) float32, normalised as the rectifier's input
    plates: Any  # the rectifier's output, normalised alike
    theta: Floats  # (N, 2, 3)
    quads: Floats  # (N, 4, 2), see `quads_from_theta`


def straighten(
    image: Any,
    boxes: Floats,
    lines: Lines,
    rectify: Rectify,
    spec: RectifierSpec = RECTIFIER,
    motions: Floats | None = None,
) -> Rectified:
    """Crop and rectify plates; do so once more with plates that their boxes cut off.

    The image is (H, W, 3) uint8 RGB, an array, or a tensor on any device. The others are arrays on
    the host: (N, 4) float boxes x0, y0, x1, y1 in photo pixels, N >= 1; (N,) int64 lines of text on
    each plate; (N, 2) motions x, y in photo pixels, by which crops are deblurred.
    """
    if motions is None:
        motions = np.zeros((len(boxes), 2), np.float32)
    found = _straighten_once(image, boxes, lines, rectify, spec, motions)
    reach = np.abs(corners_in_crop(found.theta)).max(axis=(1, 2))
    cut = np.flatnonzero(reach > spec.look_again_from)
    if len(cut):
        hulls = bounding_boxes_of(found.quads)[cut]
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
    crops = (pixels.stretch_contrast(crops) - spec.mean) / spec.std
    plates, thetas = zip(*map(rectify, batches_of(crops, spec.max_batch_size)), strict=True)
    theta = np.concatenate([to_host(each) for each in thetas])
    quads = quads_from_theta(theta, boxes, lines, spec)
    return Rectified(crops, pixels.concatenate(plates), theta, quads)


def batches_of(batch: Any, most: int) -> list[Any]:
    """Split a batch into parts of at most `most` rows."""
    return [batch[start : start + most] for start in range(0, len(batch), most)]


def widen_boxes(
    boxes_xyxy: NDArray[Any], lines: Lines, spec: RectifierSpec = RECTIFIER
) -> NDArray[Any]:
    """Add the spec's margins, shares of a box's sides, to (N, 4) boxes, half on each side.

    `lines` are (N,) int64, 1 or 2. The result may reach beyond the photo.
    """
    first, last = boxes_xyxy[:, :2], boxes_xyxy[:, 2:]
    margins = np.array([spec.margin_hw(1)[::-1], spec.margin_hw(2)[::-1]], boxes_xyxy.dtype)
    margin = (last - first) * margins[lines - 1] / 2
    return np.concatenate((first - margin, last + margin), axis=1)


def crop_boxes(
    image: Any, boxes_xyxy: Floats, lines: Lines, spec: RectifierSpec = RECTIFIER
) -> Any:
    """Cut boxes with their margins out of a photo and resize them to the crop's size.

    Crops are sampled at subpixel positions, so that they move smoothly with their boxes.

    The image is (H, W, 3) uint8 RGB; any other raises ValueError. The (N, 4) float boxes, N >= 1,
    are in its pixels, `lines` as for `widen_boxes`. Returns (N, 3, h, w) float32 RGB on the image's
    device, whole numbers in [0, 255], (h, w) = ``spec.crop_hw``.
    """
    check_image(image)
    regions = widen_boxes(np.asarray(boxes_xyxy, np.float64), lines, spec).tolist()
    return pixels.concatenate([pixels.crop(image, region, spec.crop_hw) for region in regions])


def rectified_rgb(found: Rectified, spec: RectifierSpec) -> NDArray[np.uint8]:
    """Rectified plates for display: (N, h, w, 3) uint8 RGB, on the host."""
    shown = pixels.resample(found.crops, found.theta, spec.shown_hw)
    pictures = (shown * spec.std + spec.mean).round().clip(0, 255).swapaxes(1, 2).swapaxes(2, 3)
    return to_host(pictures, np.uint8)


def theta_of_rows(theta: Floats, spans: Sequence[tuple[float, float]]) -> Floats:
    """Theta of S rows of text, top to bottom, of each plate: (N * S, 2, 3) from (N, 2, 3).

    Each span (from, to) gives a row as shares of the plate's height.
    """
    # Scale y by a row's height and move it to the row's middle, in the frame's [-1, 1].
    rows = [[[1.0, 0, 0], [0, end - start, start + end - 1], [0, 0, 1]] for start, end in spans]
    return np.asarray((theta[:, None] @ np.array(rows, theta.dtype)).reshape(-1, 2, 3))


def corners_in_crop(theta: Floats) -> Floats:
    """Corners TL, TR, BR, BL of the rectified frame, (N, 4, 2) in [-1, 1] of the crop."""
    return np.asarray(FRAME @ theta.transpose(0, 2, 1))


def quads_from_theta(
    theta: Floats, boxes_xyxy: Floats, lines: Lines, spec: RectifierSpec = RECTIFIER
) -> Floats:
    """(N, 4, 2): corners TL, TR, BR, BL of rectified plates, in photo pixels.

    The order is that of the plate's own orientation. Boxes and lines are those of `crop_boxes`.
    """
    region = widen_boxes(boxes_xyxy.astype(theta.dtype), lines, spec)[:, None]  # (N, 1, 4)
    first, last = region[..., :2], region[..., 2:]
    return np.asarray((first + last) / 2 + corners_in_crop(theta) * (last - first) / 2)


def bounding_boxes_of(quads: Floats) -> Floats:
    """(N, 4) x0, y0, x1, y1: the bounding boxes of (N, P, 2) corners."""
    return np.concatenate((quads.min(axis=1), quads.max(axis=1)), axis=1)
