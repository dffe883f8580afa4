"""A device that isn't there: tensors that lie on the CPU, say otherwise, and are watched.

It computes what a GPU would compute and writes down what is copied to the host. Tensors of two
devices in one operation are refused, as CUDA refuses them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

DEVICE = torch.device("privateuseone:0")


@cache
def _register() -> None:
    _setup_privateuseone_for_python_backend()


class OnDevice(Tensor):
    """A tensor that says it is on the device.

    Attributes:
        inner: Its values.
    """

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "OnDevice":
        _register()
        # Ordinary tensors even in inference mode: torch refuses views across the two kinds.
        with torch.inference_mode(False):
            return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
                cls,
                inner.shape,
                strides=inner.stride(),
                storage_offset=inner.storage_offset(),
                dtype=inner.dtype,
                device=DEVICE,
            )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnDevice({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{op} outside of Watch")


class Watch(TorchDispatchMode):
    """Carries out what the device is to do.

    Attributes:
        copied: Type and shape of each tensor that was copied to the host, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        _register()
        self.copied: list[tuple[torch.dtype, tuple[int, ...]]] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, given)) if isinstance(leaf, Tensor)]
        there = [isinstance(tensor, OnDevice) for tensor in tensors]
        target = given.get("device")
        to_device = target is not None and torch.device(target).type == DEVICE.type
        if not any(there) and not to_device:
            return op(*args, **given)
        if op._can_decompose():  # what inference mode hands over in one piece
            with self:
                return op.decompose(*args, **given)
        if to_device:
            given["device"] = torch.device("cpu")
        name = op.overloadpacket.__name__
        to_host = name in ("_local_scalar_dense", "is_nonzero", "equal") or (
            target is not None and not to_device
        )
        if to_host:
            self.copied += [(t.dtype, tuple(t.shape)) for t in tensors if isinstance(t, OnDevice)]
        elif not to_device and any(
            t.ndim for t, is_there in zip(tensors, there, strict=True) if not is_there
        ):
            raise RuntimeError(f"{name}: tensors on the host and on the device in one operation")
        found = op(*tree_map(_inner, args), **tree_map(_inner, given))
        if to_host:
            return found
        if op._schema.is_mutable and isinstance(args[0], OnDevice):
            return args[0]
        return tree_map(lambda leaf: OnDevice(leaf) if isinstance(leaf, Tensor) else leaf, found)


def _inner(leaf: Any) -> Any:
    return leaf.inner if isinstance(leaf, OnDevice) else leaf


def on_device(net: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Move a net there: it is a pure graph, and takes and gives what is on the device."""

    def run(tensor: Tensor) -> Any:
        if not isinstance(tensor, OnDevice):
            raise RuntimeError("the net is on the device, and its input is on the host")
        return tree_map(OnDevice, net(tensor.inner))

    return run


@contextmanager
def watch() -> Iterator[Watch]:
    """Have a device for a while."""
    with torch.no_grad(), Watch() as watcher:
        yield watcher
