"""Checkpoints of torch: tensors are read unchanged, harmful files are refused with a reason."""

import os
import pickle
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from plate_models.release import WeightsError
from plate_models.training.checkpoints import read_state

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
    with pytest.raises(WeightsError, match=rf"refused\.pt: .*({message})"):
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
        except WeightsError:
            refused += 1
    assert refused > 100
