"""`plates import`: nets compute the same as before; files that don't fit or do harm are refused."""

import copy
import os
import pickle
import random
import shutil
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from plate_models import release, weights
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.nets.yolov5 import YOLOv5
from plate_models.spec import DetectorSpec, RecognizerSpec
from plate_models.training.checkpoints import read_state
from plate_models.training.importing import import_recognizer, import_yolov5, spec_of

STEM, ANCHORS, HEAD = "model.0.conv.weight", "model.24.anchors", "model.24.m.0.weight"
BLOCK = "model.4.cv1.conv.weight"
ALPHABET = "0123456789ÅÄÖ"

# Width, depth, anchors and classes differ from the released detector's.
SPEC = DetectorSpec(
    classes=("one_line",),
    anchors_wh=tuple(
        ((10.0 * k, 13.0 * k), (16.0 * k, 30.0 * k), (33.0 * k, 23.0 * k)) for k in (1, 3, 9)
    ),
    width_multiple=0.125,
    depth_multiple=0.33,
)


def make_net():
    """A net with random weights and statistics, rounded to float16 as in published files."""
    torch.manual_seed(0)
    net = YOLOv5(SPEC)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    return net.half().float().eval()


def heads(net):
    """The net's raw outputs, before the sigmoid."""
    canvas = torch.rand(1, 3, 96, 160, generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        return net(canvas)


def checkpoint_of(net):
    """A checkpoint as YOLOv5 saves it, but without its other objects."""
    net.yaml = {"nc": 1, "depth_multiple": 0.33, "backbone": [[-1, 1, "Conv", [64, 6, 2, 2]]]}
    net.names, net.stride = {0: "plate"}, torch.tensor([8.0, 16.0, 32.0])
    return {"model": net, "ema": None}


def renamed_state(net, prefix):  # with other prefixes than "model."
    return {f"{prefix}{key.removeprefix('model.')}": v for key, v in net.state_dict().items()}


@pytest.mark.parametrize(
    ("form", "save"),
    [
        (checkpoint_of, torch.save),
        (lambda net: {"model": nn.Linear(2, 2), "ema": net}, torch.save),
        (lambda net: {"state_dict": net.state_dict()}, torch.save),
        (partial(renamed_state, prefix=""), torch.save),
        (partial(renamed_state, prefix="module.model.model."), save_file),
    ],
)
def test_imported_detectors_compute_the_same_as_before(tmp_path, form, save, run):
    net = make_net()
    save(form(copy.deepcopy(net).half()), tmp_path / "best.pt")
    detector = tmp_path / "mine" / "detector.safetensors"
    done = run("import", "yolov5", tmp_path / "best.pt", "--out", detector.parent)
    assert done.returncode == 0
    assert f"{detector}\n" in done.stdout and "plates weights" in done.stdout
    for name in ("recognizer", "rectifier"):
        shutil.copy(release.WEIGHTS_DIR / f"{name}.safetensors", detector.parent)
    release.write_manifest(detector.parent)
    loaded = weights.load_modules(detector.parent)
    found = loaded.config.specs.detector
    assert found.classes == ("one_line",)
    assert (found.width_multiple, round(found.depth_multiple, 2)) == (0.125, 0.33)
    anchors = torch.tensor(found.anchors_wh)
    torch.testing.assert_close(anchors, torch.tensor(SPEC.anchors_wh), rtol=1e-3, atol=0)
    torch.testing.assert_close(heads(loaded.detect.net), heads(net), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("width", "depth"), [(0.25, 0.33), (0.5, 0.33), (0.75, 0.67), (1.0, 1.0), (1.25, 1.33)]
)
def test_every_size_of_yolov5_is_recognized_by_its_shapes(width, depth):
    def state_of(spec):
        with torch.device("meta"):  # shapes without values
            return YOLOv5(spec).state_dict()

    state = state_of(DetectorSpec(width_multiple=width, depth_multiple=depth))
    found = state_of(spec_of(state | {ANCHORS: torch.ones(3, 3, 2)}, Path("net.pt")))
    assert [(k, v.shape) for k, v in found.items()] == [(k, v.shape) for k, v in state.items()]


# None removes every tensor whose name begins with the key.
OLD_STEM = {STEM: None, "model.0.conv.conv.weight": torch.ones(8, 3, 6, 6)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({HEAD: torch.ones(())}, rf"{HEAD}: expected \(any"),
        ({HEAD: torch.ones(255, 32, 1, 1)}, f"{HEAD}: expected 18 or 21 rows"),
        ({"model.13.cv1.conv": None}, "model.13.cv1.conv.weight: .* found no such tensor"),
        ({BLOCK: torch.ones(9, 32, 1, 1)}, rf"{BLOCK}: expected \(16, 32, 1, 1\)"),
        ({ANCHORS: torch.ones(4, 3, 2)}, rf"{ANCHORS}: expected .* found \(4, 3, 2\)"),
        ({ANCHORS: torch.zeros(3, 3, 2)}, r"anchors_wh\[0\]\[0\]\[0\]: expected greater than 0"),
        ({STEM: torch.ones(8, 3, 3, 3)}, rf"{STEM}: .* found \(8, 3, 3, 3\)"),  # of YOLOv8
        (OLD_STEM, f"expected a stem {STEM}"),  # of YOLOv5 before v6
    ],
)
def test_the_first_tensor_that_does_not_fit_is_named(tmp_path, changes, message):
    gone = tuple(key for key, value in changes.items() if value is None)
    kept = {k: v for k, v in make_net().state_dict().items() if not k.startswith(gone)}
    added = {key: value for key, value in changes.items() if value is not None}
    torch.save(kept | added, tmp_path / "other.pt")
    with pytest.raises(release.WeightsError, match=rf"other\.pt: .*{message}"):
        import_yolov5(tmp_path / "other.pt", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


@pytest.fixture
def nets(tmp_path):
    torch.manual_seed(0)
    lprnet, stn = LPRNet(RecognizerSpec(alphabet=ALPHABET)).eval(), STN().eval()
    nn.init.normal_(stn.localization[-1].weight, std=0.05)
    torch.save(lprnet.state_dict(), tmp_path / "lprnet.pt")
    save_file(stn.state_dict(), tmp_path / "stn.pt")
    torch.save({"head.bias": torch.ones(())}, tmp_path / "number.pt")
    return lprnet, stn


def test_imported_recognizers_compute_the_same_as_before(tmp_path, nets, run):
    out, files = tmp_path / "mine", (tmp_path / "lprnet.pt", tmp_path / "stn.pt")
    done = run("import", "recognizer", *files, "--alphabet", ALPHABET, "--out", out)
    assert done.returncode == 0
    assert "recognizer.safetensors" in done.stdout
    shutil.copy(release.WEIGHTS_DIR / "detector.safetensors", out)
    assert run("weights", "--weights", out).returncode == 0
    loaded = weights.load_modules(out)
    assert loaded.config.specs.recognizer.alphabet == ALPHABET
    crops = torch.rand(2, 3, 64, 160) * 2 - 1
    with torch.inference_mode():
        plates, theta = loaded.rectify(crops)
        assert torch.equal(theta, nets[1](crops)[1])
        assert torch.equal(loaded.recognize(plates), nets[0](plates))


@pytest.mark.parametrize(
    ("files", "alphabet", "country", "message"),
    [
        (("lprnet", "stn"), "ABC", "ru", r"lprnet\.pt: head\.weight: expected \(4, "),
        (("number", "stn"), ALPHABET, "ru", r"number\.pt: .*no such tensor"),
        (("lprnet", "lprnet"), ALPHABET, "ru", r"localization\.0\.0\.weight: .*no such tensor"),
        (("lprnet", "stn"), ALPHABET[:-1] + "0", "ru", "alphabet: expected every"),
        (("lprnet", "stn"), "", "ru", "alphabet: String should have at least 1 character"),
        (("lprnet", "stn"), ALPHABET, "nowhere", r"countries: .*nowhere\.toml"),
    ],
)
def test_recognizers_that_do_not_fit_are_refused(tmp_path, nets, files, alphabet, country, message):
    lprnet, stn = (tmp_path / f"{name}.pt" for name in files)
    with pytest.raises(release.WeightsError, match=message):
        import_recognizer(lprnet, stn, alphabet, tmp_path / "mine", [country])
    assert not (tmp_path / "mine").exists()


EXECUTED = "executed"  # the file that hostile pickles create if their code runs
TOUCH = f"touch {EXECUTED}"


class Calls:
    """Pickled as the call of a function, which may be the result of another such call."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __call__(self):
        """Callable, as pickle requires it of a function."""

    def __reduce__(self):
        return self.call


def archived(data, **others):
    """Return a function that writes torch's zip archive of a pickle (bytes) or a value."""
    content = data if isinstance(data, bytes) else pickle.dumps(data, 2)
    entries = {"data.pkl": content, "version": b"3\n", **others}

    def make(path):
        with zipfile.ZipFile(path, "w") as file:
            for name in entries:
                file.writestr(f"archive/{name}", entries[name])

    return make


def saved(value, change=bytes):
    def make(path):
        torch.save(value, path)
        path.write_bytes(change(path.read_bytes()))

    return make


# The opcode BUILD sets an object's __setstate__, which the next BUILD calls.
PLANTED = b"\x80\x02ctorch.nn\nIdentity\n)\x81}U\x0c__setstate__csubprocess\nrun\nsb]b."
NEW_OBJECT = b"\x80\x02csubprocess\nPopen\n](U\x05touchU\x08executede\x85\x81."
OBJECT = b"\x80\x02(cos\nsystem\nU\x0etouch executedo."
REDUCED = Calls(os.system, TOUCH)
FETCHED = Calls(Calls(getattr, Calls(__import__, "os"), "system"), TOUCH)
AGAIN = Calls(torch.storage._load_from_bytes, pickle.dumps(REDUCED))
GRANDCHILD_OF_ITSELF = nn.Sequential(nn.Sequential())
GRANDCHILD_OF_ITSELF[0].append(GRANDCHILD_OF_ITSELF)
OFTEN = {f"w{k}": view for k, view in enumerate(torch.ones(10_000).expand(50, 10_000))}
SEEN = torch.tensor(list(b"????"), dtype=torch.uint8)  # four bytes that a test finds in the file
REFUSED = {
    # These would create a file if their code ran.
    "reduced": (archived(REDUCED), "posix.system"),
    "fetched": (archived(FETCHED), "__import__"),
    "object": (archived(OBJECT), "Unsupported operand"),
    "new object": (archived(NEW_OBJECT), "calls subprocess.Popen"),
    "loaded again": (archived(AGAIN), "calls torch.storage._load_from_bytes"),
    "planted": (archived(PLANTED), "calls subprocess.run"),
    # These would take endless time or memory, or are broken.
    "module in itself": (saved(GRANDCHILD_OF_ITSELF), "recursion"),
    "one storage often": (saved(OFTEN), "its tensors claim 2000000 bytes, it has"),
    "no end": (archived(b"\x80\x02}"), "can't be read"),
    "truncated": (saved({"w": torch.ones(1000)}, lambda raw: raw[:2000]), "can't be read"),
    "damaged": (saved({"w": SEEN}, lambda raw: raw.replace(b"????", b"???x")), "CRC"),
    "safetensors": (lambda path: path.write_bytes(b"\x10" + bytes(7) + b"{never"), "can't be read"),
    # These have nothing to import.
    "scripted": (archived({}, **{"constants.pkl": b""}), "torchscript"),
    "before torch 1.6": (
        lambda path: torch.save({}, path, _use_new_zipfile_serialization=False),
        r"neither .*before 1\.6.*save its state dict",
    ),
    "a number": (saved(42), "found int"),
    "a tensor and a text": (saved({"state_dict": {"a": SEEN, "b": ""}}), "'b' is none"),
    "a module without tensors": (saved(nn.Identity()), "Identity"),
    "a tensor without values": (saved({"a": torch.empty(3, device="meta")}), "no data"),
    "empty file": (Path.touch, "neither a safetensors file nor a torch archive"),
    "missing": (lambda _: None, "can't be read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_are_refused_with_a_reason_and_no_code_of_theirs_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, message = REFUSED[name]
    make(path := tmp_path / "refused.pt")
    with pytest.raises(release.WeightsError, match=rf"refused\.pt: .*({message})"):
        read_state(path)
    assert not Path(EXECUTED).exists()


def test_tensors_are_returned_contiguous_and_floats_as_float32(tmp_path):
    grid, shared = torch.arange(24.0).view(4, 6), torch.arange(10.0)
    saved = {
        "strided": grid.t()[::2, 1::2].half(),
        "empty": torch.zeros(0, 3),
        "tail": shared[4:],
        "parameter": nn.Parameter(torch.ones(2)),
        "integers": torch.tensor([1, -2]),
    }
    torch.save(saved, path := tmp_path / "state.pt")
    found = read_state(path)
    assert list(found) == list(saved)
    for key, value in saved.items():
        assert torch.equal(found[key], value) and found[key].is_contiguous(), key
        assert found[key].dtype == (torch.int64 if key == "integers" else torch.float32)


def test_a_module_is_read_beside_other_objects_and_damage_raises_only_checkpoint_errors(tmp_path):
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
    torch.save({"model": module, **extras}, path := tmp_path / "last.pt")
    found = read_state(path)
    assert set(found) == set(module.state_dict())
    for key, value in module.state_dict().items():
        assert torch.equal(found[key], value), key
    sound, rng, refused = path.read_bytes(), random.Random(0), 0
    for _ in range(300):
        damaged = bytearray(sound)
        for _ in range(rng.choice((1, 3))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            read_state(path)
        except release.WeightsError:
            refused += 1
    assert refused > 100
