"""Where a photo's time goes, and which stage became slower."""

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from plate_models.cores import THREADS
from plate_models.engines.nets import Nets, load_nets
from plates.benchmarks import stages
from plates.benchmarks.photos import STANDARD_PHOTO
from plates.benchmarks.stages import COMPARED, STAGES, read_kept, slower_stages, time_stages
from plates.cli import CommandError
from plates.cli import main as command


@cache
def engine(name: str) -> Nets:
    return load_nets(name)


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Engines that stay, on one thread: threads that wait for a busy machine spin."""
    monkeypatch.setattr(stages, "load_nets", lambda arguments: engine(arguments.engine))
    monkeypatch.setenv(THREADS, "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def bench(tmp_path: Path, *words: str) -> int:
    outputs = ["--plot", str(tmp_path / "plot.png"), "--json", str(tmp_path / "all.json")]
    return command.main(["bench", "stages", "--seconds", "0.1", *words, *outputs])


def test_stages_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path) == 0
    assert "boxes and crops" in capsys.readouterr().out
    with Image.open(tmp_path / "plot.png") as picture:
        assert picture.format == "PNG"
    rows = json.loads((tmp_path / "all.json").read_text())["stages"]
    assert [row["stage"] for row in rows] == [*COMPARED]
    assert all(row["p50 ms"] > 0 and row["low"] <= row["yardsticks"] for row in rows)


@pytest.mark.parametrize(
    ("net", "stage"), [("detect", "yolo"), ("rectify", "stn"), ("recognize", "lprnet")]
)
def test_time_is_charged_to_the_stage_that_spends_it(net: str, stage: str) -> None:
    def slow(batch: Tensor) -> Any:
        time.sleep(0.2)
        return getattr(engine("torch"), net)(batch)

    spent = time_stages(STANDARD_PHOTO.read_bytes(), replace(engine("torch"), **{net: slow}))
    wall = dict(zip(STAGES, spent[:, 0].tolist(), strict=True))
    assert wall[stage] >= 200
    assert min(wall.values()) > 0


def test_no_time_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(stages, "_now_ms", lambda: np.full(2, float(next(ticks))))
    spent = time_stages(STANDARD_PHOTO.read_bytes(), engine("torch"))
    assert spent.sum(0).tolist() == [next(ticks) - 1] * 2
    assert spent.min() >= 1


KEPT = dict.fromkeys(COMPARED, 1.0) | {"whole": 10.0}


@pytest.mark.parametrize(
    ("ratio", "low", "slower"),
    [(1.3, 1.2, True), (1.3, 1.1, False), (1.1, 1.05, False), (0.5, 0.4, False)],
)
def test_a_stage_is_slower_where_even_its_lower_bound_is(
    ratio: float, low: float, slower: bool
) -> None:
    now = [{"stage": "stn", "yardsticks": ratio, "low": low}]
    assert slower_stages(now, KEPT) == ["stn"] * slower
    assert slower_stages(now, {"stn": ratio / 2, "whole": 100 * ratio}) == [], "next to nothing"


def test_check_names_what_became_slower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "speed.json"
    words = ["--file", str(file)]
    assert bench(tmp_path, "--check", *words) == 1
    assert "make it with --write" in capsys.readouterr().err
    assert bench(tmp_path, "--write", *words) == 0
    kept = json.loads(file.read_text())
    assert "core" in kept["machine"] and read_kept(file) == kept["yardsticks"]
    kept["yardsticks"] = {name: 1000 * ratio for name, ratio in kept["yardsticks"].items()}
    file.write_text(json.dumps(kept))
    assert bench(tmp_path, "--check", *words) == 0
    assert "Slower than before: none" in capsys.readouterr().out
    for name in ("yolo", "whole"):
        kept["yardsticks"][name] /= 1_000_000
    file.write_text(json.dumps(kept))
    assert bench(tmp_path, "--check", *words) == 1
    assert "Slower than before: yolo, whole\n" in capsys.readouterr().out


def test_the_kept_figures_are_whole() -> None:
    assert set(read_kept(stages.KEPT)) == set(COMPARED)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '{"yardsticks": {"stn": 1}}'),
        json.dumps({"yardsticks": {**KEPT, "stn": "fast"}}),
    ],
)
def test_broken_figures_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "speed.json"
    path.write_text(text)
    with pytest.raises(CommandError, match="not what --write keeps"):
        read_kept(path)


def test_a_photo_must_be_there_and_have_a_plate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(tmp_path, "--photo", str(tmp_path / "none.jpg")) == 1
    assert "none.jpg: No such file" in capsys.readouterr().err
    empty = tmp_path / "empty.png"
    Image.new("RGB", (320, 180)).save(empty)
    assert bench(tmp_path, "--photo", str(empty)) == 1
    assert "at least one plate" in capsys.readouterr().err
    empty.write_bytes(b"nothing")
    assert bench(tmp_path, "--photo", str(empty)) == 2
    assert str(empty) in capsys.readouterr().err
