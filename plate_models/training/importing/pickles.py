"""What a pickle describes, without running it.

Unpickling calls whatever the file names. Here the standard library's disassembler reads
the opcodes, and a small stack machine puts together what they describe: classes stay
names, objects stay inert parts, and the only calls are those that rebuild tensors, made
by our own functions. Nothing is imported and nothing of the file's choice is called.
"""

import pickletools
from collections.abc import Callable
from typing import Any

from plate_models.training.importing.claims import (
    CheckpointError,
    Global,
    Inert,
    StorageClaim,
    TensorClaim,
)


def describe(data: bytes) -> Any:
    """Put together what a pickle describes.

    Args:
        data: The pickle, of protocol 2 or newer, as torch writes it into its archives.

    Returns:
        Python's plain values and containers; :class:`Inert` for objects of other
        classes, :class:`Global` for classes and functions, :class:`TensorClaim` for
        tensors. Containers may be cyclic.

    Raises:
        CheckpointError: The pickle is damaged, or it wants something called that does
            not belong to tensors; the message names it.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.stack.pop()
            machine.step(opcode.name, argument)
    except CheckpointError:
        raise
    except Exception as error:  # whatever damaged bytes lead to
        raise CheckpointError(f"its pickle is damaged: {type(error).__name__}: {error}") from error
    raise CheckpointError("its pickle is damaged: it has no end")


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


# More than torch can handle; sizes of a million axes would be multiplied for hours.
_MAX_AXES = 128


def _call(function: Any, arguments: Any) -> Any:
    """What a call would have made."""
    if not isinstance(function, Global) or not isinstance(arguments, tuple):
        raise CheckpointError("its pickle calls something that is no function")
    match str(function), arguments:
        case "collections.OrderedDict", ():
            return {}
        case "torch._utils._rebuild_tensor_v2", (
            StorageClaim() as storage,
            offset,
            size,
            stride,
            *_,
        ):
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


def _are_counts(*values: Any) -> bool:
    return all(type(value) is int and 0 <= value < 2**48 for value in values)


class _Machine:
    """The stack, its marks and the memo of one pickle; methods are opcodes."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        """Do what one opcode says; its argument has been read from the bytes."""
        if opcode in _LITERALS:
            self.stack.append(argument)
        elif opcode in _EMPTY:
            self.stack.append(_EMPTY[opcode]())
        elif opcode in _OPERATIONS:
            _OPERATIONS[opcode](self, argument)
        else:
            raise CheckpointError(f"its pickle has the opcode {opcode}, which torch never writes")

    def mark(self, _: Any) -> None:
        self.marked.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marked.pop()
        return items

    def pop(self, _: Any) -> None:
        self.stack.pop()

    def pop_mark(self, _: Any) -> None:
        self.since_mark()

    def collect(self, kind: Callable[[list[Any]], Any]) -> None:
        items = self.since_mark()
        self.stack.append(kind(items))

    def tuple_of(self, count: int) -> None:
        items = [self.stack.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(items)))

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list | set):
            raise CheckpointError("its pickle fills something that is no list and no set")
        if isinstance(target, list):
            target.extend(items)
        else:
            target.update(_keys(items))

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise CheckpointError("its pickle fills something that is no dictionary")
        target.update(_pairs(items))

    def put(self, index: int | None) -> None:
        self.memo[len(self.memo) if index is None else index] = self.stack[-1]

    def stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        # Never formatted unseen: nested tuples of a few bytes would be words without end.
        if not isinstance(module, str) or not isinstance(name, str):
            raise CheckpointError("its pickle has a class whose name is no text")
        self.stack.append(Global(module, name))

    def reduce(self, _: Any) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        self.stack.append(_call(function, arguments))

    def new_object(self, _: Any) -> None:
        arguments, kind = self.stack.pop(), self.stack.pop()
        # Modules are made without arguments; with some, it is a call like any other.
        if not isinstance(kind, Global) or arguments != ():
            raise _refusal(kind)
        self.stack.append(Inert(kind))

    def build(self, _: Any) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Inert):
            # Not copied: a thousand objects may name one large state.
            target.attributes = state if isinstance(state, dict) else {}
        elif not isinstance(target, dict):  # an OrderedDict may have attributes: dropped
            raise _refusal(target)

    def persistent(self, _: Any) -> None:
        match self.stack.pop():
            case ("storage", Global() as kind, str(key), _, numel) if _are_counts(numel):
                self.stack.append(StorageClaim(kind, key, numel))
            case _:
                raise CheckpointError("its pickle refers to something that is no storage")

    def refuse_object(self, _: Any) -> None:
        raise _refusal(self.since_mark()[0])

    def refuse_instance(self, words: str) -> None:
        raise _refusal(_global(words))

    def refuse_extended(self, _: Any) -> None:
        raise _refusal(self.stack[-3])


def _global(words: str) -> Global:
    return Global(*words.split(" ", 1))


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(_keys(items[::2]), items[1::2], strict=True))


def _keys(items: list[Any]) -> list[Any]:
    """Let only plain values be hashed: nested tuples could take for ever.

    So could long numbers: any two that differ by a multiple of 2**61 - 1 hash alike.
    """
    if not all(isinstance(item, _KEYS) for item in items):
        raise CheckpointError("its pickle has keys that are neither names nor numbers")
    if any(isinstance(item, int) and item.bit_length() > 64 for item in items):
        raise CheckpointError("its pickle has numbers of more than 64 bits as keys")
    return items


_EMPTY: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
}
_KEYS = (str, bytes, int, float, Global, type(None))
_LITERALS = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE"),
    *("BINBYTES", "BINBYTES8", "SHORT_BINBYTES"),
}
_OPERATIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda *_: None,
    "FRAME": lambda *_: None,
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": _Machine.pop_mark,
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "TUPLE": lambda machine, _: machine.collect(tuple),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "LIST": lambda machine, _: machine.collect(list),
    "FROZENSET": lambda machine, _: machine.collect(lambda items: frozenset(_keys(items))),
    "DICT": lambda machine, _: machine.collect(_pairs),
    "APPEND": lambda machine, _: machine.extend([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "ADDITEMS": lambda machine, _: machine.extend(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.set_items(
        [machine.stack.pop(), machine.stack.pop()][::-1]
    ),
    "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "BINGET": lambda machine, index: machine.stack.append(machine.memo[index]),
    "LONG_BINGET": lambda machine, index: machine.stack.append(machine.memo[index]),
    "GLOBAL": lambda machine, words: machine.stack.append(_global(words)),
    "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": _Machine.reduce,
    "NEWOBJ": _Machine.new_object,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.persistent,
    # These call with arguments: refused by name.
    "OBJ": _Machine.refuse_object,
    "NEWOBJ_EX": _Machine.refuse_extended,
    "INST": _Machine.refuse_instance,
}
