"""The tensors of a checkpoint: a torch archive or a safetensors file."""

import math
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from plate_models.training.importing.pickles import (
    CheckpointError,
    Global,
    Inert,
    StorageClaim,
    TensorClaim,
    describe,
)

# YOLOv5x, the largest, needs less than one; each byte may become a hundred in memory.
_MAX_PICKLE_BYTES = 4 * 1024 * 1024
_MAX_TENSORS = 10_000
_MAX_DEPTH = 32
_MAX_NAME = 200
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_STORAGES = {
    "torch.DoubleStorage": torch.float64,
    "torch.FloatStorage": torch.float32,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.LongStorage": torch.int64,
    "torch.IntStorage": torch.int32,
    "torch.ShortStorage": torch.int16,
    "torch.CharStorage": torch.int8,
    "torch.ByteStorage": torch.uint8,
    "torch.BoolStorage": torch.bool,
}
# Where trainings put the net; YOLOv5's average, if there is one, is what it validates.
_KEYS = ("ema", "model", "state_dict")

_DAMAGE = (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, SafetensorError)

Claims = dict[str, TensorClaim]


def read_state(path: Path) -> dict[str, Tensor]:
    """Read a net's tensors without running anything the file says.

    Args:
        path: A torch archive (torch 1.6 or newer) with a state dict, a module, or a
            dictionary with one of them under "ema", "model" or "state_dict"; or a
            safetensors file.

    Returns:
        Tensors by name, on the CPU; floating point ones as float32.

    Raises:
        CheckpointError: The file is missing, damaged, hostile or holds no net; the
            message names the file.
    """
    try:
        with path.open("rb") as file:
            head = file.read(16)
        if head.startswith(_ZIP):
            state = _read_archive(path)
        elif head[8:9] == b"{":
            state = load_file(path)
        elif head.startswith(_PICKLE):
            raise CheckpointError(
                "written by torch before 1.6, or a bare pickle: load it where you trust it "
                "and save its state dict again with a newer torch"
            )
        else:
            raise CheckpointError("neither a torch checkpoint nor a safetensors file")
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except _DAMAGE as error:
        raise CheckpointError(f"{path}: can't be read: {error}") from error
    return {k: v.float() if v.is_floating_point() else v for k, v in state.items()}


def _read_archive(path: Path) -> dict[str, Tensor]:
    with zipfile.ZipFile(path) as archive:
        prefix = _check_entries(archive, path.stat().st_size)
        pickle = archive.getinfo(f"{prefix}data.pkl")
        if pickle.file_size > _MAX_PICKLE_BYTES:
            raise CheckpointError(f"its pickle has {pickle.file_size} bytes, too many for a net")
        return _read_tensors(_find_state(describe(archive.read(pickle))), archive, prefix)


def _check_entries(archive: zipfile.ZipFile, size: int) -> str:
    """Check the archive's outline; returns the folder in it that holds everything."""
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    pickles = [name for name in names if name.endswith("data.pkl") and name.count("/") <= 1]
    if len(pickles) != 1 or len(set(names)) != len(names):
        raise CheckpointError(f"expected a zip archive with one data.pkl, found {len(pickles)}")
    prefix = pickles[0].removesuffix("data.pkl")
    if f"{prefix}constants.pkl" in names:
        raise CheckpointError("a TorchScript program: expected a module or a state dict")
    # Torch stores plainly. Whatever unpacks to more than it is can only be meant badly.
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 for entry in entries):
        raise CheckpointError("it has compressed or encrypted entries, which torch never writes")
    claimed = sum(entry.file_size for entry in entries)
    if claimed > size:
        raise CheckpointError(f"its entries claim {claimed} bytes, the file has {size}")
    order = f"{prefix}byteorder"
    if order in names and archive.getinfo(order).file_size < 16 and archive.read(order) == b"big":
        raise CheckpointError("written on a big-endian machine: save it again on another one")
    return prefix


def _find_state(root: Any) -> Claims:
    """Find the net in whatever was saved and name its tensors as its state dict does."""
    found = root
    if isinstance(root, dict):
        found = next((root[key] for key in _KEYS if root.get(key)), root)
    if isinstance(found, Inert):
        return _flatten(found)
    if isinstance(found, dict) and found:
        others = [
            key
            for key, value in found.items()
            if not isinstance(key, str) or not isinstance(value, TensorClaim)
        ]
        if not others:
            return found
        raise CheckpointError(f"expected a module or a state dict, but {others[0]!r:.60} is none")
    raise CheckpointError(f"expected a module or a state dict, found {type(found).__name__}")


def _flatten(module: Inert) -> Claims:
    """Name a module's parameters and buffers as torch names them."""
    claims: Claims = {}
    waiting: list[tuple[str, Any, int]] = [("", module, 0)]
    visited = 0
    while waiting:
        path, current, depth = waiting.pop()
        visited += 1
        # A module may be its own grandchild in what was made to harm.
        if depth > _MAX_DEPTH or max(visited, len(waiting), len(claims)) > _MAX_TENSORS:
            raise CheckpointError("its modules are nested without end")
        for group in ("_parameters", "_buffers"):
            for name, value in _children(current, group):
                if isinstance(value, TensorClaim):
                    claims[f"{path}{name}"] = value
        children = [(f"{path}{k}.", v, depth + 1) for k, v in _children(current, "_modules")]
        waiting += reversed(children)
    if not claims:
        raise CheckpointError(f"{module.kind} holds no tensors: expected a module")
    return claims


def _children(module: Any, group: str) -> list[tuple[str, Any]]:
    children = module.attributes.get(group) if isinstance(module, Inert) else None
    if not isinstance(children, dict):
        return []
    # Names are joined to paths: long ones could fill the memory, and so could many.
    if len(children) > _MAX_TENSORS or any(
        not isinstance(name, str) or len(name) > _MAX_NAME for name in children
    ):
        raise CheckpointError("its modules have names without end, or that are no names")
    return list(children.items())


def _read_tensors(claims: Claims, archive: zipfile.ZipFile, prefix: str) -> dict[str, Tensor]:
    kinds = {name: _dtype_of(claim.storage.kind) for name, claim in claims.items()}
    claimed = sum(math.prod(c.size) * kinds[name].itemsize for name, c in claims.items())
    stored = sum(entry.file_size for entry in archive.infolist())
    # Before anything is allocated: a thousand names for one storage would fill any memory.
    if claimed > stored:
        raise CheckpointError(f"its tensors claim {claimed} bytes, it has {stored}")
    storages: dict[str, Tensor] = {}
    state = {}
    for name, claim in claims.items():
        key = claim.storage.key
        if key not in storages:
            storages[key] = _read_storage(claim.storage, archive, f"{prefix}data/{key}")
        state[name] = _view(claim, storages[key], name)
    return state


def _dtype_of(kind: Global) -> torch.dtype:
    if str(kind) not in _STORAGES:
        raise CheckpointError(f"{kind} is no storage that can be read")
    return _STORAGES[str(kind)]


def _read_storage(storage: StorageClaim, archive: zipfile.ZipFile, entry: str) -> Tensor:
    dtype = _dtype_of(storage.kind)
    expected = storage.numel * dtype.itemsize
    found = archive.NameToInfo[entry].file_size if entry in archive.NameToInfo else None
    if found != expected:
        raise CheckpointError(f"{entry}: expected {expected} bytes, found {found or 'none'}")
    if not expected:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(archive.read(entry)), dtype=dtype)


def _view(claim: TensorClaim, storage: Tensor, name: str) -> Tensor:
    """Check that a tensor lies in its storage, and copy it out."""
    steps = zip(claim.size, claim.stride, strict=False)
    last = claim.offset + sum((size - 1) * stride for size, stride in steps)
    inside = len(claim.size) == len(claim.stride) and last < len(storage)
    if not inside and 0 not in claim.size:
        raise CheckpointError(
            f"{name}: {claim.size} with strides {claim.stride} from {claim.offset} "
            f"lies outside its storage of {len(storage)}"
        )
    view = storage.as_strided(claim.size, claim.stride, claim.offset)
    return view.clone(memory_format=torch.contiguous_format)
