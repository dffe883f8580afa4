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
from torch_archives import Calls, archive, payloads, strange_pickles, tensor

from plate_models import weights
from plate_models.graphs import compare_candidates
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.nets.yolov5 import YOLOv5
from plate_models.spec import RecognizerSpec
from plate_models.training.checkpoints import CheckpointError, read_state
from plate_models.training.importing import import_recognizer, import_yolov5, spec_of
from plates.cli import main as cli

State = dict[str, torch.Tensor]
Make = Callable[[Path], object]
Change = Callable[[State], None]


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
    "missing": (lambda path: None, "can't be read"),
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
        import_yolov5(path, tmp_path / "mine")
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
    blocks = {key: torch.ones(1) for key in (f"model.6.m.{k}.x" for k in range(round(9 * depth)))}
    shapes = {
        "model.0.conv.weight": (64, 3, 6, 6),
        "model.9.cv2.conv.weight": (int(1024 * width), 1, 1, 1),
        "model.24.anchors": (3, 3, 2),
        "model.24.m.0.weight": (21, 1, 1, 1),
    }
    state = blocks | {key: torch.ones(shape) for key, shape in shapes.items()}
    found = spec_of(state, Path("net.pt"))
    assert (found.width_multiple, len(found.classes)) == (width, 2)
    # What the depth decides is how often three, six and nine blocks are repeated.
    depths = [[max(round(n * d), 1) for n in (3, 6, 9)] for d in (depth, found.depth_multiple)]
    assert depths[0] == depths[1]


def put(key: str, value: torch.Tensor) -> Change:
    return lambda state: state.update({key: value})


def without(prefix: str) -> Change:
    def change(state: State) -> None:
        for key in [key for key in state if key.startswith(prefix)]:
            del state[key]

    return change


def with_eighty_classes(state: State) -> None:
    for level in range(3):
        key = f"model.24.m.{level}.weight"
        state[key] = torch.zeros(255, *state[key].shape[1:])


def with_the_stem_of_yolov5_before_v6(state: State) -> None:
    state["model.0.conv.conv.weight"] = state.pop("model.0.conv.weight")


def with_a_broken_number(state: State) -> None:
    state["model.1.conv.weight"][0, 0, 0, 0] = float("nan")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("model.24.m.0.weight", torch.tensor(1.0)), r"model\.24\.m\.0\.weight: expected axes"),
        (without("model.13.cv1.conv"), r"model\.13\.cv1\.conv\.weight: .* found no such tensor"),
        (without("model.24"), r"model\.24\.m\.0\.weight: .* found no such tensor"),
        (put("model.25.extra", torch.zeros(1)), r"model\.25\.extra: expected no such tensor"),
        (
            put("model.4.cv1.conv.weight", torch.zeros(9, 32, 1, 1)),
            r"model\.4\.cv1\.conv\.weight: expected \(16, 32, 1, 1\)",
        ),
        (with_eighty_classes, r"model\.24\.m\.0\.weight: expected 18 or 21 rows"),
        (put("model.24.anchors", torch.ones(4, 3, 2)), r"anchors: expected .* found \(4, 3, 2\)"),
        (put("model.24.anchors", torch.zeros(3, 0, 2)), r"24\.(anchors|m\.0\.weight): expected"),
        (put("model.24.anchors", torch.zeros(3, 3, 2)), "anchors_wh: expected positive sizes"),
        # The stem of YOLOv8.
        (
            put("model.0.conv.weight", torch.zeros(8, 3, 3, 3)),
            r"model\.0\.conv\.weight: .* found \(8, 3, 3, 3\)",
        ),
        (with_the_stem_of_yolov5_before_v6, r"expected a stem model\.0\.conv\.weight"),
        (with_a_broken_number, r"model\.1\.conv\.weight: expected finite values"),
        (
            put("model.1.bn.bias", torch.zeros(16, dtype=torch.int64)),
            r"model\.1\.bn\.bias: expected floats",
        ),
    ],
)
def test_other_layouts_are_refused_by_the_first_tensor(
    tmp_path: Path, change: Change, message: str
) -> None:
    state = make_net().state_dict()
    change(state)
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(weights.WeightsError, match=rf"other\.pt: .*{message}"):
        import_yolov5(tmp_path / "other.pt", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


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
        (("lprnet.pt", "stn.safetensors"), "", "alphabet: expected from 1"),
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
