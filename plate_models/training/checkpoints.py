"""The tensors of a checkpoint: a torch archive or a safetensors file. No pickle is ever run.

Python's own unpickler takes a pickle apart. Classes stay names, objects stay inert, and of the
calls only those that rebuild tensors are understood; some that describe no tensor are passed
over, and all others are refused. `torch.load(weights_only=True)` needs each class by name, and
hashes each key of a pickle: thirty nested tuples last half a minute, sixty for ever.
"""

import io
import pickle
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file
from torch import Tensor

from plate_models.weights import WeightsError

# YOLOv5x, the largest, needs less than one; each byte may become a hundred in memory.
_MAX_PICKLE_BYTES = 4 * 1024 * 1024
_MAX_NAMES = 20_000
_MAX_PATH = 500
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_NUMBERS = "Double Float Half BFloat16 Long Int Short Char Byte Bool"
_STORAGES = {
    f"torch.{name}Storage": getattr(torch, f"{name}Storage")._dtype for name in _NUMBERS.split()
}
# Calls found in published checkpoints that describe no tensor: nothing is made of them.
_INERT_CALLS = re.compile(
    r"(__builtin__|builtins)\.set|_codecs\.encode|datetime\.datetime|torch\.(Size|device)"
    r"|numpy\.dtype|numpy\._?core\.multiarray\.(_reconstruct|scalar)"
    r"|pathlib\.(_local\.)?(Posix|Windows)Path"
)
# Torch writes none of these. The first takes memory before there is anything to read; what the
# others put together is hashed.
_FOREIGN = (pickle.BYTEARRAY8, pickle.DICT, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)
# Where trainings put the net; YOLOv5's average, if there is one, is what it validates.
_KEYS = ("ema", "model", "state_dict")

State = dict[str, Tensor]


class CheckpointError(WeightsError):
    """A checkpoint is damaged, hostile, or not of a net that can be imported."""


def read_state(path: Path) -> State:
    """Read a net's tensors without running anything the file says.

    Args:
        path: A torch archive (torch 1.6 or newer) with a state dict, a module, or a
            dictionary with one of them under "ema", "model" or "state_dict"; or a
            safetensors file.

    Returns:
        Tensors by name, on the CPU, contiguous; floating point ones as float32.

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
    except Exception as error:  # Damaged bytes lead to all kinds.
        text = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{path}: can't be read: {text:.200}") from error
    floats = {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
    return {k: v.clone(memory_format=torch.contiguous_format) for k, v in floats.items()}


def _read_archive(path: Path) -> State:
    stored = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        found = [name for name in entries if name.endswith("data.pkl") and name.count("/") <= 1]
        if len(found) != 1 or len(entries) != len(archive.infolist()):
            raise CheckpointError(f"expected a zip archive with one data.pkl, found {len(found)}")
        prefix = found[0].removesuffix("data.pkl")
        if f"{prefix}constants.pkl" in entries:
            raise CheckpointError("a TorchScript program: expected a module or a state dict")
        # Torch stores plainly. An archive that unpacks to more than its own size is hostile.
        if any(entry.compress_type or entry.flag_bits & 1 for entry in entries.values()):
            raise CheckpointError("it has compressed or encrypted entries; torch never writes them")
        claimed = sum(entry.file_size for entry in entries.values())
        if claimed > stored:
            raise CheckpointError(f"its entries claim {claimed} bytes, the file has {stored}")
        if (size := entries[found[0]].file_size) > _MAX_PICKLE_BYTES:
            raise CheckpointError(f"its pickle has {size} bytes, too many for a net")
        order = f"{prefix}byteorder"
        if order in entries and archive.read(order) == b"big":
            raise CheckpointError("written on a big-endian machine: save it again on another one")
        state = _find_state(_Reader(archive.read(found[0]), archive, prefix).load())
    claimed = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    # Before anything is copied: a thousand names for one storage would fill any memory.
    if claimed > stored:
        raise CheckpointError(f"its tensors claim {claimed} bytes, it has {stored}")
    return state


@dataclass(frozen=True)
class Name:
    """The name of a class or a function, which is never looked up."""

    path: str

    def __call__(self, *_: Any) -> "Inert":
        """Refuse a call, unless it is one of those that describe no tensor."""
        if not _INERT_CALLS.fullmatch(self.path):
            raise _refusal(self)
        return Inert(self)


@dataclass(eq=False, repr=False)
class Inert:
    """An object whose class was not loaded, and its state as far as it is a dictionary."""

    kind: Name
    attributes: dict[Any, Any] = field(default_factory=dict)


class _Table(dict[Any, Any]):
    """A dictionary with plain keys: to hash nested tuples could take for ever.

    So could long numbers: any two that differ by a multiple of 2**61 - 1 hash alike.
    """

    def __init__(self) -> None:
        super().__init__()

    def __setitem__(self, key: Any, value: Any) -> None:
        small = isinstance(key, int) and key.bit_length() <= 64
        if not small and not isinstance(key, str | bytes | float | Name | None):
            raise CheckpointError("its pickle has keys that are neither names nor small numbers")
        super().__setitem__(key, value)


_CALLS = {
    "collections.OrderedDict": _Table,
    # A view of a storage; a RuntimeError where it would reach beyond.
    "torch._utils._rebuild_tensor_v2": lambda storage, offset, size, stride, *_: storage.as_strided(
        size, stride, offset
    ),
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
}


class _Reader(pickle._Unpickler):
    """Python's unpickler, which neither imports nor calls what a pickle names.

    Not the one in C: that one takes memory for every number that an object may be kept under.
    """

    stack: list[Any]

    def __init__(self, data: bytes, archive: zipfile.ZipFile, prefix: str) -> None:
        super().__init__(io.BytesIO(data))
        self._archive, self._prefix = archive, prefix
        self._storages: dict[tuple[str, torch.dtype], Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        path = f"{module}.{name}"
        return _CALLS.get(path) or _STORAGES.get(path) or Name(path)

    def persistent_load(self, pid: Any) -> Tensor:
        match pid:
            case ("storage", torch.dtype() as dtype, str(key), _, int(numel)):
                pass
            case ("storage", Name() as kind, *_):
                raise CheckpointError(f"{kind.path} is no storage that can be read")
            case _:
                raise CheckpointError("its pickle refers to something that is no storage")
        entry, expected = f"{self._prefix}data/{key}", numel * dtype.itemsize
        info = self._archive.NameToInfo.get(entry)
        if info is None or info.file_size != expected:
            found = info.file_size if info else "none"
            raise CheckpointError(f"{entry}: expected {expected} bytes, found {found}")
        if (key, dtype) not in self._storages:
            data = bytearray(self._archive.read(info))
            empty = torch.empty(0, dtype=dtype)
            self._storages[key, dtype] = torch.frombuffer(data, dtype=dtype) if data else empty
        return self._storages[key, dtype]

    def load_empty_dictionary(self) -> None:
        self.stack.append(_Table())

    def load_newobj(self) -> None:
        arguments, kind = self.stack.pop(), self.stack.pop()
        # Modules are made without arguments; with some, it is a call like any other.
        if not isinstance(kind, Name) or arguments != ():
            raise _refusal(kind)
        self.stack.append(Inert(kind))

    def load_newobj_ex(self) -> None:
        raise _refusal(self.stack[-3])

    def load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Inert):
            # Not copied: a thousand objects may name one large state.
            target.attributes = state if isinstance(state, dict) else {}
        elif not isinstance(target, dict):  # An OrderedDict may have attributes: dropped.
            raise _refusal(target)

    def refuse_opcode(self) -> None:
        raise CheckpointError("its pickle has opcodes that torch never writes")

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **pickle._Unpickler.dispatch,
        pickle.EMPTY_DICT[0]: load_empty_dictionary,
        pickle.NEWOBJ[0]: load_newobj,
        pickle.NEWOBJ_EX[0]: load_newobj_ex,
        pickle.BUILD[0]: load_build,
        **dict.fromkeys((code[0] for code in _FOREIGN), refuse_opcode),
    }


def _refusal(wanted: Any) -> CheckpointError:
    return CheckpointError(
        f"its pickle calls {wanted.path if isinstance(wanted, Name) else 'something nameless'}: "
        "refused, and nothing was run. If you trust the file, save its tensors alone: "
        "torch.save(model.state_dict(), …)"
    )


def _find_state(root: Any) -> State:
    """Find the net in what was saved and name its tensors as its state dict does."""
    kept = [root.get(key) for key in _KEYS] if isinstance(root, dict) else []
    found = next((one for one in kept if isinstance(one, Inert | dict) and one), root)
    if isinstance(found, Inert):
        return _flatten(found)
    if not isinstance(found, dict) or not found:
        kind = "an empty one" if isinstance(found, dict) else type(found).__name__
        raise CheckpointError(f"expected a module or a state dict, found {kind}")
    for key, value in found.items():
        if not (isinstance(key, str) and isinstance(value, Tensor)):
            raise CheckpointError(f"expected a module or a state dict, but {key!r:.60} is none")
    return found


def _flatten(module: Inert) -> State:
    """Name a module's parameters and buffers as torch names them."""
    state: State = {}
    waiting: list[tuple[str, Any]] = [("", module)]
    names_left = _MAX_NAMES
    while waiting:
        path, current = waiting.pop()
        for group in ("_parameters", "_buffers", "_modules"):
            children = current.attributes.get(group) if isinstance(current, Inert) else None
            if not isinstance(children, dict):
                continue
            # A module may be its own grandchild in what was made to harm, and names are joined
            # to paths: long ones could fill the memory, and so could many.
            names_left -= len(children)
            named = all(isinstance(name, str) and len(name) <= _MAX_PATH for name in children)
            if names_left < 0 or len(path) > _MAX_PATH or not named:
                raise CheckpointError("its modules are nested without end, or have no names")
            if group == "_modules":
                waiting += [(f"{path}{name}.", child) for name, child in children.items()]
            else:
                state |= {f"{path}{k}": v for k, v in children.items() if isinstance(v, Tensor)}
    if not state:
        raise CheckpointError(f"{module.kind.path} holds no tensors: expected a module")
    return state
