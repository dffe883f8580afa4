"""Crops around boxes to straight plates; what a box cut off is looked at again."""

from collections.abc import Callable

import torch
from torch import Tensor

from plate_models.devices import rows_that_count
from plate_models.geometry import crop_boxes
from plate_models.spec import RECTIFIER, RectifierSpec
from plate_models.straightening import hulls_of, quads_from_theta, reach_of

Rectify = Callable[[Tensor], tuple[Tensor, Tensor]]


def straighten(
    image: Tensor,
    boxes: Tensor,
    lines: Tensor,
    rectify: Rectify,
    spec: RectifierSpec = RECTIFIER,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Crop plates and straighten them; one that its box cut is cropped anew, once.

    Args:
        image: (H, W, 3) uint8 RGB.
        boxes: (N, 4) float x0, y0, x1, y1 in its pixels, N >= 1.
        lines: (N,) int64 lines of text on each plate.
        rectify: See `pipeline.read_plates`.
        spec: Sizes, margins, and when a plate counts as cut.

    Returns:
        (N, 3, h, w) float32 crops, normalised; the rectified plates; (N, 2, 3) theta;
        (N, 4, 2) quads in photo pixels.
    """
    looks = _look(image, boxes, lines, rectify, spec)
    cut = reach_of(looks[2]) > spec.look_again_from
    rows = rows_that_count(cut)
    if not len(rows):
        return looks
    again = _look(image, hulls_of(looks[3])[rows], lines[rows], rectify, spec)
    crops, plates, theta, quads = (
        _replaced(first, rows, cut, second) for first, second in zip(looks, again, strict=True)
    )
    return crops, plates, theta, quads


def _replaced(first: Tensor, rows: Tensor, cut: Tensor, second: Tensor) -> Tensor:
    """The first look, but the second one where its row was cut."""
    mask = cut[rows].view(-1, *[1] * (first.ndim - 1))
    return first.index_copy(0, rows, torch.where(mask, second, first[rows]))


def _look(
    image: Tensor, boxes: Tensor, lines: Tensor, rectify: Rectify, spec: RectifierSpec
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    crops = normalize(crop_boxes(image, boxes, lines, spec), spec)
    chunks = [rectify(chunk) for chunk in torch.split(crops, spec.max_batch_size)]
    theta = torch.cat([part for _, part in chunks])
    quads = quads_from_theta(theta, boxes, lines, spec)
    return crops, torch.cat([plates for plates, _ in chunks]), theta, quads


def normalize(crops: Tensor, spec: RectifierSpec = RECTIFIER) -> Tensor:
    """Turn pixels into the nets' input.

    Args:
        crops: (N, 3, H, W) uint8 or float in [0, 255].
        spec: Mean and standard deviation.

    Returns:
        The same shape, float32, ``(x - mean) / std``.
    """
    return (crops.float() - spec.mean) / spec.std
