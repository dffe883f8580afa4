"""Checkpoints made to harm are refused by name, and nothing in them is run."""

import os
import pickle
import struct
import time
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from plate_models.importing import CheckpointError, import_yolov5
from plate_models.importing.checkpoints import read_state


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def archive(path: Path, data: bytes, storages: dict[str, bytes] | None = None) -> Path:
    """A zip archive as torch writes it, around any pickle."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("archive/data.pkl", data)
        file.writestr("archive/version", "3\n")
        for key, content in (storages or {}).items():
            file.writestr(f"archive/data/{key}", content)
    return path


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "executed"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


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
    reduced: r"posix\.system",
    nested: r"__builtin__\.exec",
    evaluated: r"builtins\.eval",
    fetched: r"__builtin__\.__import__",
    dotted: r"posixpath\.os\.system",
    as_object: r"os\.system",
    as_instance: r"os\.system",
    as_new_object: r"subprocess\.Popen",
    as_new_object_with_keywords: r"subprocess\.Popen",
    built: r"torch\.nn\.Identity holds no tensors",
    built_on_a_function: r"os\.system",
    loaded_again: r"torch\.storage\._load_from_bytes",
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


def tensor(numel: int, offset: int, size: str, stride: str, kind: str = "FloatStorage") -> bytes:
    """A state dict {"w": tensor}, with whatever a tensor can claim, in opcodes."""

    def number(value: int) -> bytes:
        return b"\x8a\x08" + struct.pack("<q", value)

    def numbers(values: str) -> bytes:
        return b"(" + b"".join(number(int(value)) for value in values.split()) + b"t"

    storage = b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + text("0") + text("cpu")
    claim = storage + number(numel) + b"tQ" + number(offset) + numbers(size) + numbers(stride)
    rebuilt = b"ctorch._utils\n_rebuild_tensor_v2\n(" + claim + b"\x89NtR"
    return b"\x80\x02}(" + text("w") + rebuilt + b"u."


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
        ((6, 1, "2 3", "3 1"), "lies outside its storage of 6"),
        ((6, 7, "1", "1"), "lies outside"),
        ((6, 0, "2 2", "1"), "lies outside|can't be read"),
        ((2**40, 0, f"{2**40}", "1"), "claim"),
        ((6, 0, f"{2**40}", "0"), "claim"),
        ((2**40, 0, "2", "1"), "expected 4398046511104 bytes, found 24"),
        ((7, 0, "7", "1"), "claim|expected 28 bytes, found 24"),
        ((6, -1, "2", "1"), r"_rebuild_tensor_v2"),
        ((6, 0, "-2", "1"), r"_rebuild_tensor_v2"),
        ((6, 0, "2", "-1"), r"_rebuild_tensor_v2"),
        ((-6, 0, "2", "1"), "no storage"),
        ((6, 0, "2", "1", "UntypedStorage"), r"torch\.UntypedStorage is no storage"),
        ((6, 0, " ".join("1" * 100), " ".join("1" * 100)), "w"),
    ],
)
def test_claims_are_checked_before_memory_is_taken(
    tmp_path: Path, claim: tuple, message: str
) -> None:
    path = archive(tmp_path / "claims.pt", tensor(*claim), {"0": bytes(24)})
    tracemalloc.start()
    try:
        if message == "w":  # a hundred axes of one element each do no harm
            assert read_state(path)["w"].numel() == 1
        else:
            with pytest.raises(CheckpointError, match=rf"claims\.pt: .*({message})"):
                read_state(path)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_many_names_for_one_storage_are_refused(tmp_path: Path) -> None:
    shared = torch.ones(10_000)
    torch.save({f"w{k}": shared.view(100, 100) for k in range(50)}, tmp_path / "many.pt")
    with pytest.raises(CheckpointError, match="its tensors claim 2000000 bytes, it has"):
        read_state(tmp_path / "many.pt")


def test_a_storage_that_is_missing(tmp_path: Path) -> None:
    archive(tmp_path / "x.pt", tensor(1, 0, "1", "1"), {"1": bytes(24)})
    with pytest.raises(CheckpointError, match=r"archive/data/0: expected 4 bytes, found none"):
        read_state(tmp_path / "x.pt")


def compressed(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", bytes(50_000_000))


def truncated(path: Path) -> None:
    torch.save({"w": torch.ones(1000)}, path)
    path.write_bytes(path.read_bytes()[:2000])


def without_a_pickle(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/version", "3")


def with_two_pickles(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", b".")
        file.writestr("b/data.pkl", b".")


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


def scripted(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name in ("data.pkl", "constants.pkl", "code/__torch__.py"):
            file.writestr(f"archive/{name}", b"N.")


def big_endian(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"}.")
        file.writestr("archive/byteorder", b"big")


def long_pickle(path: Path) -> None:
    archive(path, b"\x80\x02" + b"}" * 5_000_000)


FILES = {
    compressed: "compressed",
    truncated: "can't be read",
    without_a_pickle: "found 0",
    with_two_pickles: "found 2",
    overlapping: "its entries claim",
    damaged_storage: "CRC",
    scripted: "TorchScript",
    big_endian: "big-endian",
    long_pickle: "5000002 bytes, too many",
    Path.touch: "neither a torch checkpoint nor",
    Path.mkdir: "can't be read",
    lambda path: path.write_bytes(b"\x10\0\0\0\0\0\0\0{never closed"): "can't be read",
}


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_broken_files_are_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "broken.pt"
    make(path)
    with pytest.raises(CheckpointError, match=rf"broken\.pt: .*{FILES[make]}"):
        read_state(path)


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


PICKLES = {
    "endless modules": (endless_modules(), "nested without end"),
    "crowd of modules": (crowd_of_modules(), "nested without end"),
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
    with pytest.raises(CheckpointError, match=rf"strange\.pt: .*{message}"):
        read_state(archive(tmp_path / "strange.pt", data))
