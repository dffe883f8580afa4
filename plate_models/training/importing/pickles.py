"""What a pickle describes, without calling or importing what it names.

The standard library's unpickler in Python takes the pickle apart. Classes stay names, objects
stay inert, and of the calls only those that rebuild tensors are understood; some that describe
no tensor are passed over, and all others are refused.
"""

import io
import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from plate_models.weights import WeightsError

# More than torch can handle; sizes of a million axes would be multiplied for hours.
_MAX_AXES = 128
# Calls found in published checkpoints that describe no tensor: nothing is made of them.
_INERT_CALLS = {
    "__builtin__.set",
    "_codecs.encode",
    "builtins.set",
    "datetime.datetime",
    "numpy._core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy.dtype",
    "pathlib.PosixPath",
    "pathlib._local.PosixPath",
    "pathlib.WindowsPath",
    "pathlib._local.WindowsPath",
    "torch.Size",
    "torch.device",
}
# Torch never writes these: extensions, buffers, and the text of protocol 0.
_FOREIGN = {
    *("EXT1", "EXT2", "EXT4", "BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER", "PERSID", "GET"),
    *("PUT", "INT", "LONG", "FLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE"),
}


# Which values on the stack become keys or members of a set.
_HASHED = {
    **dict.fromkeys(("SETITEMS", "DICT"), slice(None, None, 2)),
    **dict.fromkeys(("ADDITEMS", "FROZENSET"), slice(None)),
    "SETITEM": slice(-2, -1),
}


class CheckpointError(WeightsError):
    """A checkpoint is damaged, hostile, or not of a net that can be imported."""


@dataclass(frozen=True)
class Global:
    """The name of a class or a function, which is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, repr=False)
class Inert:
    """An object whose class was not loaded, and its state as far as it is a dictionary."""

    kind: Global
    attributes: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StorageClaim:
    """Numbers that lie elsewhere in the archive: class of their storage, key, count."""

    kind: Global
    key: str
    numel: int


@dataclass(frozen=True)
class TensorClaim:
    """A view of a storage, as the pickle claims it: nothing is checked or read yet."""

    storage: StorageClaim
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def describe(data: bytes) -> Any:
    """Put together what a pickle describes.

    Returns:
        Python's plain values and containers; `Inert` for objects of other classes, `Global`
        for classes and functions, `TensorClaim` for tensors. Containers may be cyclic.

    Raises:
        CheckpointError: The pickle is damaged, or it wants something called that does
            not belong to tensors; the message names it.
    """
    try:
        return _Reader(io.BytesIO(data)).load()
    except CheckpointError:
        raise
    except Exception as error:  # damaged bytes lead to all kinds
        raise CheckpointError(f"its pickle is damaged: {type(error).__name__}: {error}") from error


class _Reader(pickle._Unpickler):
    """Python's own unpickler, whose every step that would call or hash is overridden."""

    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        return Global(module, name)

    def persistent_load(self, pid: Any) -> Any:
        match pid:
            case ("storage", Global() as kind, str(key), _, numel) if _are_counts(numel):
                return StorageClaim(kind, key, numel)
        raise CheckpointError("its pickle refers to something that is no storage")

    def load_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        self.stack.append(_call(function, arguments))

    def load_newobj(self) -> None:
        arguments, kind = self.stack.pop(), self.stack.pop()
        # Modules are made without arguments; with some, it is a call like any other.
        if not isinstance(kind, Global) or arguments != ():
            raise _refusal(kind)
        self.stack.append(Inert(kind))

    def load_newobj_ex(self) -> None:
        raise _refusal(self.stack[-3])

    def _instantiate(self, kind: Any, _: Any) -> None:  # of OBJ and INST
        raise _refusal(kind)

    def load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Inert):
            # Not copied: a thousand objects may name one large state.
            target.attributes = state if isinstance(state, dict) else {}
        elif not isinstance(target, dict):  # an OrderedDict may have attributes: dropped
            raise _refusal(target)


def _dispatch() -> dict[int, Callable[[Any], None]]:
    """What each opcode does: refused, as `_Reader` says, or as Python's unpickler does it."""
    names = {ord(op.code): op.name for op in pickletools.opcodes}
    steps: dict[int, Callable[[Any], None]] = {}
    for code in range(256):
        name = names.get(code, hex(code))
        if code not in names or name in _FOREIGN:
            steps[code] = partial(_refuse_opcode, name)
            continue
        steps[code] = vars(_Reader).get(f"load_{name.lower()}", pickle._Unpickler.dispatch[code])
        if name in _HASHED:
            steps[code] = partial(_with_plain_keys, steps[code], _HASHED[name])
    return steps


def _with_plain_keys(step: Callable[[Any], None], keys: slice, reader: _Reader) -> None:
    """Let only plain values be hashed: nested tuples could take for ever.

    So could long numbers: any two that differ by a multiple of 2**61 - 1 hash alike.
    """
    items = reader.stack[keys]
    if not all(isinstance(item, str | bytes | int | float | Global | None) for item in items):
        raise CheckpointError("its pickle has keys that are neither names nor numbers")
    if any(isinstance(item, int) and item.bit_length() > 64 for item in items):
        raise CheckpointError("its pickle has numbers of more than 64 bits as keys")
    step(reader)


def _call(function: Any, arguments: Any) -> Any:
    """What a call would have made."""
    if not isinstance(function, Global) or not isinstance(arguments, tuple):
        raise CheckpointError("its pickle calls something that is no function")
    match str(function), arguments:
        case "collections.OrderedDict", ():
            return {}
        case "torch._utils._rebuild_tensor_v2", (StorageClaim() as storage, *view):
            offset, size, stride = view[:3]
            few = len(size) <= _MAX_AXES and len(stride) <= _MAX_AXES
            if few and _are_counts(offset, *size, *stride):
                return TensorClaim(storage, offset, tuple(size), tuple(stride))
        case "torch._utils._rebuild_parameter", (TensorClaim() as tensor, *_):
            return tensor
        case name, _ if name in _INERT_CALLS:
            return Inert(function)
    raise _refusal(function)


def _refusal(wanted: Any) -> CheckpointError:
    return CheckpointError(
        f"its pickle calls {wanted if isinstance(wanted, Global) else 'something nameless'}: "
        "refused, and nothing was run. If you trust the file, save its tensors alone: "
        "torch.save(model.state_dict(), …)"
    )


def _refuse_opcode(name: str, _: Any) -> None:
    raise CheckpointError(f"its pickle is damaged, or not torch's: it has the opcode {name}")


def _are_counts(*values: Any) -> bool:
    return all(type(value) is int and 0 <= value < 2**48 for value in values)


_Reader.dispatch = _dispatch()
