"""Checkpoints made to harm are refused by name, and nothing in them is run."""

import os
import pickle
import struct
import time
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_archives import archive, text

from plate_models.training.importing import CheckpointError, import_yolov5
from plate_models.training.importing.checkpoints import read_state


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "executed"


def reduced(path: Path) -> bytes:
    return pickle.dumps(Calls(os.system, f"touch {path}"), protocol=2)


def nested(path: Path) -> bytes:
    inner = OrderedDict(weight=Calls(exec, f"open({str(path)!r}, 'w').close()"))
    return pickle.dumps({"model": {"layers": [inner]}, "epoch": 1}, protocol=2)


def evaluated(path: Path) -> bytes:
    return pickle.dumps(Calls(eval, f"open({str(path)!r}, 'w').close()"), protocol=4)


def fetched(path: Path) -> bytes:
    """getattr(__import__("os"), "system")("touch …"), by opcodes alone."""
    module = b"c__builtin__\n__import__\n" + text("os") + b"\x85R"
    function = b"c__builtin__\ngetattr\n" + module + text("system") + b"\x86R"
    return b"\x80\x02" + function + text(f"touch {path}") + b"\x85R."


def dotted(path: Path) -> bytes:
    """A name with dots, which protocol 4 looks up attribute by attribute."""
    function = text("posixpath") + text("os.system") + b"\x93"
    return b"\x80\x04" + function + text(f"touch {path}") + b"\x85R."


def as_object(path: Path) -> bytes:
    return b"\x80\x02(cos\nsystem\n" + text(f"touch {path}") + b"o."


def as_instance(path: Path) -> bytes:
    return b"(" + text(f"touch {path}") + b"ios\nsystem\n."


def as_new_object(path: Path) -> bytes:
    words = b"(" + text("touch") + text(str(path)) + b"l"
    return b"\x80\x02csubprocess\nPopen\n" + words + b"\x85\x81."


def as_new_object_with_keywords(path: Path) -> bytes:
    words = b"(" + text("args") + b"(" + text("touch") + text(str(path)) + b"ld"
    return b"\x80\x04csubprocess\nPopen\n)" + words + b"\x92."


def built(path: Path) -> bytes:
    """An object's own __setstate__, planted by BUILD and called by the next one."""
    make = b"\x80\x02ctorch.nn\nIdentity\n)\x81"
    plant = b"}" + text("__setstate__") + b"cos\nsystem\nsb"
    return make + plant + text(f"touch {path}") + b"b."


def built_on_a_function(path: Path) -> bytes:
    return b"\x80\x02cos\nsystem\n" + text(f"touch {path}") + b"b."


def loaded_again(path: Path) -> bytes:
    inner = pickle.dumps(Calls(os.system, f"touch {path}"))
    return pickle.dumps(Calls(torch.storage._load_from_bytes, inner), protocol=2)


PAYLOADS = {
    reduced: r"calls posix\.system",
    nested: r"calls __builtin__\.exec",
    evaluated: r"calls builtins\.eval",
    fetched: r"calls __builtin__\.__import__",
    dotted: r"calls posixpath\.os\.system",
    as_object: r"calls os\.system",
    as_instance: r"calls os\.system",
    as_new_object: r"calls subprocess\.Popen",
    as_new_object_with_keywords: r"calls subprocess\.Popen",
    built: r"torch\.nn\.Identity holds no tensors",
    built_on_a_function: r"calls os\.system",
    loaded_again: r"calls torch\.storage\._load_from_bytes",
}


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.__name__)
def test_calls_are_refused_by_name_and_not_made(
    tmp_path: Path, canary: Path, payload: Callable[[Path], bytes]
) -> None:
    path = archive(tmp_path / "hostile.pt", payload(canary))
    with pytest.raises(CheckpointError, match=rf"hostile\.pt: .*{PAYLOADS[payload]}"):
        import_yolov5(path, tmp_path / "mine")
    time.sleep(0.02)
    assert not canary.exists()


@pytest.mark.parametrize(
    "payload", [reduced, nested, evaluated, fetched, dotted, as_object, as_instance]
)
def test_the_payloads_are_live(canary: Path, payload: Callable[[Path], bytes]) -> None:
    pickle.loads(payload(canary))  # noqa: S301  what import must never do
    assert canary.exists()


def test_a_hostile_object_beside_a_sound_net_is_refused(tmp_path: Path, canary: Path) -> None:
    extra = Calls(os.system, f"touch {canary}")
    torch.save({"state_dict": {"weight": torch.ones(2)}, "note": extra}, tmp_path / "mixed.pt")
    with pytest.raises(CheckpointError, match=r"posix\.system"):
        read_state(tmp_path / "mixed.pt")
    assert not canary.exists()


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (42, "found int"),
        ([], "found list"),
        ({}, "found dict"),
        ({"model": None}, "'model' is none"),
        ({"a": 1}, "'a' is none"),
        ({"state_dict": {"a": torch.ones(1), "b": "text"}}, "'b' is none"),
        (torch.ones(3), "found TensorClaim"),
        (OrderedDict, "found Global"),
        (torch.nn.Identity(), "Identity holds no tensors"),
    ],
)
def test_what_is_no_net_is_refused(tmp_path: Path, saved: object, message: str) -> None:
    torch.save(saved, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=rf"other\.pt: .*{message}"):
        read_state(tmp_path / "other.pt")


def endless_modules() -> bytes:
    """A module that is its own child."""
    make = b"\x80\x02cx\nM\n)\x81q\x00"
    children = b"}" + text("_modules") + b"}" + text("a") + b"h\x00ss"
    return make + children + b"b."


def crowd_of_modules() -> bytes:
    """Thirty levels, each with the same child twice: a billion names from a few bytes."""
    data = b"\x80\x02cx\nM\n)\x81q\x00"
    for level in range(30):
        previous = b"h" + bytes([level])
        pair = b"(" + text("a") + previous + text("b") + previous + b"u"
        data += (
            b"cx\nM\n)\x81q" + bytes([level + 1]) + b"}" + text("_modules") + b"}" + pair + b"sb"
        )
    return data + b"."


def crowd_of_objects() -> bytes:
    """A hundred objects that share one state of twenty thousand keys."""
    keys = b"".join(b"J" + struct.pack("<i", key) + b"N" for key in range(20_000))
    state = b"\x80\x02}(" + keys + b"uq\x000"
    return state + b"cx\nM\nq\x010" + b"h\x01)\x81h\x00b" * 100 + b"N."


def wide_modules() -> bytes:
    """Levels that have the same child under nine thousand names."""
    data = b"\x80\x02cx\nM\n)\x81q\x00"
    names = [text(f"{number:0150d}") for number in range(9_000)]
    children = b"}(" + b"".join(name + b"h\x00" for name in names) + b"u"
    return data + b"}" + text("_modules") + children + b"sb."


def tensor_of_many_axes() -> bytes:
    """Two hundred thousand axes, each of 2**31 - 1."""
    size = b"(" + b"J\xff\xff\xff\x7f" + b"2" * 200_000 + b"t"
    storage = (
        b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K\x01tQ"
    )
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + size + b")\x89NtR."
    )


def numbers_that_hash_alike() -> bytes:
    """Multiples of 2**61 - 1, which all hash to 0."""
    keys = (key * (2**61 - 1) for key in range(16, 100_000))
    return (
        b"\x80\x02}("
        + b"".join(b"\x8a\x0a" + k.to_bytes(10, "little") + b"N" for k in keys)
        + b"u."
    )


def named_by(key: bytes) -> bytes:
    """A module with a child under a key that is no name."""
    child = b"cx\nM\n)\x81"
    return b"\x80\x02" + child + b"}" + text("_modules") + b"}" + key + child + b"ssb."


PICKLES = {
    "endless modules": (endless_modules(), "nested without end"),
    "crowd of modules": (crowd_of_modules(), "nested without end"),
    "crowd of objects": (crowd_of_objects(), "found NoneType"),
    "wide modules": (wide_modules(), "nested without end"),
    "many axes": (tensor_of_many_axes(), r"calls torch\._utils\._rebuild_tensor_v2"),
    "numbers that hash alike": (numbers_that_hash_alike(), "more than 64 bits"),
    "number for a name": (named_by(b"K\x01"), "that are no names"),
    "long bytes for a name": (named_by(b"B" + struct.pack("<I", 10**6) + bytes(10**6)), "no names"),
    "class named by tuples": (b"\x80\x04)" + b"2\x86" * 28 + b"2\x93.", "name is no text"),
    "far memo": (b"\x80\x02}r\xff\xff\xff\xff.", "found dict"),
    "keys of tuples": (b"\x80\x02}" + b")" + b"2\x86" * 60 + b"Ns.", "keys that are neither"),
    "deep tuple": (b"\x80\x02)" + b"\x85" * 100_000 + b".", "found tuple"),
    "huge string": (b"\x80\x04\x8d" + struct.pack("<Q", 2**50) + b"x.", "damaged"),
    "huge bytes": (b"\x80\x05\x96" + struct.pack("<Q", 2**50) + b"x.", "damaged"),
    "extension": (b"\x80\x02\x82\x01.", "opcode EXT1"),
    "text protocol": (b"(dp0\nS'w'\np1\nI1\ns.", "opcode"),
    "no end": (b"\x80\x02}", "damaged"),
    "empty": (b"", "damaged"),
    "empty stack": (b"\x80\x02.", "damaged"),
    "random": (bytes(range(256)), "damaged"),
    "item of no list": (b"\x80\x02NNa.", "no list"),
    "item of no dictionary": (b"\x80\x02NNNs.", "no dictionary"),
    "call of nothing": (b"\x80\x02N)R.", "no function"),
    "persistent nothing": (b"\x80\x02NQ.", "no storage"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_strange_pickles_end_soon(tmp_path: Path, name: str) -> None:
    data, message = PICKLES[name]
    path = archive(tmp_path / "strange.pt", data)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=rf"strange\.pt: .*{message}"):
            read_state(path)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
