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
from PIL import Image

Floats = NDArray[np.float32]
Lines = NDArray[np.int64]
# More source samples per crop pixel than this add nothing but time.
_SAMPLES_PER_PIXEL = 4
# A crop whose dark and bright parts, shares of its pixels, lie closer than so many grey levels is
# stretched until they lie there; closer than noise, they are one part.
_DARK, _BRIGHT, _LITTLE, _NOISE, _STRETCHED = 0.02, 0.98, 110, 3, (25, 225)
# A crop of which half is so bright was overexposed: characters are hardly darker than their ground.
_OVEREXPOSED, _DARKER = 245, 3
# Whole photos are stretched where nothing is darker, as in fog: by night a plate may be brighter
# than nearly everything, and would become white.
_FOG = 60
# Neighbouring rows differ less than rows two apart, 0.6 times as much; where they differ more than
# this share of it, every second one was taken at another moment, as interlaced video has them.
_COMBED = 0.95


def letterbox(
    photo: Any, place: tuple[slice, slice], canvas_hw: tuple[int, int], pad_value: int
) -> Any:
    """Resize a photo (H, W, 3) to its place, rows and columns, on a canvas (3, H, W) uint8."""
    rows, columns = place
    if isinstance(photo, np.ndarray):
        canvas = np.full((3, *canvas_hw), pad_value, np.uint8)
        inside = canvas[:, rows, columns]
        cv2.split(_shrink(photo, *inside.shape[1:]), list(inside))
        inside[:] = lift_contrast(inside[None], _FOG)[0]
        return canvas
    import torch.nn.functional as F

    on_device = photo.new_full((3, *canvas_hw), pad_value)
    inside = on_device[:, rows, columns]
    planes = photo.permute(2, 0, 1)[None].float()  # the CUDA kernel takes floating point only
    resized = F.interpolate(planes, inside.shape[1:], mode="bilinear", antialias=True)[0]
    inside.copy_(lift_contrast(resized[None], _FOG)[0].round().clip(0, 255))
    return on_device


def _shrink(photo: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    while photo.shape[0] >= 2 * height:  # by halves, each pixel the mean of four
        half = max(photo.shape[1] // 2, 1), photo.shape[0] // 2
        photo = np.asarray(cv2.resize(photo, half), np.uint8)
    return np.asarray(cv2.resize(photo, (width, height)), np.uint8)


def crop(photo: Any, box: tuple[float, float, float, float], size_hw: tuple[int, int]) -> Any:
    """Resize a box x0, y0, x1, y1, in pixels of a photo (H, W, 3) uint8, with a triangle filter.

    Beyond the photo its edge is repeated. Returns (1, 3, h, w) float32, whole numbers in [0, 255].
    """
    x0, y0, x1, y1 = box
    rows, top, bottom = _near(y0, y1, size_hw[0], photo.shape[0])
    columns, left, right = _near(x0, x1, size_hw[1], photo.shape[1])
    # Narrowed first: rows that are taken by their indices are copied in their whole width.
    near = _one_field(photo[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])
    apart = rows - rows[0], columns - columns[0]
    gaps = any((np.diff(axis) != 1).any() for axis in apart)
    if isinstance(near, np.ndarray):
        # Copied in any case: Pillow takes rows with gaps ten times as long.
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
    """Pixels (H, W, 3) uint8; of the first field alone where a thing moved between the fields.

    The other one's rows become means of those above and below.
    """
    few = near[:, ::4, 1] * 1.0
    to_next, to_same_field = (abs(few[:-2] - other).sum() for other in (few[1:-1], few[2:]))
    combed = to_next > _COMBED * to_same_field
    if isinstance(near, np.ndarray) and not combed:
        return near
    mended = join([near])
    between = near[:-2:2] / 2 + near[2::2] / 2
    mended[1:-1:2] = between * combed + near[1:-1:2] * ~combed
    return mended


def lift_contrast(crops: Any, least_dark: float = 0.0) -> Any:
    """Stretch pictures (N, 3, h, w) in [0, 255] that have little contrast: by night, in fog.

    Those whose dark parts are darker than `least_dark` stay as they are. Overexposed ones are made
    darker. It is measured without the margin, and the same for all colours. Returns float32, or
    the pictures themselves where none needs it.
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
    little = (spread > _NOISE) & (spread < _LITTLE) & (dark >= least_dark)
    overexposed = (median >= _OVEREXPOSED) & ~little
    lifted = crops
    if not on_host or little.any():  # A device is not waited for.
        low, high = _STRETCHED
        stretched = ((crops - dark) * ((high - low) / spread.clip(_NOISE)) + low).clip(0, 255)
        lifted = stretched * little + crops * ~little
    if not on_host or overexposed.any():
        darker = 255 * (crops * np.float32(1 / 255)) ** _DARKER
        lifted = darker * overexposed + lifted * ~overexposed
    return lifted


def _near(start: float, end: float, samples: int, length: int) -> tuple[NDArray[Any], float, float]:
    """The pixels of an axis around a stretch of it, cut at its length; where it lies on them."""
    scale = max((end - start) / samples, 1e-6)
    reach = max(scale, 1.0)
    step = max(int(scale // _SAMPLES_PER_PIXEL), 1)
    first = int(start - reach) - 1
    source = np.arange(first, int(end + reach) + 2, step)
    begin = (start - first - 0.5) / step + 0.5
    return source.clip(0, length - 1), begin, begin + scale * samples / step


def _triangles(start: float, end: float, samples: int, pixels: int) -> Floats:
    """(samples, pixels): the weights by which pixels are mixed to samples of a stretch of them."""
    scale = (end - start) / samples
    centres = start + scale * np.arange(0.5, samples)
    distances = np.abs(np.arange(0.5, pixels) - centres[:, None])
    weights = np.maximum(0, 1 - distances / max(scale, 1.0))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights.astype(np.float32)


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
    return np.asarray(array.cpu().numpy())


def to_device(array: Any, device: Any) -> Any:
    """An array or a tensor as a tensor on one of torch's devices."""
    import torch

    return torch.as_tensor(array, device=device)
