"""Torch archives around any pickle, and hostile pickles written opcode by opcode."""

import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import torch

MODULE = b"cx\nM\n)\x81"


def archive(path: Path, data: bytes, storages: dict[str, bytes] | None = None) -> Path:
    """A zip archive as torch writes it, around any pickle."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("archive/data.pkl", data)
        file.writestr("archive/version", "3\n")
        for key, content in (storages or {}).items():
            file.writestr(f"archive/data/{key}", content)
    return path


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def tensor(numel: int, offset: int, size: str, stride: str, kind: str = "FloatStorage") -> bytes:
    """A state dict {"w": tensor}, with whatever a tensor can claim, in opcodes."""

    def numbers(values: str) -> bytes:
        return b"(" + b"".join(number(int(value)) for value in values.split()) + b"t"

    storage = b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + text("0") + text("cpu")
    claim = storage + number(numel) + b"tQ" + number(offset) + numbers(size) + numbers(stride)
    rebuilt = b"ctorch._utils\n_rebuild_tensor_v2\n(" + claim + b"\x89NtR"
    return b"\x80\x02}(" + text("w") + rebuilt + b"u."


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def payloads(canary: Path) -> dict[str, tuple[bytes, str]]:
    """Pickles that would make a file if they were run, with what is refused by name."""
    touch, write = text(f"touch {canary}"), f"open({str(canary)!r}, 'w').close()"
    call = Calls(os.system, f"touch {canary}")
    words = b"(" + text("touch") + text(str(canary)) + b"l"
    imported = b"c__builtin__\n__import__\n" + text("os") + b"\x85R"
    fetched = b"c__builtin__\ngetattr\n" + imported + text("system") + b"\x86R"
    nested = {"model": {"layers": [OrderedDict(weight=Calls(exec, write))]}, "epoch": 1}
    again = Calls(torch.storage._load_from_bytes, pickle.dumps(call))
    built = b"ctorch.nn\nIdentity\n)\x81}" + text("__setstate__") + b"cos\nsystem\nsb"
    return {
        "reduced": (pickle.dumps(call, protocol=2), r"calls posix\.system"),
        "nested": (pickle.dumps(nested, protocol=2), r"calls __builtin__\.exec"),
        "evaluated": (pickle.dumps(Calls(eval, write), protocol=4), r"calls builtins\.eval"),
        "fetched": (
            b"\x80\x02" + fetched + touch + b"\x85R.",
            r"calls __builtin__\.__import__",
        ),
        # Protocol 4 looks up a name with dots attribute by attribute.
        "dotted": (
            b"\x80\x04" + text("posixpath") + text("os.system") + b"\x93" + touch + b"\x85R.",
            r"calls posixpath\.os\.system",
        ),
        "as object": (b"\x80\x02(cos\nsystem\n" + touch + b"o.", r"calls os\.system"),
        "as instance": (b"(" + touch + b"ios\nsystem\n.", r"calls os\.system"),
        "as new object": (
            b"\x80\x02csubprocess\nPopen\n" + words + b"\x85\x81.",
            r"calls subprocess\.Popen",
        ),
        "as new object with keywords": (
            b"\x80\x04csubprocess\nPopen\n)}" + text("args") + words + b"s\x92.",
            r"calls subprocess\.Popen",
        ),
        # An object's own __setstate__, planted by BUILD and called by the next one.
        "built": (b"\x80\x02" + built + touch + b"b.", r"torch\.nn\.Identity holds no tensors"),
        "built on a function": (
            b"\x80\x02cos\nsystem\n" + touch + b"b.",
            r"calls os\.system",
        ),
        "loaded again": (pickle.dumps(again, protocol=2), r"calls torch\.storage\._load_from_byte"),
    }


def modules_named(children: bytes) -> bytes:
    """A module with these children, a dictionary in opcodes."""
    return b"\x80\x02" + MODULE + b"}" + text("_modules") + children + b"sb."


def crowd_of_modules() -> bytes:
    """Thirty levels, each with the same child twice: a billion names from a few bytes."""
    data = b"\x80\x02" + MODULE + b"q\x00"
    for level in range(30):
        child = b"h" + bytes([level])
        pair = b"}(" + text("a") + child + text("b") + child + b"u"
        data += MODULE + b"q" + bytes([level + 1]) + b"}" + text("_modules") + pair + b"sb"
    return data + b"."


def strange_pickles() -> dict[str, tuple[bytes, str]]:
    """Pickles that would take time or memory without end, or that are broken; and the refusals."""
    axes = b"(" + b"J\xff\xff\xff\x7f" + b"2" * 200_000 + b"tq\x05h\x05"
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu")
    many_axes = storage + b"K\x01tQK\x00" + axes + b"\x89NtR."
    keys = b"".join(b"J" + struct.pack("<i", key) + b"N" for key in range(20_000))
    shared = b"\x80\x02}(" + keys + b"uq\x000"
    alike = (key * (2**61 - 1) for key in range(16, 100_000))
    collisions = b"".join(b"\x8a\x0a" + key.to_bytes(10, "little") + b"N" for key in alike)
    wide = b"".join(text(f"{number:0150d}") + b"h\x00" for number in range(9_000))
    long_name = b"B" + struct.pack("<I", 10**6) + bytes(10**6)
    return {
        "module in itself": (
            b"\x80\x02" + MODULE + b"q\x00}" + text("_modules") + b"}" + text("a") + b"h\x00ssb.",
            "nested without end",
        ),
        "crowd of modules": (crowd_of_modules(), "nested without end"),
        # A hundred objects that share one state of twenty thousand keys.
        "crowd of objects": (
            shared + b"cx\nM\nq\x010" + b"h\x01)\x81h\x00b" * 100 + b"N.",
            "found NoneType",
        ),
        # Levels that have the same child under nine thousand names.
        "wide modules": (
            b"\x80\x02" + MODULE + b"q\x00}" + text("_modules") + b"}(" + wide + b"usb.",
            "nested without end",
        ),
        "many axes": (
            b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + many_axes,
            "overflowed with sizes",
        ),
        # Multiples of 2**61 - 1 all hash to 0.
        "numbers that hash alike": (b"\x80\x02}(" + collisions + b"u.", "more than 64 bits"),
        "number for a name": (modules_named(b"}K\x01" + MODULE + b"s"), "that are no names"),
        "long name": (modules_named(b"}" + long_name + MODULE + b"s"), "no names"),
        "class named by tuples": (
            b"\x80\x04)" + b"2\x86" * 28 + b"2\x93.",
            "STACK_GLOBAL requires str",
        ),
        "far memo": (b"\x80\x02}r\xff\xff\xff\xff.", "found an empty one"),
        "keys of tuples": (b"\x80\x02}" + b")" + b"2\x86" * 60 + b"Ns.", "keys that are neither"),
        "items of tuples": (b"\x80\x04\x8f()" + b"2\x86" * 60 + b"\x90.", "never writes"),
        "deep tuple": (b"\x80\x02)" + b"\x85" * 100_000 + b".", "found tuple"),
        "huge string": (b"\x80\x04\x8d" + struct.pack("<Q", 2**50) + b"x.", "can't be read"),
        "huge bytes": (b"\x80\x05\x96" + struct.pack("<Q", 2**50) + b"x.", "never writes"),
        "extension": (b"\x80\x02\x82\x01.", "unregistered extension"),
        "text protocol": (b"(dp0\nS'w'\np1\nI1\ns.", "never writes"),
        "no end": (b"\x80\x02}", "can't be read"),
        "empty": (b"", "can't be read"),
        "empty stack": (b"\x80\x02.", "can't be read"),
        "random": (bytes(range(256)), "can't be read"),
        "item of no list": (b"\x80\x02NNa.", "can't be read"),
        "item of no dictionary": (b"\x80\x02NNNs.", "can't be read"),
        "call of nothing": (b"\x80\x02N)R.", "not callable"),
        "persistent nothing": (b"\x80\x02NQ.", "no storage"),
    }
