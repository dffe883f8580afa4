"""Checkpoints of torch: read as they were written, refused by name where they would harm."""

import os
import pickle
import random
import struct
import time
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from plate_models.training.checkpoints import CheckpointError, read_state

Make = Callable[[Path], object]
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


def strange_tensors() -> dict[str, torch.Tensor]:
    grid = torch.arange(24.0).view(4, 6)
    shared = torch.arange(10.0)
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
    path = tmp_path / "damaged.pt"
    checkpoint(path)
    sound = path.read_bytes()
    rng = random.Random(0)
    refused = 0
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


def test_the_tensor_opcodes_are_sound(tmp_path: Path) -> None:
    values = struct.pack("<6f", *range(6))
    path = archive(tmp_path / "x.pt", tensor(6, 1, "2 2", "1 2"), {"0": values})
    assert read_state(path)["w"].tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert torch.equal(torch.load(path, weights_only=True)["w"], read_state(path)["w"])
    archive(path, tensor(0, 0, "0 3", "3 1"), {"0": b""})
    assert read_state(path)["w"].shape == (0, 3)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ((6, 1, "2 3", "3 1"), "out of bounds for storage of size 24"),
        ((6, 7, "1", "1"), "out of bounds"),
        ((6, 0, "2 2", "1"), "mismatch in length"),
        ((6, 0, f"{2**40}", "0"), "its tensors claim"),
        ((6, 0, f"{2**62} {2**62}", "0 0"), "overflow"),
        ((2**40, 0, f"{2**40}", "1"), "expected 4398046511104 bytes, found 24"),
        ((7, 0, "7", "1"), "expected 28 bytes, found 24"),
        ((6, -1, "2", "1"), "invalid storage offset"),
        ((6, 0, "-2", "1"), "overflowed"),
        ((6, 0, "2", "-1"), "[Nn]egative strides"),
        ((-6, 0, "2", "1"), "expected -24 bytes"),
        ((6, 0, "2", "1", "UntypedStorage"), r"torch\.UntypedStorage is no storage"),
    ],
)
def test_claims_are_checked_before_memory_is_taken(
    tmp_path: Path, claim: tuple, message: str
) -> None:
    path = archive(tmp_path / "claims.pt", tensor(*claim), {"0": bytes(24)})
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=rf"claims\.pt: .*({message})"):
            read_state(path)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_storages_have_to_be_there_and_are_not_multiplied(tmp_path: Path) -> None:
    archive(tmp_path / "x.pt", tensor(1, 0, "1", "1"), {"1": bytes(24)})
    with pytest.raises(CheckpointError, match=r"archive/data/0: expected 4 bytes, found none"):
        read_state(tmp_path / "x.pt")
    shared = torch.ones(10_000)
    torch.save({f"w{k}": shared.view(100, 100) for k in range(50)}, tmp_path / "many.pt")
    with pytest.raises(CheckpointError, match="its tensors claim 2000000 bytes, it has"):
        read_state(tmp_path / "many.pt")


def truncated(path: Path) -> None:
    torch.save({"w": torch.ones(1000)}, path)
    path.write_bytes(path.read_bytes()[:2000])


def zipped(*entries: str, content: bytes = b"N.", how: int = zipfile.ZIP_STORED) -> Make:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", how) as file:
            for entry in entries:
                file.writestr(entry, content)

    return make


def overlapping(path: Path) -> None:
    """Twenty entries that are the same bytes: the file is smaller than its content."""
    archive(path, b"N.", {str(k): bytes(1000) for k in range(20)})
    raw = bytearray(path.read_bytes())
    start = raw.index(b"PK\x01\x02")
    while (start := raw.find(b"PK\x01\x02", start)) >= 0:
        struct.pack_into("<II", raw, start + 20, 9000, 9000)
        start += 4
    path.write_bytes(raw)


def damaged_storage(path: Path) -> None:
    torch.save({"w": torch.full((4,), 1.2345)}, path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(struct.pack("<f", 1.2345))] ^= 1
    path.write_bytes(raw)


def of_bytes(content: bytes) -> Make:
    return lambda path: path.write_bytes(content)


def old(path: Path) -> None:
    torch.save({"w": torch.ones(2)}, path, _use_new_zipfile_serialization=False)


FILES: dict[str, tuple[Make, str]] = {
    "compressed": (
        zipped("archive/data.pkl", content=bytes(50_000_000), how=zipfile.ZIP_DEFLATED),
        "compressed",
    ),
    "truncated": (truncated, "can't be read"),
    "without a pickle": (zipped("archive/version"), "found 0"),
    "with two pickles": (zipped("a/data.pkl", "b/data.pkl"), "found 2"),
    "overlapping": (overlapping, "its entries claim"),
    "damaged storage": (damaged_storage, "CRC"),
    "scripted": (zipped("archive/data.pkl", "archive/constants.pkl"), "TorchScript"),
    "big-endian": (zipped("archive/data.pkl", "archive/byteorder", content=b"big"), "big-endian"),
    "long pickle": (
        zipped("archive/data.pkl", content=bytes(5_000_002)),
        "5000002 bytes, too many",
    ),
    "before torch 1.6": (old, r"written by torch before 1\.6.*save"),
    "empty": (Path.touch, "neither a torch checkpoint nor"),
    "folder": (Path.mkdir, "can't be read"),
    "missing": (lambda _: None, "can't be read"),
    "safetensors": (of_bytes(b"\x10\0\0\0\0\0\0\0{never closed"), "can't be read"),
}


@pytest.mark.parametrize("name", FILES)
def test_broken_files_are_refused(tmp_path: Path, name: str) -> None:
    make, message = FILES[name]
    make(tmp_path / "broken.pt")
    with pytest.raises(CheckpointError, match=rf"broken\.pt: .*{message}"):
        read_state(tmp_path / "broken.pt")


LIVE = ("reduced", "nested", "evaluated", "fetched", "dotted", "as object", "as instance")


@pytest.mark.parametrize("name", payloads(Path()))
def test_calls_are_refused_by_name_and_not_made(tmp_path: Path, name: str) -> None:
    canary = tmp_path / "executed"
    data, message = payloads(canary)[name]
    path = archive(tmp_path / "hostile.pt", data)
    with pytest.raises(CheckpointError, match=rf"hostile\.pt: .*{message}"):
        read_state(path)
    time.sleep(0.02)
    assert not canary.exists()
    if name in LIVE:
        pickle.loads(data)  # noqa: S301  what import must never do
        assert canary.exists()


def test_a_hostile_object_beside_a_sound_net_is_refused(tmp_path: Path) -> None:
    extra = Calls(os.system, f"touch {tmp_path / 'executed'}")
    torch.save({"state_dict": {"weight": torch.ones(2)}, "note": extra}, tmp_path / "mixed.pt")
    with pytest.raises(CheckpointError, match=r"posix\.system"):
        read_state(tmp_path / "mixed.pt")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (42, "found int"),
        ([], "found list"),
        ({}, "found an empty one"),
        ({"model": None}, "'model' is none"),
        ({"a": 1}, "'a' is none"),
        ({"state_dict": {"a": torch.ones(1), "b": "text"}}, "'b' is none"),
        (torch.ones(3), "found Tensor"),
        (OrderedDict, "found type"),
        (torch.nn.Identity, "found Name"),
        (torch.nn.Identity(), "Identity holds no tensors"),
    ],
)
def test_what_is_no_net_is_refused(tmp_path: Path, saved: object, message: str) -> None:
    torch.save(saved, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=rf"other\.pt: .*{message}"):
        read_state(tmp_path / "other.pt")


@pytest.mark.parametrize("name", strange_pickles())
def test_strange_pickles_end_soon(tmp_path: Path, name: str) -> None:
    data, message = strange_pickles()[name]
    path = archive(tmp_path / "strange.pt", data, {"0": bytes(4)})
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=rf"strange\.pt: .*{message}"):
            read_state(path)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
