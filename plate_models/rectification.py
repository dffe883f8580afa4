"""From boxes to straight plates: crops of the photo, the rectifier's theta, rows and corners.

Theta maps output to input coordinates, both in [-1, 1] with pixel edges at the ends
(`torch.nn.functional.affine_grid`, ``align_corners=False``). Boxes are float pixels of the
photo; pixel i covers [i, i + 1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from plate_models.detection import check_image
from plate_models.spec import RECTIFIER, RectifierSpec

# (N, 3, h, w) float32 crops to rectified plates and theta.
Rectify = Callable[[Tensor], tuple[Tensor, Tensor]]

# More source samples per crop pixel than this add nothing but time.
_SAMPLES_PER_PIXEL = 4


@dataclass(frozen=True)
class Rectified:
    """N plates after the rectifier: tensors on the photo's device, quads on the CPU."""

    crops: Tensor
    plates: Tensor
    theta: Tensor
    quads: Tensor


def straighten(
    image: Tensor, boxes: Tensor, lines: Tensor, rectify: Rectify, spec: RectifierSpec = RECTIFIER
) -> Rectified:
    """Crop plates and straighten them; one that its box cut is cropped anew, once.

    The image is (H, W, 3) uint8 RGB on any device; on the CPU are (N, 4) float boxes x0, y0, x1,
    y1 in its pixels, N >= 1, and (N,) int64 lines of text on each plate.
    """
    found = _straighten_once(image, boxes, lines, rectify, spec)
    reach = corners_in_crop(found.theta.cpu()).abs().amax(dim=(1, 2))
    cut = (reach > spec.look_again_from).nonzero()[:, 0]
    if not len(cut):
        return found
    again = _straighten_once(image, hulls_of(found.quads)[cut], lines[cut], rectify, spec)
    rows = cut.to(image.device)
    return Rectified(
        found.crops.index_copy(0, rows, again.crops),
        found.plates.index_copy(0, rows, again.plates),
        found.theta.index_copy(0, rows, again.theta),
        found.quads.index_copy(0, cut, again.quads),
    )


def _straighten_once(
    image: Tensor, boxes: Tensor, lines: Tensor, rectify: Rectify, spec: RectifierSpec
) -> Rectified:
    crops = normalize(crop_boxes(image, boxes, lines, spec), spec)
    plates, thetas = zip(*map(rectify, torch.split(crops, spec.max_batch_size)), strict=True)
    theta = torch.cat(thetas)
    quads = quads_from_theta(theta.cpu(), boxes, lines, spec)
    return Rectified(crops, torch.cat(plates), theta, quads)


def normalize(crops: Tensor, spec: RectifierSpec = RECTIFIER) -> Tensor:
    """Turn pixels, uint8 or float in [0, 255], into the nets' input: float32, same shape."""
    return (crops.float() - spec.mean) / spec.std


def widen_boxes(
    boxes_xyxy: Tensor, lines: Tensor | None = None, spec: RectifierSpec = RECTIFIER
) -> Tensor:
    """Grow (N, 4) boxes by shares of their own height and width, half of it on each side.

    `lines` are (N,) int64, 1 or 2, None if all plates have one. The boxes may reach beyond
    the photo.
    """
    first, last = boxes_xyxy[:, :2], boxes_xyxy[:, 2:]
    margins = boxes_xyxy.new_tensor([spec.margin_hw(1)[::-1], spec.margin_hw(2)[::-1]])
    shares = margins[0] if lines is None else margins[lines - 1]
    margin = (last - first) * shares / 2
    return torch.cat((first - margin, last + margin), dim=1)


def crop_boxes(
    image: Tensor, boxes_xyxy: Tensor, lines: Tensor | None = None, spec: RectifierSpec = RECTIFIER
) -> Tensor:
    """Cut boxes out of a photo, with their margin, and resize each to the crop's size.

    Beyond the photo its edge is repeated. Resizing averages with a triangle filter,
    at subpixel positions, so that a crop moves smoothly with its box.

    The image is (H, W, 3) uint8 RGB, else it is a ValueError; the (N, 4) float boxes are in its
    pixels, `lines` as for `widen_boxes`. Returns (N, 3, h, w) uint8 RGB, (h, w) =
    ``spec.crop_hw``, on the image's device.
    """
    check_image(image)
    regions = widen_boxes(boxes_xyxy.double(), lines, spec).tolist()
    if not regions:
        return image.new_zeros((0, 3, *spec.crop_hw))
    crops = torch.stack([_cut(image, region, spec.crop_hw) for region in regions])
    return crops.round().clamp(0, 255).to(torch.uint8)


def _cut(image: Tensor, region: Sequence[float], size_hw: tuple[int, int]) -> Tensor:
    """One region, resized: (3, h, w) float32 in [0, 255]."""
    x0, y0, x1, y1 = region
    rows, row_weights = _resampling(y0, y1, size_hw[0], image.device)
    columns, column_weights = _resampling(x0, x1, size_hw[1], image.device)
    pixels = _pixels(image, rows, columns).permute(2, 0, 1).float()  # (3, rows, columns)
    return row_weights @ pixels @ column_weights.T


def _pixels(image: Tensor, rows: range, columns: range) -> Tensor:
    """Some rows and columns of a photo, (R, C, 3); beyond its edges those are repeated."""
    (top, bottom), (left, right) = map(_ends, (rows, columns), image.shape[:2])
    # Narrowed first: rows that are taken by their indices are copied in their whole width.
    near = image[top : bottom + 1, left : right + 1]
    if near.shape[:2] == (len(rows), len(columns)):
        return near
    for axis, (source, first, last) in enumerate(((rows, top, bottom), (columns, left, right))):
        indices = torch.arange(source.start, source.stop, source.step, device=image.device)
        near = near.index_select(axis, indices.clamp_(first, last) - first)
    return near


def _ends(source: range, length: int) -> tuple[int, int]:
    """First and last index of an axis that is taken, inside the photo."""
    return min(max(source[0], 0), length - 1), min(max(source[-1], 0), length - 1)


def _resampling(
    start: float, end: float, samples: int, device: torch.device
) -> tuple[range, Tensor]:
    """Source pixels of one axis, S of them, and the weights (samples, S) that mix them."""
    scale = max((end - start) / samples, 1e-6)
    reach = max(scale, 1.0)
    step = max(int(scale // _SAMPLES_PER_PIXEL), 1)
    source = range(int(start - reach) - 1, int(end + reach) + 2, step)
    centres = torch.arange(samples, dtype=torch.float32, device=device)
    centres.add_(0.5).mul_(scale).add_(start)
    middles = torch.arange(
        source.start, source.stop, step, dtype=torch.float32, device=device
    ).add_(0.5)
    weights = (middles - centres[:, None]).abs_().div_(-reach).add_(1).clamp_(min=0)
    return source, weights.div_(weights.sum(dim=1, keepdim=True))


def resample(crops: Tensor, theta: Tensor, size_hw: tuple[int, int]) -> Tensor:
    """Sample crops (N, C, H, W) through theta (N, 2, 3), bilinearly, borders repeated.

    Returns (N, C, h, w) of the crops' type.
    """
    size = [crops.shape[0], crops.shape[1], *size_hw]
    grid = F.affine_grid(theta, size, align_corners=False).to(crops.dtype)
    return F.grid_sample(crops, grid, padding_mode="border", align_corners=False)


def rectified_rgb(crops: Tensor, theta: Tensor, spec: RectifierSpec = RECTIFIER) -> Tensor:
    """Straighten normalised crops (N, 3, H, W) for people to see: (N, h, w, 3) uint8 RGB."""
    shown = resample(crops, theta, spec.shown_hw).mul_(spec.std).add_(spec.mean)
    return shown.round_().clamp_(0, 255).to(torch.uint8).permute(0, 2, 3, 1)


def sample_rows(
    crops: Tensor,
    theta: Tensor,
    spec: RectifierSpec = RECTIFIER,
    spans: Sequence[tuple[float, float]] | None = None,
) -> Tensor:
    """Straighten S rows of each plate from their crops and the theta of the whole plates.

    Spans are their shares of the plate's height (from, to), by default those of two-line plates.
    Returns (S * N, 3, h, w): each plate's rows, from above.
    """
    if not len(crops):
        return crops.new_zeros((0, crops.shape[1], *spec.rectified_hw))
    spans = spans or spec.row_spans
    # A row's height and middle, in the frame's [-1, 1].
    rows = [[[1.0, 0, 0], [0, end - start, start + end - 1], [0, 0, 1]] for start, end in spans]
    narrowing = torch.tensor(rows, dtype=theta.dtype).to(theta.device)
    thetas = (theta[:, None] @ narrowing[None]).flatten(0, 1)
    return resample(crops.repeat_interleave(len(spans), dim=0), thetas, spec.rectified_hw)


def corners_in_crop(theta: Tensor) -> Tensor:
    """Corners TL, TR, BR, BL of the rectified frame, (N, 4, 2) in [-1, 1] of the crop."""
    frame = theta.new_tensor([[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]])
    return frame @ theta.transpose(1, 2)


def quads_from_theta(
    theta: Tensor, boxes_xyxy: Tensor, lines: Tensor | None = None, spec: RectifierSpec = RECTIFIER
) -> Tensor:
    """(N, 4, 2): corners of the rectified plates, in photo pixels, of `crop_boxes`' boxes.

    They are TL, TR, BR, BL of the plate's own orientation.
    """
    region = widen_boxes(boxes_xyxy.to(theta.dtype), lines, spec)[:, None]  # (N, 1, 4)
    first, last = region[..., :2], region[..., 2:]
    return (first + last) / 2 + corners_in_crop(theta) * (last - first) / 2


def hulls_of(quads: Tensor) -> Tensor:
    """(N, 4) x0, y0, x1, y1: the smallest boxes around (N, 4, 2) quads."""
    return torch.cat((quads.amin(dim=1), quads.amax(dim=1)), dim=1)
