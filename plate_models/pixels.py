"""What is done with photos and crops, where they lie.

On the host they are NumPy's arrays, and OpenCV and NumPy work on them; on a GPU, and for nets that
are torch's modules, they are tensors and stay where they are. Torch is imported where there is a
tensor alone: to a process that serves on the CPU it would add 235 MB, and its operators take longer
to begin than most of this work to end.
"""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Lines = NDArray[np.int64]
# Rows or columns of a photo, (S,) ints, and the (samples, S) weights that mix them.
Mix = tuple[NDArray[np.int64], Floats]


def letterbox(
    photo: Any, place: tuple[slice, slice], canvas_hw: tuple[int, int], pad_value: int
) -> Any:
    """Resize a photo (H, W, 3) to its place, rows and columns, on a canvas (3, H, W) uint8."""
    rows, columns = place
    if isinstance(photo, np.ndarray):
        canvas = np.full((3, *canvas_hw), pad_value, np.uint8)
        inside = canvas[:, rows, columns]
        cv2.split(_shrink(photo, *inside.shape[1:]), list(inside))
        return canvas
    import torch.nn.functional as F

    on_device = photo.new_full((3, *canvas_hw), pad_value)
    inside = on_device[:, rows, columns]
    planes = photo.permute(2, 0, 1)[None].float()  # the CUDA kernel takes floating point only
    resized = F.interpolate(planes, inside.shape[1:], mode="bilinear", antialias=True)[0]
    inside.copy_(resized.round().clip(0, 255))
    return on_device


def _shrink(photo: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    while photo.shape[0] >= 2 * height:  # by halves, each pixel the mean of four
        half = max(photo.shape[1] // 2, 1), photo.shape[0] // 2
        photo = np.asarray(cv2.resize(photo, half), np.uint8)
    return np.asarray(cv2.resize(photo, (width, height)), np.uint8)


def mix(photo: Any, rows: Mix, columns: Mix) -> Any:
    """Mix rows and columns of a photo (H, W, 3) uint8: (1, 3, h, w) float32 in [0, 255]."""
    (tops, row_weights), (lefts, column_weights) = rows, columns
    # Narrowed first: rows that are taken by their indices are copied in their whole width.
    near = photo[tops[0] : tops[-1] + 1, lefts[0] : lefts[-1] + 1]
    tops, lefts = tops - tops[0], lefts - lefts[0]
    if isinstance(near, np.ndarray):
        if any((np.diff(axis) != 1).any() for axis in (tops, lefts)):
            near = near[tops[:, None], lefts]
        mixed = row_weights @ near.reshape(len(tops), -1).astype(np.float32)
        planes = mixed.reshape(len(mixed), len(lefts), 3).transpose(2, 0, 1)
        # Copied: matrices with gaps are multiplied number by number.
        return (np.ascontiguousarray(planes) @ column_weights.T)[None]
    tops, lefts, row_weights, column_weights = (
        to_device(array, photo.device) for array in (tops, lefts, row_weights, column_weights)
    )
    near = near.index_select(0, tops).index_select(1, lefts)
    return (row_weights @ near.permute(2, 0, 1).float() @ column_weights.T)[None]


def resample(crops: Any, theta: Any, size_hw: tuple[int, int]) -> Any:
    """Sample crops (N, C, H, W) through theta (N, 2, 3), bilinearly, borders repeated.

    Returns (N, C, h, w) of the crops' type. Of tensors, a gradient flows through both; their theta
    may come from the host.
    """
    if isinstance(crops, np.ndarray):
        return _warp(crops, theta, size_hw)
    import torch.nn.functional as F

    if isinstance(theta, np.ndarray):
        theta = to_device(theta, crops.device)
    size = [crops.shape[0], crops.shape[1], *size_hw]
    grid = F.affine_grid(theta, size, align_corners=False).to(crops.dtype)
    return F.grid_sample(crops, grid, padding_mode="border", align_corners=False)


def _warp(crops: Floats, theta: Floats, size_hw: tuple[int, int]) -> Floats:
    sampled = np.empty((*crops.shape[:2], *size_hw), np.float32)
    (height, width), (h, w) = crops.shape[2:], size_hw
    # From output pixels to [-1, 1], and from there to the crop's pixels.
    enter = np.array([[2 / w, 0, 1 / w - 1], [0, 2 / h, 1 / h - 1], [0, 0, 1]])
    leave = np.array([[width / 2, 0, (width - 1) / 2], [0, height / 2, (height - 1) / 2]])
    for crop, way, planes in zip(crops, theta, sampled, strict=True):
        matrix = leave @ np.vstack((way, (0, 0, 1))) @ enter
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        picture = np.ascontiguousarray(crop.transpose(1, 2, 0))
        seen = cv2.warpAffine(picture, matrix, (w, h), None, flags, cv2.BORDER_REPLICATE)
        planes[:] = seen.transpose(2, 0, 1)
    return sampled


def join(parts: Sequence[Any]) -> Any:
    """One new array of several, along the first axis."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))


def to_host(array: Any, kind: type = np.float32) -> NDArray[Any]:
    """An array of NumPy, float32 or uint8; a tensor is turned into that before it is copied."""
    if isinstance(array, np.ndarray):
        return array.astype(kind, copy=False)
    array = array.byte() if kind is np.uint8 else array.float()
    copied: NDArray[Any] = array.cpu().numpy()
    return copied


def to_device(array: Any, device: Any) -> Any:
    """An array or a tensor as a tensor on one of torch's devices."""
    import torch

    return torch.as_tensor(array, device=device)
