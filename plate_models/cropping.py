"""Crops of many boxes at once, on a device: what `geometry` cuts one by one on the host.

A large box has more pixels than a small one, so the host takes as many samples as each box
needs. Here every box takes as many as the largest could, and what a box does not need weighs
nothing: sizes then depend on no value, which the host would have to wait for.
"""

import torch
from torch import Tensor


def cut_regions(
    image: Tensor, regions: Tensor, size_hw: tuple[int, int], samples_per_pixel: int
) -> Tensor:
    """Cut regions out of a photo and resize them with a triangle filter.

    Args:
        image: (H, W, 3) uint8 RGB in [0, 255].
        regions: (N, 4) float64 x0, y0, x1, y1 in its pixels, however far beyond its edges.
        size_hw: (h, w) of the crops.
        samples_per_pixel: From this many source pixels per pixel of a crop on, only every
            second, third … is taken.

    Returns:
        (N, 3, h, w) float32 in [0, 255].
    """
    (height, width), (x0, y0, x1, y1) = image.shape[:2], regions.unbind(1)
    rows, row_weights = _resampling(y0, y1, size_hw[0], height, samples_per_pixel)
    columns, column_weights = _resampling(x0, x1, size_hw[1], width, samples_per_pixel)
    pixels = image[rows[:, :, None], columns[:, None, :]]  # (N, rows, columns, 3)
    planes = pixels.permute(0, 3, 1, 2).float()
    return row_weights[:, None] @ planes @ column_weights.transpose(1, 2)[:, None]


def _resampling(
    start: Tensor, end: Tensor, samples: int, length: int, samples_per_pixel: int
) -> tuple[Tensor, Tensor]:
    """Source indices (N, S) of one axis and the weights (N, samples, S) that mix them."""
    device = start.device
    scale = ((end - start) / samples).clamp(min=1e-6)  # (N,)
    reach = scale.clamp(min=1)
    step = (scale // samples_per_pixel).clamp(min=1)
    # A step takes in up to twice that many samples before it grows; the filter reaches one
    # pixel of the crop beyond each end, and 4 are for rounding.
    count = 2 * samples_per_pixel * (samples + 2) + 4
    source = ((start - reach).trunc() - 1)[:, None] + step[:, None] * torch.arange(
        count, device=device
    )
    middles = torch.arange(samples, device=device, dtype=torch.float32) + 0.5
    centres = start.float()[:, None] + middles * scale.float()[:, None]
    distance = (source.float()[:, None] + 0.5 - centres[:, :, None]).abs()
    weights = (1 - distance / reach.float()[:, None, None]).clamp(min=0)
    return source.clamp(0, length - 1).long(), weights / weights.sum(dim=2, keepdim=True)
