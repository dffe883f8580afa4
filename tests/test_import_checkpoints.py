"""Tensors come out of checkpoints as torch put them in."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from plate_models.training.importing import CheckpointError
from plate_models.training.importing.checkpoints import read_state


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_precision_becomes_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.linspace(-2, 2, 9, dtype=dtype)
    torch.save({"w": values}, tmp_path / "state.pt")
    found = read_state(tmp_path / "state.pt")["w"]
    assert found.dtype == torch.float32
    assert torch.equal(found, values.float())


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
