"""Photos and crops that are arrays of NumPy: with NumPy and OpenCV, on the host."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
# Rows or columns of a photo, (S,) ints, and the (samples, S) weights that mix them.
Mix = tuple[NDArray[np.int64], Floats]


class OnHost:
    """Operations on NumPy arrays; pictures are (H, W, 3) uint8, crops (N, 3, H, W) float32."""

    @staticmethod
    def letterbox(
        photo: Any, inside_hw: tuple[int, int], canvas_hw: tuple[int, int], pad_value: int
    ) -> Any:
        """Resize a photo, averaging, into the middle of a canvas, (3, H, W) uint8."""
        canvas = np.full((3, *canvas_hw), pad_value, np.uint8)
        top, left = corner_of(inside_hw, canvas_hw)
        inside = canvas[:, top : top + inside_hw[0], left : left + inside_hw[1]]
        cv2.split(_shrink(photo, inside_hw), list(inside))
        return canvas

    @staticmethod
    def mix(photo: Any, rows: Mix, columns: Mix) -> Any:
        """Mix rows and columns of a photo: (1, 3, h, w) float32 in [0, 255]."""
        (tops, row_weights), (lefts, column_weights) = rows, columns
        near = photo[tops[0] : tops[-1] + 1, lefts[0] : lefts[-1] + 1]
        if near.shape[:2] != (len(tops), len(lefts)):
            near = photo[tops[:, None], lefts]
        mixed = row_weights @ near.reshape(len(tops), -1).astype(np.float32)
        planes = mixed.reshape(len(mixed), len(lefts), 3).transpose(2, 0, 1)
        return (planes @ column_weights.T)[None]

    @staticmethod
    def resample(crops: Any, theta: Floats, size_hw: tuple[int, int]) -> Any:
        """Sample crops through theta (N, 2, 3), bilinearly, borders repeated: (N, 3, h, w)."""
        sampled = np.empty((len(crops), crops.shape[1], *size_hw), np.float32)
        (height, width), (h, w) = crops.shape[2:], size_hw
        # From output pixels to [-1, 1], and from there to the crop's pixels.
        enter = np.array([[2 / w, 0, 1 / w - 1], [0, 2 / h, 1 / h - 1], [0, 0, 1]])
        for crop, way, planes in zip(crops, theta, sampled, strict=True):
            matrix = way @ enter
            matrix[:, 2] += 1
            matrix = matrix * [[width / 2], [height / 2]] - [[0, 0, 0.5]]
            flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
            picture = np.ascontiguousarray(crop.transpose(1, 2, 0))
            seen = cv2.warpAffine(picture, matrix, (w, h), None, flags, cv2.BORDER_REPLICATE)
            planes[:] = seen.transpose(2, 0, 1)
        return sampled

    @staticmethod
    def join(parts: Sequence[Any]) -> Any:
        """One array of several, along the first axis; always a new one."""
        return np.concatenate(parts)

    @staticmethod
    def to_floats(crops: Any, mean: float, std: float) -> Any:
        """Pixels as float32, less the mean, as multiples of the standard deviation."""
        return (crops.astype(np.float32) - np.float32(mean)) / np.float32(std)

    @staticmethod
    def to_bytes(numbers: Any) -> Any:
        """Round to uint8, at most 255 and at least 0."""
        return np.rint(numbers).clip(0, 255).astype(np.uint8)

    @staticmethod
    def to_host(array: Any) -> NDArray[Any]:
        """As an array of NumPy."""
        return np.asarray(array)

    @staticmethod
    def from_dlpack(tensor: Any, like: Any) -> Any:
        """View what another library has as an array, on the device of `like`."""
        del like
        return np.from_dlpack(tensor)


def corner_of(inside_hw: tuple[int, int], canvas_hw: tuple[int, int]) -> tuple[int, int]:
    """Row and column where a picture in the middle of a canvas begins."""
    return (canvas_hw[0] - inside_hw[0]) // 2, (canvas_hw[1] - inside_hw[1]) // 2


def _shrink(photo: NDArray[np.uint8], size_hw: tuple[int, int]) -> NDArray[np.uint8]:
    height, width = size_hw
    while photo.shape[0] >= 2 * height:
        half = photo.shape[1] // 2, photo.shape[0] // 2
        photo = np.asarray(cv2.resize(photo, half, interpolation=cv2.INTER_AREA), np.uint8)
    return np.asarray(cv2.resize(photo, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)
