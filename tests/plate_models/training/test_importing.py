"""Checkpoints from elsewhere: read as torch wrote them, refused by name where they would harm."""

import os
import pickle
import random
import shutil
import struct
import sys
import time
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from published_yolov5 import SPEC, TREE, candidates, heads, make_net, write_checkpoint
from safetensors.torch import save_file
from torch import nn
from torch_archives import archive, tensor, text

from plate_models import weights
from plate_models.export import compare_candidates
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.nets.yolov5 import YOLOv5
from plate_models.spec import RecognizerSpec
from plate_models.training.importing import CheckpointError, import_recognizer, import_yolov5
from plate_models.training.importing.checkpoints import read_state
from plates.cli import main as cli


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
    "class named by tuples": (
        b"\x80\x04)" + b"2\x86" * 28 + b"2\x93.",
        "STACK_GLOBAL requires str",
    ),
    "far memo": (b"\x80\x02}r\xff\xff\xff\xff.", "found dict"),
    "keys of tuples": (b"\x80\x02}" + b")" + b"2\x86" * 60 + b"Ns.", "keys that are neither"),
    "deep tuple": (b"\x80\x02)" + b"\x85" * 100_000 + b".", "found tuple"),
    "huge string": (b"\x80\x04\x8d" + struct.pack("<Q", 2**50) + b"x.", "damaged"),
    "huge bytes": (b"\x80\x05\x96" + struct.pack("<Q", 2**50) + b"x.", "opcode BYTEARRAY8"),
    "extension": (b"\x80\x02\x82\x01.", "opcode EXT1"),
    "text protocol": (b"(dp0\nS'w'\np1\nI1\ns.", "opcode"),
    "no end": (b"\x80\x02}", "damaged"),
    "empty": (b"", "damaged"),
    "empty stack": (b"\x80\x02.", "damaged"),
    "random": (bytes(range(256)), "damaged"),
    "item of no list": (b"\x80\x02NNa.", "damaged"),
    "item of no dictionary": (b"\x80\x02NNNs.", "damaged"),
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


State = dict[str, torch.Tensor]


def loaded(detector: Path) -> weights.Modules:
    """The detector beside our released recognizer and rectifier."""
    for name in ("recognizer", "rectifier"):
        shutil.copy(weights.WEIGHTS_DIR / f"{name}.safetensors", detector.parent)
    weights.write_manifest(detector.parent)
    return weights.load_modules(detector.parent)


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda model: {"model": model, "ema": None}, id="model"),
        pytest.param(lambda model: {"model": nn.Linear(2, 2), "ema": model}, id="average"),
        pytest.param(lambda model: model, id="module alone"),
        pytest.param(lambda model: {"state_dict": model.state_dict()}, id="state dict"),
    ],
)
def test_a_published_checkpoint_computes_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrap: Callable[[nn.Module], object]
) -> None:
    net = make_net()
    path = write_checkpoint(tmp_path / "best.pt", net, monkeypatch, wrap)
    modules = loaded(import_yolov5(path, tmp_path / "mine"))
    assert TREE not in sys.modules
    found = modules.specs.detector
    assert found.classes == ("one_line",)
    assert (found.width_multiple, round(found.depth_multiple, 2)) == (0.125, 0.33)
    anchors = torch.tensor(found.anchors_wh)
    torch.testing.assert_close(anchors, torch.tensor(SPEC.anchors_wh), rtol=1e-3, atol=0)
    assert modules.specs.recognizer == weights.DEFAULTS.recognizer
    expected = candidates(net, SPEC)
    assert compare_candidates((expected,), (candidates(modules.detect.net, found),)) < 1
    assert expected[0, 0, 4] > 0


def names_without_model(state: State) -> State:
    return {key.removeprefix("model."): value for key, value in state.items()}


def names_of_a_parallel_module(state: State) -> State:
    return {f"module.model.{key}": value for key, value in state.items()}


@pytest.mark.parametrize("rename", [dict, names_without_model, names_of_a_parallel_module])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_state_dicts_under_any_prefix(
    tmp_path: Path, rename: Callable[[State], State], suffix: str
) -> None:
    net = make_net()
    path = tmp_path / f"state{suffix}"
    save = torch.save if suffix == ".pt" else save_file
    save(rename(net.state_dict()), path)
    modules = loaded(import_yolov5(path, tmp_path / "mine"))
    imported = candidates(modules.detect.net, modules.specs.detector)
    assert compare_candidates((candidates(net, SPEC),), (imported,)) < 1


def fused(net: YOLOv5) -> State:
    """Fold every batch norm into the convolution before it, by its formula."""
    state = {k: v for k, v in net.state_dict().items() if ".bn." not in k}
    for name, module in net.named_modules():
        if hasattr(module, "bn"):
            norm = module.bn
            factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            state[f"{name}.conv.weight"] = module.conv.weight * factor.view(-1, 1, 1, 1)
            state[f"{name}.conv.bias"] = norm.bias - norm.running_mean * factor
    return {key: value.detach() for key, value in state.items()}


def test_fused_checkpoints_compute_the_same(tmp_path: Path) -> None:
    net = make_net()
    torch.save(fused(net), tmp_path / "fused.pt")
    modules = loaded(import_yolov5(tmp_path / "fused.pt", tmp_path / "mine"))
    torch.testing.assert_close(heads(modules.detect.net), heads(net), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("width", "depth"), [(0.25, 0.33), (0.5, 0.33), (0.75, 0.67), (1.0, 1.0), (1.25, 1.33)]
)
def test_every_size_is_recognized(width: float, depth: float) -> None:
    from plate_models.training.importing import _spec_of

    blocks = {key: torch.ones(1) for key in (f"model.6.m.{k}.x" for k in range(round(9 * depth)))}
    shapes = {
        "model.0.conv.weight": (64, 3, 6, 6),
        "model.9.cv2.conv.weight": (int(1024 * width), 1, 1, 1),
        "model.24.anchors": (3, 3, 2),
        "model.24.m.0.weight": (21, 1, 1, 1),
    }
    state = blocks | {key: torch.ones(shape) for key, shape in shapes.items()}
    found = _spec_of(state, Path("net.pt"))
    assert (found.width_multiple, len(found.classes)) == (width, 2)
    # What the depth decides is how often three, six and nine blocks are repeated.
    depths = [[max(round(n * d), 1) for n in (3, 6, 9)] for d in (depth, found.depth_multiple)]
    assert depths[0] == depths[1]


def without_a_tensor(state: State) -> None:
    del state["model.13.cv1.conv.weight"]


def with_another_tensor(state: State) -> None:
    state["model.25.extra"] = torch.zeros(1)


def with_a_wider_block(state: State) -> None:
    state["model.4.cv1.conv.weight"] = torch.zeros(9, 32, 1, 1)


def with_eighty_classes(state: State) -> None:
    for level in range(3):
        key = f"model.24.m.{level}.weight"
        state[key] = torch.zeros(255, *state[key].shape[1:])


def with_four_levels(state: State) -> None:
    state["model.24.anchors"] = torch.ones(4, 3, 2)


def with_the_stem_of_yolov8(state: State) -> None:
    state["model.0.conv.weight"] = torch.zeros(8, 3, 3, 3)


def with_the_stem_of_yolov5_before_v6(state: State) -> None:
    state["model.0.conv.conv.weight"] = state.pop("model.0.conv.weight")


def without_a_head(state: State) -> None:
    for key in [key for key in state if key.startswith("model.24")]:
        del state[key]


def with_a_broken_number(state: State) -> None:
    state["model.1.conv.weight"][0, 0, 0, 0] = float("nan")


def with_integers(state: State) -> None:
    state["model.1.bn.bias"] = state["model.1.bn.bias"].long()


def with_empty_anchors(state: State) -> None:
    state["model.24.anchors"] = torch.zeros(3, 0, 2)


def with_flat_anchors(state: State) -> None:
    state["model.24.anchors"] = torch.zeros(3, 3, 2)


def with_a_head_without_axes(state: State) -> None:
    state["model.24.m.0.weight"] = torch.tensor(1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_a_head_without_axes, r"model\.24\.m\.0\.weight: expected axes"),
        (without_a_tensor, r"model\.13\.cv1\.conv\.weight: expected .* found no such tensor"),
        (with_another_tensor, r"model\.25\.extra: expected no such tensor"),
        (with_a_wider_block, r"model\.4\.cv1\.conv\.weight: expected \(16, 32, 1, 1\)"),
        (with_eighty_classes, r"model\.24\.m\.0\.weight: expected 18 or 21 rows"),
        (with_four_levels, r"model\.24\.anchors: expected .* found \(4, 3, 2\)"),
        (with_the_stem_of_yolov8, r"model\.0\.conv\.weight: .* found \(8, 3, 3, 3\)"),
        (with_the_stem_of_yolov5_before_v6, r"expected a stem model\.0\.conv\.weight"),
        (without_a_head, r"model\.24\.m\.0\.weight: .* found no such tensor"),
        (with_a_broken_number, r"model\.1\.conv\.weight: expected finite values"),
        (with_integers, r"model\.1\.bn\.bias: expected floats"),
        (with_empty_anchors, r"model\.24\.(anchors|m\.0\.weight): expected"),
        (with_flat_anchors, r"anchors_wh\[0\]\[0\]\[0\]: expected greater than 0"),
    ],
)
def test_other_layouts_are_refused_by_the_first_tensor(
    tmp_path: Path, change: Callable[[State], None], message: str
) -> None:
    state = make_net().state_dict()
    change(state)
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(weights.WeightsError, match=rf"other\.pt: .*{message}"):
        import_yolov5(tmp_path / "other.pt", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_the_legacy_format_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    torch.save(make_net().state_dict(), path, _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match=r"old\.pt: written by torch before 1\.6.*save"):
        import_yolov5(path, tmp_path)


def test_the_command_says_what_it_wrote_and_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(make_net().state_dict(), tmp_path / "state.pt")
    words = ["import", "yolov5", str(tmp_path / "state.pt"), "--out", str(tmp_path / "mine")]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path / 'mine' / 'detector.safetensors'}\n" in said and "plates weights" in said
    assert cli.main([*words[:2], str(tmp_path / "none.pt"), *words[3:]]) == 1
    assert "none.pt: can't be read" in capsys.readouterr().err


ALPHABET = "0123456789ÅÄÖ"


@pytest.fixture
def nets(tmp_path: Path) -> tuple[LPRNet, STN]:
    torch.manual_seed(0)
    lprnet, stn = LPRNet(RecognizerSpec(alphabet=ALPHABET)).eval(), STN().eval()
    nn.init.normal_(stn.localization[-1].weight, std=0.05)
    torch.save(lprnet.state_dict(), tmp_path / "lprnet.pt")
    save_file(stn.state_dict(), tmp_path / "stn.safetensors")
    return lprnet, stn


def test_imported_weights_compute_what_they_did(
    tmp_path: Path, nets: tuple[LPRNet, STN], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine"
    files = (str(tmp_path / "lprnet.pt"), str(tmp_path / "stn.safetensors"))
    assert (
        cli.main(["import", "recognizer", *files, "--alphabet", ALPHABET, "--out", str(out)]) == 0
    )
    shutil.copy(weights.WEIGHTS_DIR / "detector.safetensors", out)
    assert cli.main(["weights", "--weights", str(out)]) == 0
    assert "recognizer.safetensors" in capsys.readouterr().out
    modules = weights.load_modules(out)
    assert modules.specs.recognizer.alphabet == ALPHABET
    crops = torch.rand(2, 3, 64, 160) * 2 - 1
    with torch.inference_mode():
        plates, theta = modules.rectify(crops)
        assert torch.equal(theta, nets[1](crops)[1])
        assert torch.equal(modules.recognize(plates), nets[0](plates))


def test_a_country_without_formats_is_refused(tmp_path: Path, nets: tuple[LPRNet, STN]) -> None:
    files = (tmp_path / "lprnet.pt", tmp_path / "stn.safetensors")
    with pytest.raises(weights.WeightsError, match=r"country: .*nowhere\.toml"):
        import_recognizer(*files, ALPHABET, tmp_path / "mine", country="nowhere")


@pytest.mark.parametrize(
    ("files", "alphabet", "message"),
    [
        (("lprnet.pt", "stn.safetensors"), "ABC", r"lprnet\.pt: head\.weight: expected \(4, "),
        (("stn.safetensors", "lprnet.pt"), ALPHABET, r"stem\.0\.weight: .* found no such tensor"),
        (("lprnet.pt", "lprnet.pt"), ALPHABET, r"localization\.0\.0\.weight: .*no such tensor"),
        (("lprnet.pt", "stn.safetensors"), ALPHABET[:-1] + "0", "alphabet: expected every"),
        (("lprnet.pt", "stn.safetensors"), "", "alphabet: .* at least 1 character"),
        (("lprnet.pt", "none.pt"), ALPHABET, r"none\.pt: can't be read"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_written(
    tmp_path: Path,
    nets: tuple[LPRNet, STN],
    files: tuple[str, str],
    alphabet: str,
    message: str,
) -> None:
    out = tmp_path / "mine"
    with pytest.raises(weights.WeightsError, match=message):
        import_recognizer(tmp_path / files[0], tmp_path / files[1], alphabet, out)
    assert not out.exists()
