"""What differs between a host and a device: there, to look at a value is to wait for it.

Whatever depends on how many plates there are, the host computes for those plates alone. A
device computes it at a fixed size for rows that may be none, and masks say which count: one
copy comes back at the end, and nothing waits before it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


def host_sees(tensor: Tensor) -> bool:
    """Tell whether values can be looked at for nothing: on the CPU."""
    return tensor.device.type == "cpu"


def upload(photo: Tensor, device: str | torch.device) -> Tensor:
    """Bring a photo to the device where the work is done, without waiting for its arrival.

    Args:
        photo: (H, W, 3) uint8, on the CPU or there already.
        device: Such as "cpu" or "cuda:0".

    Returns:
        The photo on that device; the same tensor if it is there.
    """
    if host_sees(photo) and torch.device(device).type == "cuda":
        # Out of pageable memory the copy would be made by the processor, which waits for it.
        return photo.pin_memory().to(device, non_blocking=True)
    return photo.to(device)


def download(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Bring tensors of one device to the host in a single copy.

    Args:
        tensors: Of any types and shapes.

    Returns:
        The same on the CPU; the tensors themselves if they are there.
    """
    if all(map(host_sees, tensors)):
        return list(tensors)
    flat = [tensor.reshape(-1).view(torch.uint8) for tensor in tensors]
    parts = torch.cat(flat).cpu().split([len(part) for part in flat])
    # Cloned: a view of another type has to begin at a multiple of the type's size.
    return [
        part.clone().view(tensor.dtype).reshape(tensor.shape)
        for part, tensor in zip(parts, tensors, strict=True)
    ]


def rows_that_count(mask: Tensor) -> Tensor:
    """Choose the rows to compute.

    Args:
        mask: (N,) bool, the rows that are wanted.

    Returns:
        int64 indices: on the host of the wanted rows alone, in order. On a device of all N,
        the wanted ones first and in order: to count them would be to wait.
    """
    if host_sees(mask):
        return mask.nonzero()[:, 0]
    return mask.byte().argsort(descending=True, stable=True)


def constant(values: Sequence[Any], like: Tensor) -> Tensor:
    """Take constants as a tensor that is uploaded once, not at each call.

    Args:
        values: Tuples of numbers, however deep.
        like: Whose type and device to take.

    Returns:
        A tensor that others hold as well: not to be written to.
    """
    return _constant(tuple(values), like.dtype, like.device)


@lru_cache(maxsize=128)
def _constant(values: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    # Made outside of inference mode: trainings may meet the same constant later.
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype).to(device)
