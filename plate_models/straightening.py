"""What follows from the rectifier's theta: straight plates, their rows, their corners.

Theta maps output to input coordinates, both in [-1, 1] with pixel edges at the ends
(`torch.nn.functional.affine_grid`, ``align_corners=False``).
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from plate_models.devices import constant
from plate_models.geometry import box_xyxy_to_cxcywh, widen_boxes
from plate_models.spec import RECTIFIER, RectifierSpec


def resample(crops: Tensor, theta: Tensor, size_hw: tuple[int, int]) -> Tensor:
    """Look at crops through an affine transform, bilinearly, borders repeated.

    Args:
        crops: (N, 3, H, W) float.
        theta: (N, 2, 3) float, output to input coordinates, both in [-1, 1] with pixel
            edges at the ends (``align_corners=False``).
        size_hw: (h, w) of the output.

    Returns:
        (N, 3, h, w) of the crops' type.
    """
    size = [crops.shape[0], crops.shape[1], *size_hw]
    # What exporters know as one operator; it makes its frame anew in each call.
    grid = F.affine_grid(theta, size, align_corners=False).to(crops.dtype)
    return F.grid_sample(crops, grid, padding_mode="border", align_corners=False)


def look_through(crops: Tensor, theta: Tensor, size_hw: tuple[int, int]) -> Tensor:
    """Do what :func:`resample` does, outside of nets, where it may keep the frame.

    Args:
        crops: See :func:`resample`.
        theta: See :func:`resample`.
        size_hw: See :func:`resample`.

    Returns:
        See :func:`resample`; to rounding the same.
    """
    grid = theta.to(crops.dtype) @ _frame(size_hw, crops.dtype, crops.device)
    grid = grid.unflatten(2, size_hw).permute(0, 2, 3, 1)
    return F.grid_sample(crops, grid, padding_mode="border", align_corners=False)


@lru_cache(maxsize=16)
def _frame(size_hw: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """(3, h * w): x, y and 1 for the middle of each pixel, in [-1, 1] of the frame."""
    # Made outside of inference mode: trainings may meet the same frame later.
    with torch.inference_mode(False):
        y, x = ((torch.arange(n, device=device) * 2 + 1) / n - 1 for n in size_hw)
        rows, columns = torch.meshgrid(y, x, indexing="ij")
        return torch.stack((columns, rows, torch.ones_like(rows))).flatten(1).to(dtype)


def shown_pixels(crops: Tensor, theta: Tensor, spec: RectifierSpec = RECTIFIER) -> Tensor:
    """Straighten plates for people to look at.

    Args:
        crops: (N, 3, H, W) float, normalised.
        theta: (N, 2, 3) float, as the rectifier gives it.
        spec: Size of the pictures, and how the crops were normalised.

    Returns:
        (N, h, w, 3) uint8 RGB in [0, 255].
    """
    shown = look_through(crops, theta, spec.shown_hw).mul_(spec.std).add_(spec.mean)
    return shown.round_().clamp_(0, 255).to(torch.uint8).permute(0, 2, 3, 1)


def row_thetas(theta: Tensor, spec: RectifierSpec = RECTIFIER) -> Tensor:
    """Narrow the transforms of whole plates to their rows.

    Args:
        theta: (N, 2, 3) float, of two-line plates, as the rectifier gives it.
        spec: Which shares of a plate's height make a row.

    Returns:
        (2N, 2, 3) float: each plate's upper row, then its lower row.
    """
    # A row's height and middle, in the frame's [-1, 1].
    narrowing = constant(
        tuple(
            ((1, 0, 0), (0, end - start, start + end - 1), (0, 0, 1))
            for start, end in spec.row_spans
        ),
        theta,
    )
    return (theta[:, None] @ narrowing[None]).flatten(0, 1)


def sample_rows(crops: Tensor, theta: Tensor, spec: RectifierSpec = RECTIFIER) -> Tensor:
    """Straighten the rows of two-line plates.

    Args:
        crops: (N, 3, H, W) float.
        theta: (N, 2, 3) float, as the rectifier gives it.
        spec: Which shares of a plate's height make a row, and a row's size.

    Returns:
        (2N, 3, h, w): each plate's upper row, then its lower row.
    """
    if not len(crops):
        return crops.new_zeros((0, crops.shape[1], *spec.rectified_hw))
    twice = crops.repeat_interleave(len(spec.row_spans), dim=0)
    return look_through(twice, row_thetas(theta, spec), spec.rectified_hw)


def corners_in_crop(theta: Tensor) -> Tensor:
    """Map the rectified frame's corners into the crop.

    Args:
        theta: (N, 2, 3) float.

    Returns:
        (N, 4, 2) float, TL, TR, BR, BL in [-1, 1] of the crop's width and height.
    """
    frame = constant(((-1, -1, 1), (1, -1, 1), (1, 1, 1), (-1, 1, 1)), theta)
    return frame @ theta.transpose(1, 2)


def quads_from_theta(
    theta: Tensor,
    boxes_xyxy: Tensor,
    lines: Tensor | None = None,
    spec: RectifierSpec = RECTIFIER,
) -> Tensor:
    """Corners of the rectified plates, in the photo.

    Args:
        theta: (N, 2, 3) float, output to input coordinates, both in [-1, 1]
            (`torch.nn.functional.affine_grid`, ``align_corners=False``).
        boxes_xyxy: (N, 4) float in photo pixels, as given to `crop_boxes`.
        lines: As given to `crop_boxes`.
        spec: Margins of the crops.

    Returns:
        (N, 4, 2) float in photo pixels: top left, top right, bottom right, bottom
        left of the plate's own orientation.
    """
    in_crop = corners_in_crop(theta)
    region = widen_boxes(boxes_xyxy.to(theta.dtype), lines, spec)
    region = box_xyxy_to_cxcywh(region).unsqueeze(1)  # (N, 1, 4)
    return region[..., :2] + in_crop * region[..., 2:] / 2


def hulls_of(quads: Tensor) -> Tensor:
    """(N, 4) x0, y0, x1, y1: the smallest boxes around (N, 4, 2) quads."""
    return torch.cat((quads.amin(dim=1), quads.amax(dim=1)), dim=1)


def reach_of(theta: Tensor) -> Tensor:
    """How far plates reach from the middle of their crops towards the edge.

    Args:
        theta: (N, 2, 3) float, see :func:`quads_from_theta`.

    Returns:
        (N,) float; 1 if a corner lies on the crop's edge.
    """
    return corners_in_crop(theta).abs().amax(dim=(1, 2))
