"""Operations on photos and crops, done on the device that stores them.

On the host they are NumPy arrays, processed by OpenCV and NumPy; on a GPU, and for nets that are
torch modules, they are tensors and stay on their device. Torch is imported only for tensors: it
would add 235 MB to a process that serves on the CPU, and starting one of its operators takes longer
than most of these operations.
"""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

Floats = NDArray[np.float32]
Lines = NDArray[np.int64]
# More source samples per crop pixel than this take time and don't improve the crop.
_SAMPLES_PER_PIXEL = 4
# A picture's dark and bright levels are these quantiles of its values. If they are more than _NOISE
# but less than _LOW_CONTRAST apart, its contrast is stretched until they are at _STRETCHED.
_DARK, _BRIGHT, _LOW_CONTRAST, _NOISE, _STRETCHED = 0.02, 0.98, 110, 3, (25, 225)
# A picture with at least this median is overexposed: its characters are hardly darker than the
# ground. It is darkened by raising its values, as shares of 255, to the power _GAMMA.
_OVEREXPOSED, _GAMMA = 245, 3
# A whole photo is stretched only if its dark level is at least this, as in fog. At night, a plate
# may be brighter than nearly all of the photo, and stretching would turn it white.
_FOG = 60
# Neighbouring rows usually differ 0.6 times as much as rows two apart. Above this ratio, odd and
# even rows were exposed at different moments, as in interlaced video of a moving object.
_COMBED = 0.95


def letterbox(
    photo: Any, place: tuple[slice, slice], canvas_hw: tuple[int, int], pad_value: int
) -> Any:
    """Make a canvas (3, H, W) uint8; fit the photo (H, W, 3) into `place`, rows and columns."""
    rows, columns = place
    if isinstance(photo, np.ndarray):
        canvas = np.full((3, *canvas_hw), pad_value, np.uint8)
        inside = canvas[:, rows, columns]
        cv2.split(_shrink(photo, *inside.shape[1:]), list(inside))
        inside[:] = stretch_contrast(inside[None], _FOG)[0]
        return canvas
    import torch.nn.functional as F

    on_device = photo.new_full((3, *canvas_hw), pad_value)
    inside = on_device[:, rows, columns]
    planes = photo.permute(2, 0, 1)[None].float()  # the CUDA kernel takes floating point only
    resized = F.interpolate(planes, inside.shape[1:], mode="bilinear", antialias=True)[0]
    inside.copy_(stretch_contrast(resized[None], _FOG)[0].round().clip(0, 255))
    return on_device


def _shrink(photo: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    while photo.shape[0] >= 2 * height:  # halve it: each pixel becomes the mean of four
        half = max(photo.shape[1] // 2, 1), photo.shape[0] // 2
        photo = np.asarray(cv2.resize(photo, half), np.uint8)
    return np.asarray(cv2.resize(photo, (width, height)), np.uint8)


def crop(photo: Any, box: tuple[float, float, float, float], size_hw: tuple[int, int]) -> Any:
    """Cut a box x0, y0, x1, y1 out of a photo (H, W, 3) uint8; resize it with a triangle filter.

    The box is in photo pixels; outside the photo its edge pixels are repeated. Returns
    (1, 3, h, w) float32, whole numbers in [0, 255].
    """
    x0, y0, x1, y1 = box
    rows, top, bottom = _axis(y0, y1, size_hw[0], photo.shape[0])
    columns, left, right = _axis(x0, x1, size_hw[1], photo.shape[1])
    # Slice first: indexing by arrays of rows copies these in their full width.
    near = _one_field(photo[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])
    apart = rows - rows[0], columns - columns[0]
    gaps = any((np.diff(axis) != 1).any() for axis in apart)
    if isinstance(near, np.ndarray):
        # Copy in any case: Pillow is ten times slower if rows are not contiguous in memory.
        near = near[np.ix_(*apart)] if gaps else np.ascontiguousarray(near)
        place = left, top, right, bottom
        picture = Image.fromarray(near).resize(size_hw[::-1], Image.Resampling.BILINEAR, place)
        return np.asarray(picture, np.float32).transpose(2, 0, 1)[None]
    for axis, places in enumerate(apart if gaps else ()):
        near = near.index_select(axis, to_device(places, near.device))
    down, across = (
        to_device(_triangles(*axis), photo.device)
        for axis in ((top, bottom, size_hw[0], len(rows)), (left, right, size_hw[1], len(columns)))
    )
    mixed = down @ near.permute(2, 0, 1).float() @ across.T
    return mixed.round().clip(0, 255)[None]


def _one_field(near: Any) -> Any:
    """Deinterlace pixels (H, W, 3) uint8 if an object moved between the two fields.

    Rows of the second field are replaced by the means of the rows above and below them.
    """
    green = near[:, ::4, 1] * 1.0
    to_next, to_same_field = (abs(green[:-2] - other).sum() for other in (green[1:-1], green[2:]))
    combed = to_next > _COMBED * to_same_field
    if isinstance(near, np.ndarray) and not combed:
        return near
    deinterlaced = concatenate([near])
    between = near[:-2:2] / 2 + near[2::2] / 2
    deinterlaced[1:-1:2] = between * combed + near[1:-1:2] * ~combed
    return deinterlaced


def stretch_contrast(crops: Any, least_dark: float = 0.0) -> Any:
    """Stretch the contrast of pictures (N, 3, h, w) in [0, 255] that have little: by night, in fog.

    Pictures whose dark level is below `least_dark` are not stretched. Overexposed pictures are
    darkened. Levels are measured without the margins and over all colours together. Returns
    float32, or the input itself if it is on the host and no picture needs a change.
    """
    height, width = crops.shape[2:]
    step = max(height // 32, 1)
    rows = slice(height // 6, -(height // 6) or None, step)
    columns = slice(width // 8, -(width // 8) or None, step)
    middle = crops[:, :, rows, columns].reshape(len(crops), -1) * np.float32(1)
    ranks = [round(share * (middle.shape[1] - 1)) for share in (_DARK, 0.5, _BRIGHT)]
    if on_host := isinstance(crops, np.ndarray):
        ordered: Any = np.partition(middle, ranks, axis=1)
    else:
        ordered = middle.sort(dim=1).values
    dark, median, bright = (ordered[:, rank, None, None, None] for rank in ranks)
    spread = bright - dark
    flat = (spread > _NOISE) & (spread < _LOW_CONTRAST) & (dark >= least_dark)
    overexposed = (median >= _OVEREXPOSED) & ~flat
    lifted = crops
    if not on_host or flat.any():  # On a device, `any` would have to wait for it.
        low, high = _STRETCHED
        stretched = ((crops - dark) * ((high - low) / spread.clip(_NOISE)) + low).clip(0, 255)
        lifted = stretched * flat + crops * ~flat
    if not on_host or overexposed.any():
        darker = 255 * (crops * np.float32(1 / 255)) ** _GAMMA
        lifted = darker * overexposed + lifted * ~overexposed
    return lifted


def _axis(start: float, end: float, samples: int, length: int) -> tuple[NDArray[Any], float, float]:
    """Pixel indices that cover an interval of an axis, clipped; the interval's bounds on them."""
    scale = max((end - start) / samples, 1e-6)
    reach = max(scale, 1.0)
    step = max(int(scale // _SAMPLES_PER_PIXEL), 1)
    first = int(start - reach) - 1
    source = np.arange(first, int(end + reach) + 2, step)
    begin = (start - first - 0.5) / step + 0.5
    return source.clip(0, length - 1), begin, begin + scale * samples / step


def _triangles(start: float, end: float, samples: int, pixels: int) -> Floats:
    """(samples, pixels) weights of a triangle filter that resamples an interval of the pixels."""
    scale = (end - start) / samples
    centres = start + scale * np.arange(0.5, samples)
    distances = np.abs(np.arange(0.5, pixels) - centres[:, None])
    weights = np.maximum(0, 1 - distances / max(scale, 1.0))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights.astype(np.float32)


def resample(crops: Any, theta: Any, size_hw: tuple[int, int]) -> Any:
    """Sample crops (N, C, H, W) through theta (N, 2, 3): bilinear, border pixels repeated.

    Returns (N, C, h, w) of the crops' type. If crops and theta are tensors, gradients flow through
    both; theta may also be an array on the host.
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
    # Matrices from output pixels to [-1, 1], and from [-1, 1] to the crop's pixels.
    enter = np.array([[2 / w, 0, 1 / w - 1], [0, 2 / h, 1 / h - 1], [0, 0, 1]])
    leave = np.array([[width / 2, 0, (width - 1) / 2], [0, height / 2, (height - 1) / 2]])
    for crop, affine, planes in zip(crops, theta, sampled, strict=True):
        matrix = leave @ np.vstack((affine, (0, 0, 1))) @ enter
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        picture = np.ascontiguousarray(crop.transpose(1, 2, 0))
        warped = cv2.warpAffine(picture, matrix, (w, h), None, flags, cv2.BORDER_REPLICATE)
        planes[:] = warped.transpose(2, 0, 1)
    return sampled


def concatenate(parts: Sequence[Any]) -> Any:
    """Concatenate arrays or tensors along the first axis."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))


def to_host(array: Any, kind: type = np.float32) -> NDArray[Any]:
    """Convert to a NumPy array, float32 or uint8; a tensor is converted before it is copied."""
    if isinstance(array, np.ndarray):
        return array.astype(kind, copy=False)
    array = array.byte() if kind is np.uint8 else array.float()
    return np.asarray(array.cpu().numpy())


def to_device(array: Any, device: Any) -> Any:
    """Convert an array or a tensor to a tensor on a torch device."""
    import torch

    return torch.as_tensor(array, device=device)
