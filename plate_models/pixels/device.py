"""Photos and crops that are tensors of torch: they stay on their device."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from plate_models.pixels.host import Floats, Mix, OnHost, corner_of


class OnDevice(OnHost):
    """The operations of `OnHost` on tensors of torch; weights and theta come from the host."""

    @staticmethod
    def letterbox(
        photo: Tensor, inside_hw: tuple[int, int], canvas_hw: tuple[int, int], pad_value: int
    ) -> Tensor:
        """Resize a photo as `OnHost` does, in floating point."""
        canvas = photo.new_full((3, *canvas_hw), pad_value)
        top, left = corner_of(inside_hw, canvas_hw)
        planes = photo.permute(2, 0, 1)[None].float()  # the CUDA kernel takes floating point only
        resized = F.interpolate(planes, inside_hw, mode="bilinear", antialias=True)[0]
        inside = canvas[:, top : top + inside_hw[0], left : left + inside_hw[1]]
        inside.copy_(OnDevice.to_bytes(resized))
        return canvas

    @staticmethod
    def mix(photo: Tensor, rows: Mix, columns: Mix) -> Tensor:
        """Mix rows and columns with weights from the host."""
        ((tops, row_weights), (lefts, column_weights)) = (
            [torch.from_numpy(part).to(photo.device) for part in axis] for axis in (rows, columns)
        )
        # Narrowed first: rows that are taken by their indices are copied in their whole width.
        left, top = int(columns[0][0]), int(rows[0][0])
        near = photo[top : int(rows[0][-1]) + 1, left : int(columns[0][-1]) + 1]
        near = near.index_select(0, tops - top).index_select(1, lefts - left)
        return (row_weights @ near.permute(2, 0, 1).float() @ column_weights.T)[None]

    @staticmethod
    def resample(crops: Tensor, theta: Floats, size_hw: tuple[int, int]) -> Tensor:
        """Sample crops through theta from the host."""
        return resample(crops, torch.from_numpy(theta).to(crops.device), size_hw)

    @staticmethod
    def join(parts: Sequence[Tensor]) -> Tensor:
        """Join along the first axis."""
        return torch.cat(list(parts))

    @staticmethod
    def to_floats(crops: Tensor, mean: float, std: float) -> Tensor:
        """Pixels as the nets take them."""
        return (crops.float() - mean) / std

    @staticmethod
    def to_bytes(numbers: Tensor) -> Tensor:
        """Round to uint8."""
        return numbers.round().clamp(0, 255).to(torch.uint8)

    @staticmethod
    def to_host(array: Tensor) -> NDArray[Any]:
        """Copy to the host."""
        host: NDArray[Any] = array.cpu().numpy()
        return host

    @staticmethod
    def from_dlpack(tensor: Any, like: Tensor) -> Tensor:
        """View a tensor, moved to the device of `like` if it is elsewhere."""
        found: Tensor = from_dlpack(tensor)
        return found.to(like.device)


def resample(crops: Tensor, theta: Tensor, size_hw: tuple[int, int]) -> Tensor:
    """Sample crops (N, C, H, W) through theta (N, 2, 3), bilinearly, borders repeated.

    Returns (N, C, h, w) of the crops' type; a gradient flows through both.
    """
    size = [crops.shape[0], crops.shape[1], *size_hw]
    grid = F.affine_grid(theta, size, align_corners=False).to(crops.dtype)
    return F.grid_sample(crops, grid, padding_mode="border", align_corners=False)
