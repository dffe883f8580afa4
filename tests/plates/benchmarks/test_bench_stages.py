"""Where a photo's time goes, and which stage became slower."""

import json
from functools import cache

import pytest
import torch
from small_server import bench

from plate_models.cores import THREADS
from plate_models.engines.nets import load_nets
from plates.benchmarks import stages
from plates.benchmarks.stages import COMPARED

SHORT = ("stages", "--seconds", "0.1")
engine = cache(load_nets)


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch):
    """Engines that stay, on one thread: threads that wait for a busy machine spin."""
    monkeypatch.setattr(stages, "load_nets", lambda arguments: engine(arguments.engine))
    monkeypatch.setenv(THREADS, "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_check_names_what_became_slower(tmp_path, capsys, monkeypatch):
    file = tmp_path / "speed.json"
    monkeypatch.setattr(stages, "KEPT", file)
    status, found = bench(tmp_path, *SHORT, "--write")
    assert status == 0 and "boxes and crops" in capsys.readouterr().out
    assert [row["stage"] for row in found["stages"]] == [*COMPARED]
    assert all(row["p50 ms"] > 0 and row["low"] <= row["yardsticks"] for row in found["stages"])
    kept = json.loads(file.read_text())["yardsticks"]
    for slower, factor in (("none", 1000), ("yolo, whole", 0.001)):
        changed = {name: 1000 * ratio for name, ratio in kept.items()}
        changed |= {name: factor * kept[name] for name in ("yolo", "whole")}
        file.write_text(json.dumps({"yardsticks": changed}))
        status, _ = bench(tmp_path, *SHORT, "--check")
        assert status == (slower != "none")
        assert f"than the kept figures: {slower} (" in capsys.readouterr().out
