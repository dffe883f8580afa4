"""Checkpoints of torch: read as they were written, refused by name where they would harm."""

import io
import os
import pickle
import random
import struct
import time
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from plate_models.training.checkpoints import CheckpointError, read_state

Make = Callable[[Path], object]
EXECUTED = "executed"  # the file that hostile pickles make, if they are run
TOUCH = f"touch {EXECUTED}"


class Calls:
    """Pickles as a call of a function, which may be fetched by another call."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __call__(self) -> None:
        """Only what is callable is pickled as a function."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@dataclass
class Keys:
    """Pickles as a dictionary with these keys, none of which is hashed here."""

    keys: Iterable[object]

    def __reduce__(self) -> tuple[object, ...]:
        return OrderedDict, (), None, None, iter([(key, None) for key in self.keys])


@dataclass
class Module:
    """Pickles as an object with a state, as modules are."""

    state: dict[str, Any]

    def __getstate__(self) -> object:
        return self.state


@dataclass
class Claim:
    """Pickles as a tensor that claims anything; its storage "0" has 24 bytes."""

    numel: int
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    kind: type = torch.FloatStorage

    def __reduce__(self) -> tuple[object, ...]:
        storage = ("storage", self.kind, "0", "cpu", self.numel)
        return torch._utils._rebuild_tensor_v2, (storage, self.offset, self.size, self.stride, 0, 0)


class Pickler(pickle.Pickler):
    """Writes storages as references, as torch does."""

    def persistent_id(self, value: object) -> object:
        return value if isinstance(value, tuple) and value[:1] == ("storage",) else None


def zipped(entries: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> Make:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", how) as file:
            for name, content in entries.items():
                file.writestr(name, content)

    return make


def archived(data: object, key: str = "0", content: bytes = bytes(24)) -> Make:
    """A zip archive as torch writes it, around a pickle or what is to be pickled."""
    if not isinstance(data, bytes):
        Pickler(file := io.BytesIO(), 2).dump(data)
        data = file.getvalue()
    return zipped({"archive/data.pkl": data, f"archive/data/{key}": content})


def saved(value: object) -> Make:
    return lambda path: torch.save(value, path)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


WRITE, LOADED = f"open({EXECUTED!r}, 'w').close()", Calls(os.system, TOUCH)
SYSTEM = Calls(getattr, Calls(__import__, "os"), "system")
SHELL, POPEN = text(TOUCH), b"csubprocess\nPopen\n"
WORDS = b"(" + text("touch") + text(EXECUTED) + b"l"
# Protocol 4 looks up a name with dots attribute by attribute.
DOTTED = b"\x80\x04" + text("posixpath") + text("os.system") + b"\x93"
# An object's own __setstate__, planted by BUILD and called by the next one.
PLANTED = b"\x80\x02ctorch.nn\nIdentity\n)\x81}" + text("__setstate__") + b"cos\nsystem\nsb"
# Pickles that make a file if they are run, with what is refused by name.
PICKLED_CALLS = {
    "reduced": (Calls(os.system, TOUCH), "posix.system"),
    "nested": ({"model": {"x": [OrderedDict(w=Calls(exec, WRITE))]}}, "__builtin__.exec"),
    "evaluated": (Calls(eval, WRITE), "__builtin__.eval"),
    "fetched": (Calls(SYSTEM, TOUCH), "__builtin__.__import__"),
    "dotted": (DOTTED + SHELL + b"\x85R.", "posixpath.os.system"),
    "object": (b"\x80\x02(cos\nsystem\n" + SHELL + b"o.", "os.system"),
    "instance": (b"(" + SHELL + b"ios\nsystem\n.", "os.system"),
    "new object": (b"\x80\x02" + POPEN + WORDS + b"\x85\x81.", "subprocess.Popen"),
    "with keywords": (
        b"\x80\x04" + POPEN + b")}" + text("args") + WORDS + b"s\x92.",
        "subprocess.Popen",
    ),
    "built on a function": (b"\x80\x02cos\nsystem\n" + SHELL + b"b.", "os.system"),
    "loaded again": (
        Calls(torch.storage._load_from_bytes, pickle.dumps(LOADED)),
        "torch.storage._load_from_bytes",
    ),
}
CALLS = {name: (archived(data), f"calls {call}") for name, (data, call) in PICKLED_CALLS.items()}
CALLS |= {
    "planted": (archived(PLANTED + SHELL + b"b."), "torch.nn.Identity holds no tensors"),
    "beside a sound net": (
        saved({"state_dict": {"weight": torch.ones(2)}, "note": LOADED}),
        "calls posix.system",
    ),
}
LIVE = ("reduced", "nested", "evaluated", "fetched", "dotted", "object", "instance")

GRANDCHILD_OF_ITSELF = Module({"_modules": {}})
GRANDCHILD_OF_ITSELF.state["_modules"]["a"] = GRANDCHILD_OF_ITSELF
WIDE = Module({"_modules": {}})
WIDE.state["_modules"] |= {f"{number:0150d}": WIDE for number in range(9_000)}
CROWD = Module({})
for _ in range(30):  # levels, each with the same child twice: a billion names from a few bytes
    CROWD = Module({"_modules": {"a": CROWD, "b": CROWD}})
NESTED: tuple = ()
for _ in range(60):
    NESTED = (NESTED, NESTED)  # to hash it takes for ever
SHARED = dict.fromkeys(range(20_000))
# Would take time or memory without end, or are broken.
STRANGE = {
    "module in itself": (GRANDCHILD_OF_ITSELF, "nested without end"),
    "crowd of modules": (CROWD, "nested without end"),
    "wide modules": (WIDE, "nested without end"),
    "crowd of objects": (([Module(SHARED) for _ in range(100)],), "found tuple"),
    "many axes": (Claim(6, 0, (2**31 - 1,) * 200_000, (1,) * 200_000), "setStorage: sizes"),
    # Multiples of 2**61 - 1 all hash to 0.
    "numbers hashed alike": (
        Keys(k * (2**61 - 1) for k in range(16, 100_000)),
        "nor small numbers",
    ),
    "number for a name": (Module({"_parameters": {1: Claim(6, 0, (), ())}}), "no names"),
    "long name": (Module({"_parameters": {"a" * 10**6: Claim(6, 0, (), ())}}), "no names"),
    "keys of tuples": (Keys([NESTED]), "keys that are neither"),
    "class named by tuples": (b"\x80\x04)" + b"2\x86" * 28 + b"2\x93.", "GLOBAL requires str"),
    "items of tuples": (b"\x80\x04\x8f()" + b"2\x86" * 60 + b"\x90.", "never writes"),
    "far memo": (b"\x80\x02}r\xff\xff\xff\xff.", "found an empty one"),
    "deep tuple": (b"\x80\x02)" + b"\x85" * 100_000 + b".", "found tuple"),
    "huge string": (b"\x80\x04\x8d" + struct.pack("<Q", 2**50) + b"x.", "can't be read"),
    "huge bytes": (b"\x80\x05\x96" + struct.pack("<Q", 2**50) + b"x.", "never writes"),
    "extension": (b"\x80\x02\x82\x01.", "unregistered extension"),
    "text protocol": (b"(dp0\nS'w'\np1\nI1\ns.", "never writes"),
    "no end": (b"\x80\x02}", "can't be read"),
    "empty": (b"", "can't be read"),
    "empty stack": (b"\x80\x02.", "can't be read"),
    "item of no dictionary": (b"\x80\x02NNNs.", "can't be read"),
    "call of nothing": (b"\x80\x02N)R.", "not callable"),
    "persistent nothing": (b"\x80\x02NQ.", "no storage"),
    "tensor out of bounds": (Claim(6, 1, (2, 3), (3, 1)), "out of bounds for storage of size 24"),
    "fewer strides": (Claim(6, 0, (2, 2), (1,)), "mismatch in length"),
    "one value for all": ({"w": Claim(6, 0, (2**40,), (0,))}, "its tensors claim"),
    "overflow": (Claim(6, 0, (2**62, 2**62), (0, 0)), "overflow"),
    "large storage": (Claim(2**40, 0, (2**40,), (1,)), "expected 4398046511104 bytes, found 24"),
    "larger storage": (Claim(7, 0, (7,), (1,)), "expected 28 bytes, found 24"),
    "negative offset": (Claim(6, -1, (2,), (1,)), "invalid storage offset"),
    "negative size": (Claim(6, 0, (-2,), (1,)), "overflowed"),
    "negative stride": (Claim(6, 0, (2,), (-1,)), "[Nn]egative strides"),
    "negative storage": (Claim(-6, 0, (2,), (1,)), "expected -24 bytes"),
    "untyped": (Claim(6, 0, (2,), (1,), torch.UntypedStorage), "UntypedStorage is no storage"),
    # Of nothing that could be imported.
    "a number": (42, "found int"),
    "nothing": ({}, "found an empty one"),
    "no model": ({"model": None}, "'model' is none"),
    "no tensor": ({"a": 1}, "'a' is none"),
    "a tensor and a text": ({"state_dict": {"a": Claim(6, 0, (), ()), "b": ""}}, "'b' is none"),
    "a class": (OrderedDict, "found type"),
    "a module's class": (nn.Identity, "found Name"),
}


def overlapping(path: Path) -> None:
    """Twenty entries that are the same bytes: the file is smaller than its content."""
    names = ("data.pkl", *(f"data/{number}" for number in range(20)))
    zipped({f"archive/{name}": bytes(1000) for name in names})(path)
    raw = bytearray(path.read_bytes())
    start = raw.index(b"PK\x01\x02")
    while (start := raw.find(b"PK\x01\x02", start)) >= 0:
        struct.pack_into("<II", raw, start + 20, 9000, 9000)
        start += 4
    path.write_bytes(raw)


def changed(change: Callable[[bytes], bytes], value: object) -> Make:
    def make(path: Path) -> None:
        torch.save(value, path)
        path.write_bytes(change(path.read_bytes()))

    return make


OFTEN = {f"w{k}": view for k, view in enumerate(torch.ones(10_000).expand(50, 10_000))}
SEEN = torch.tensor(list(b"????"), dtype=torch.uint8)  # four bytes that are found in the file
FILES: dict[str, tuple[Make, str]] = {
    "compressed": (zipped({"a/data.pkl": bytes(50_000_000)}, zipfile.ZIP_DEFLATED), "compressed"),
    "truncated": (changed(lambda raw: raw[:2000], {"w": torch.ones(1000)}), "can't be read"),
    "without a pickle": (zipped({"a/version": b"3"}), "found 0"),
    "with two pickles": (zipped({"a/data.pkl": b"N.", "b/data.pkl": b"N."}), "found 2"),
    "overlapping": (overlapping, "its entries claim"),
    "damaged storage": (changed(lambda raw: raw.replace(b"????", b"???x"), {"w": SEEN}), "CRC"),
    "no storage": (
        archived(Claim(1, 0, (1,), (1,)), key="1"),
        "data/0: expected 4 bytes, found none",
    ),
    "one storage often": (saved(OFTEN), "its tensors claim 2000000 bytes, it has"),
    "scripted": (zipped({"a/data.pkl": b"", "a/constants.pkl": b""}), "TorchScript"),
    "big-endian": (zipped({"a/data.pkl": b"N.", "a/byteorder": b"big"}), "big-endian"),
    "long pickle": (archived(bytes(5_000_002)), "5000002 bytes, too many"),
    "before torch 1.6": (
        lambda path: torch.save({}, path, _use_new_zipfile_serialization=False),
        r"written by torch before 1\.6.*save",
    ),
    "a tensor": (saved(torch.ones(3)), "found Tensor"),
    "a module without tensors": (saved(nn.Identity()), "Identity holds no tensors"),
    "empty file": (Path.touch, "neither a torch checkpoint nor"),
    "folder": (Path.mkdir, "can't be read"),
    "missing": (lambda _: None, "can't be read"),
    "safetensors": (lambda path: path.write_bytes(b"\x10" + bytes(7) + b"{never"), "can't be read"),
}
REFUSED = {**CALLS, **FILES, **{name: (archived(d), text) for name, (d, text) in STRANGE.items()}}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name_and_soon_and_nothing_is_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, message = REFUSED[name]
    make(path := tmp_path / "refused.pt")
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=rf"refused\.pt: .*({message})"):
            read_state(path)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
    time.sleep(0.02 if name in CALLS else 0)
    assert not Path(EXECUTED).exists()


@pytest.mark.parametrize("name", LIVE)
def test_the_hostile_pickles_are_live(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data, _ = PICKLED_CALLS[name]
    pickle.loads(data if isinstance(data, bytes) else pickle.dumps(data))  # noqa: S301
    assert Path(EXECUTED).exists()


def strange_tensors() -> dict[str, torch.Tensor]:
    grid, shared = torch.arange(24.0).view(4, 6), torch.arange(10.0)
    return {
        "transposed": grid.t(),
        "strided": grid[::2, 1::2],
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 3),
        "head": shared[:4],
        "tail": shared[4:],
        "parameter": nn.Parameter(torch.ones(2)),
        "integers": torch.tensor([1, -2]),
        "flags": torch.tensor([True, False]),
        "bytes": torch.tensor([200, 3], dtype=torch.uint8),
    }


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_layout_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "state.pt"
    torch.save(strange_tensors(), path, pickle_protocol=protocol)
    expected, found = strange_tensors(), read_state(path)
    assert list(found) == list(expected)
    for key, value in expected.items():
        assert torch.equal(found[key], value), key
        assert found[key].dtype == value.dtype and found[key].is_contiguous(), key
    # What the refused claims are made with reads well where the claim is sound.
    values = struct.pack("<6f", *range(6))
    archived({"w": Claim(6, 1, (2, 2), (1, 2))}, content=values)(path)
    assert read_state(path)["w"].tolist() == [[1.0, 3.0], [2.0, 4.0]]


def checkpoint(path: Path) -> nn.Module:
    """A module inside whatever else trainings keep."""
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(3, 2, bias=False), nn.PReLU(), nn.BatchNorm1d(2))
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ModuleDict({"a": inner}), nn.SiLU())
    extras = {
        "best_fitness": np.array([0.5]),
        "scalar": np.float64(0.25),
        "opt": {"folder": Path("runs"), "device": torch.device("cpu"), "size": torch.Size([3])},
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.1).state_dict(),
        "names": {0: "plate"},
        "seen": {1, 2},
        "dtype": torch.float16,
    }
    torch.save({"model": module, **extras}, path)
    return module


def test_a_modules_tensors_have_the_names_of_its_state_dict(tmp_path: Path) -> None:
    module = checkpoint(tmp_path / "last.pt")
    found = read_state(tmp_path / "last.pt")
    assert set(found) == set(module.state_dict())
    for key, value in module.state_dict().items():
        assert torch.equal(found[key], value), key


def test_damaged_bytes_end_in_one_kind_of_error(tmp_path: Path) -> None:
    checkpoint(path := tmp_path / "damaged.pt")
    sound, rng, refused = path.read_bytes(), random.Random(0), 0
    for _ in range(300):
        damaged = bytearray(sound)
        for _ in range(rng.choice((1, 3))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            read_state(path)
        except CheckpointError:
            refused += 1
    assert refused > 100
