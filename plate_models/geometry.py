"""Letterbox, boxes, crops and quads: the way of coordinates through the pipeline.

Boxes are float pixels in the order their functions name; pixel i covers [i, i + 1).
Everything is torch and works on whatever device its arguments are on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import torch
from torch import Tensor
from torch.nn import functional as F

from plate_models.cropping import cut_regions
from plate_models.devices import constant, host_sees
from plate_models.spec import DETECTOR, RECTIFIER, RectifierSpec

# More source samples per crop pixel than this add nothing but time.
_SAMPLES_PER_PIXEL = 4


@dataclass(frozen=True)
class Letterbox:
    """How a photo lies on its canvas; made by `letterbox`.

    Attributes:
        photo_wh: Size of the photo in pixels.
        scale_xy: Canvas pixels per photo pixel.
        offset_xy: Where the photo's corner lies on the canvas, in pixels.
    """

    photo_wh: tuple[int, int]
    scale_xy: tuple[float, float]
    offset_xy: tuple[int, int]

    def to_canvas(self, boxes_xyxy: Tensor) -> Tensor:
        """(N, 4) float in photo pixels to (N, 4) in canvas pixels."""
        canvas = [
            boxes_xyxy[:, axis::2] * self.scale_xy[axis] + self.offset_xy[axis] for axis in (0, 1)
        ]
        return torch.stack(canvas, dim=2).flatten(1)

    def to_photo(self, boxes_xyxy: Tensor) -> Tensor:
        """(N, 4) float in canvas pixels to (N, 4) in photo pixels, cut at its edges."""
        photo = [
            ((boxes_xyxy[:, axis::2] - self.offset_xy[axis]) / self.scale_xy[axis]).clamp(
                0, self.photo_wh[axis]
            )
            for axis in (0, 1)
        ]
        return torch.stack(photo, dim=2).flatten(1)


def choose_canvas(
    height: int,
    width: int,
    canvases_hw: Sequence[tuple[int, int]] = DETECTOR.canvases_hw,
) -> tuple[int, int]:
    """The canvas that shrinks a photo least; of equals, the one with fewest pixels.

    Args:
        height: Of the photo in pixels, at least 1.
        width: Of the photo in pixels, at least 1.
        canvases_hw: (H, W) to choose from.

    Returns:
        (H, W) of the canvas.
    """
    return max(
        canvases_hw,
        key=lambda canvas: (_fitting_scale(height, width, canvas), -canvas[0] * canvas[1]),
    )


def _fitting_scale(height: int, width: int, canvas_hw: tuple[int, int]) -> float:
    return min(canvas_hw[0] / height, canvas_hw[1] / width)


def letterbox(
    image: Tensor, canvas_hw: tuple[int, int], pad_value: int = DETECTOR.pad_value
) -> tuple[Tensor, Letterbox]:
    """Resize a photo to fit a canvas, keeping its aspect, and pad the rest.

    Args:
        image: (H, W, 3) uint8 RGB in [0, 255].
        canvas_hw: (H, W) of the canvas.
        pad_value: Grey level of the bars.

    Returns:
        The canvas, (3, H, W) uint8 RGB with the photo in its middle, and the way
        back from it.

    Raises:
        ValueError: The image is not (H, W, 3) uint8, or it is empty.
    """
    check_image(image)
    h, w = image.shape[:2]
    scale = _fitting_scale(h, w, canvas_hw)
    new_h, new_w = max(round(h * scale), 1), max(round(w * scale), 1)
    top, left = (canvas_hw[0] - new_h) // 2, (canvas_hw[1] - new_w) // 2
    canvas = image.new_full((3, *canvas_hw), pad_value)
    inside = canvas[:, top : top + new_h, left : left + new_w]
    resized = _resize(image, (new_h, new_w))
    if host_sees(image):
        # Into the canvas, plane by plane: torch would take ten times as long to turn them.
        cv2.split(resized.numpy(), [plane.numpy() for plane in inside])
    else:
        inside.copy_(resized.permute(2, 0, 1))
    return canvas, Letterbox((w, h), (new_w / w, new_h / h), (left, top))


def _resize(image: Tensor, size_hw: tuple[int, int]) -> Tensor:
    """Antialiased bilinear resize of (H, W, 3) uint8."""
    if image.shape[:2] == size_hw:
        return image
    # The batch's axis goes first: put in after the permutation, its stride hides from torch
    # that the colours lie together, and the photo's planes are taken apart and joined again.
    planes = image[None].permute(0, 3, 1, 2)
    if host_sees(image):
        resized = F.interpolate(planes, size_hw, mode="bilinear", antialias=True)
    else:  # The CUDA kernel takes floating point only.
        resized = F.interpolate(planes.float(), size_hw, mode="bilinear", antialias=True)
        resized = resized.round().clamp(0, 255).to(torch.uint8)
    return resized[0].permute(1, 2, 0)


def check_image(image: Tensor) -> None:
    """Raise ValueError unless the image is (H, W, 3) uint8 with at least one pixel."""
    if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.numel():
        raise ValueError(
            f"expected an image (H, W, 3) uint8 with at least one pixel, "
            f"got {tuple(image.shape)} {str(image.dtype).removeprefix('torch.')}"
        )


def box_xyxy_to_cxcywh(boxes: Tensor) -> Tensor:
    """(..., 4) x0, y0, x1, y1 to (..., 4) centre x, centre y, width, height."""
    first, last = boxes[..., :2], boxes[..., 2:]
    return torch.cat(((first + last) / 2, last - first), dim=-1)


def box_cxcywh_to_xyxy(boxes: Tensor) -> Tensor:
    """(..., 4) centre x, centre y, width, height to (..., 4) x0, y0, x1, y1."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat((centre - half, centre + half), dim=-1)


def box_iou_xyxy(a_xyxy: Tensor, b_xyxy: Tensor) -> Tensor:
    """Intersection over union of every pair.

    Args:
        a_xyxy: (N, 4) float.
        b_xyxy: (M, 4) float, same coordinates.

    Returns:
        (N, M) float in [0, 1]; 0 where both boxes are empty.
    """
    first = torch.maximum(a_xyxy[:, None, :2], b_xyxy[None, :, :2])
    last = torch.minimum(a_xyxy[:, None, 2:], b_xyxy[None, :, 2:])
    common = (last - first).clamp(min=0).prod(dim=2)  # (N, M)
    areas_a = (a_xyxy[:, 2:] - a_xyxy[:, :2]).clamp(min=0).prod(dim=1)
    areas_b = (b_xyxy[:, 2:] - b_xyxy[:, :2]).clamp(min=0).prod(dim=1)
    union = areas_a[:, None] + areas_b[None] - common
    return common / union.clamp(min=1e-9)


def widen_boxes(
    boxes_xyxy: Tensor, lines: Tensor | None = None, spec: RectifierSpec = RECTIFIER
) -> Tensor:
    """Grow boxes by a share of their own height and width, half of it on each side.

    Args:
        boxes_xyxy: (N, 4) float.
        lines: (N,) int64, lines of text on each plate, 1 or 2; None if all have one.
        spec: The shares for each number of lines.

    Returns:
        (N, 4) float, same coordinates; may reach beyond the photo.
    """
    boxes = box_xyxy_to_cxcywh(boxes_xyxy)
    margins = constant((spec.margin_hw(1)[::-1], spec.margin_hw(2)[::-1]), boxes)
    shares = margins[0] if lines is None else margins[lines - 1]
    return box_cxcywh_to_xyxy(torch.cat((boxes[..., :2], boxes[..., 2:] * (1 + shares)), dim=-1))


def crop_boxes(
    image: Tensor,
    boxes_xyxy: Tensor,
    lines: Tensor | None = None,
    spec: RectifierSpec = RECTIFIER,
) -> Tensor:
    """Cut boxes out of a photo, with their margin, and resize each to the crop's size.

    Beyond the photo its edge is repeated. Resizing averages with a triangle filter,
    at subpixel positions, so that a crop moves smoothly with its box.

    Args:
        image: (H, W, 3) uint8 RGB in [0, 255].
        boxes_xyxy: (N, 4) float in the photo's pixels.
        lines: See :func:`widen_boxes`.
        spec: Size and margins of the crops.

    Returns:
        (N, 3, h, w) uint8 RGB in [0, 255], (h, w) = ``spec.crop_hw``.

    Raises:
        ValueError: The image is not (H, W, 3) uint8, or it is empty.
    """
    check_image(image)
    regions = widen_boxes(boxes_xyxy.double(), lines, spec)
    if not len(regions):
        return image.new_zeros((0, 3, *spec.crop_hw))
    if host_sees(image):
        crops = torch.stack([_cut(image, region, spec.crop_hw) for region in regions.tolist()])
    else:
        crops = cut_regions(image, regions, spec.crop_hw, _SAMPLES_PER_PIXEL)
    return crops.round().clamp(0, 255).to(torch.uint8)


def _cut(image: Tensor, region: Sequence[float], size_hw: tuple[int, int]) -> Tensor:
    """One region, resized: (3, h, w) float32 in [0, 255]."""
    x0, y0, x1, y1 = region
    rows, row_weights = _resampling(y0, y1, size_hw[0])
    columns, column_weights = _resampling(x0, x1, size_hw[1])
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
        indices = torch.arange(source.start, source.stop, source.step).clamp_(first, last)
        near = near.index_select(axis, indices - first)
    return near


def _ends(source: range, length: int) -> tuple[int, int]:
    """First and last index of an axis that is taken, inside the photo."""
    return min(max(source[0], 0), length - 1), min(max(source[-1], 0), length - 1)


def _resampling(start: float, end: float, samples: int) -> tuple[range, Tensor]:
    """Source pixels of one axis, S of them, and the weights (samples, S) that mix them."""
    scale = max((end - start) / samples, 1e-6)
    reach = max(scale, 1.0)
    step = max(int(scale // _SAMPLES_PER_PIXEL), 1)
    source = range(int(start - reach) - 1, int(end + reach) + 2, step)
    centres = torch.arange(samples, dtype=torch.float32).add_(0.5).mul_(scale).add_(start)
    middles = torch.arange(source.start, source.stop, step, dtype=torch.float32).add_(0.5)
    weights = (middles - centres[:, None]).abs_().div_(-reach).add_(1).clamp_(min=0)
    return source, weights.div_(weights.sum(dim=1, keepdim=True))
