"""The tools that measure in this process: tables, floors, pictures and refusals."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_cases import labelled_set
from PIL import Image
from published_recognizer import save_stand_ins

from plate_models.baseline import Baseline, PublishedShape
from plate_models.cores import THREADS
from plate_models.engines.nets import Nets, load_nets
from plates.benchmarks import baseline, creep, floor, scaling
from plates.benchmarks.speed import arithmetic
from plates.benchmarks.speed.arithmetic import NetFloor
from plates.benchmarks.speed.creep import Record
from plates.benchmarks.speed.published import PUBLISHED, SideBySide, photos_of_size
from plates.benchmarks.speed.scaling import Growth
from plates.benchmarks.speed.stages import STAGES
from plates.benchmarks.speed.turns import Times
from plates.cli import main as cli
from plates.cli import options


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_stand_ins(tmp_path_factory.mktemp("published"))


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Engines that stay, on one thread: threads that wait for a busy machine spin."""
    monkeypatch.setattr(options, "load_nets", lambda arguments: engine(arguments.engine))
    monkeypatch.setenv(THREADS, "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def engine(name: str) -> Nets:
    return load_nets(name)


def bench(tmp_path: Path, *words: str) -> int:
    outputs = ["--plot", str(tmp_path / "plot.png"), "--json", str(tmp_path / "all.json")]
    return cli.main(["bench", *words, "--seconds", "0.1", *outputs])


def figures(tmp_path: Path) -> dict[str, object]:
    with Image.open(tmp_path / "plot.png") as picture:
        assert picture.format == "PNG"
    found: dict[str, object] = json.loads((tmp_path / "all.json").read_text())
    assert "cores" in str(found["machine"])
    return found


def times(*wall_ms: float) -> Times:
    return Times(wall_ms, wall_ms)


def test_stages_of_both_engines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, "stages") == 0
    out = capsys.readouterr().out
    assert "cores" in out and "Engine served" in out and "Engine torch" in out
    assert all(out.count(f"{stage}  ") >= 2 for stage in STAGES)
    assert out.count("the whole, untimed") == 2
    assert set(figures(tmp_path)) == {"machine", "engines"}


def test_baseline_on_the_standard_photo_and_on_a_labelled_set(
    tmp_path: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = labelled_set(tmp_path / "set", "green_car.jpg")
    photo = data / "images" / "green_car.jpg"
    large = Image.open(photo).resize((1920, 1080))
    photo.unlink()  # a link to the sample
    large.save(photo)
    words = ["--baseline", str(published), "--data", str(data)]
    status = bench(tmp_path, "baseline", *words)
    out = capsys.readouterr().out
    # Which is faster by how much is the quiet machine's to say.
    assert status == int("MISSED" in out)
    assert "the standard photo: 1 photos, 2 plates" in out and f"{data}: 1 photos, 1 plate" in out
    assert out.count("p50 of ours over that of the published shape") == 2
    assert "torch" not in out
    assert set(figures(tmp_path)) == {"machine", "sets"}


@pytest.mark.parametrize(("ours_ms", "holds"), [(14.9, True), (15.1, False)])
def test_baseline_holds_up_to_its_floor(ours_ms: float, holds: bool) -> None:
    side = SideBySide(1, 2, {"served": times(ours_ms), PUBLISHED: times(100.0)})
    verdict = baseline._verdict("a photo", side)
    assert verdict.holds is holds and f"{ours_ms / 100:.3f}" in verdict.came
    assert side.to_dict()["ratios"]["served"]["ratio"] == pytest.approx(ours_ms / 100)


def test_only_photos_of_the_size_are_taken(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="1920x1080"):
        photos_of_size(labelled_set(tmp_path / "set", "green_car.jpg"))


def test_the_published_shape_reads_the_boxes_it_is_given(published: Path) -> None:
    shape = PublishedShape(Baseline(published))
    image = np.zeros((720, 1280, 3), np.uint8)
    boxes = [(10.0, 10.0, 90.0, 30.0), (1200.0, 700.0, 1280.0, 720.0)]
    assert shape.read(image, boxes) == ["0", "0"]


def test_floor_of_each_net(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = bench(tmp_path, "floor", "--sizes", "64", "96")
    out = capsys.readouterr().out
    assert status == int("MISSED" in out)
    assert "1x3x448x768" in out and "GFLOP/s" in out and "time of yolo" in out
    assert set(figures(tmp_path)) == {"machine", "nets"}


@pytest.mark.parametrize(("p50_ms", "holds"), [(19.9, True), (20.1, False)])
def test_a_net_holds_up_to_twice_its_floor(p50_ms: float, holds: bool) -> None:
    rates = {"float32": 50.0, "bfloat16": 100.0}
    one = NetFloor("yolo", (1,), 1000, "bfloat16", times(p50_ms), rates)
    assert (one.floor_ms("float32"), one.floor_ms("bfloat16")) == (20, 10)
    assert floor._verdict(one).holds is holds


def test_scaling_over_plates_and_pixels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "PLATES", (1, 2, 4))
    monkeypatch.setattr(scaling, "MEGAPIXELS", (1, 1.5, 2))
    status = bench(tmp_path, "scaling")
    out = capsys.readouterr().out
    assert status == int("MISSED" in out)
    assert "holds   plates found: all" in out
    assert "ms per plate" in out and "ms per megapixel" in out
    assert set(figures(tmp_path)) == {"machine", "series"}


def test_cost_that_grows_faster_than_a_line_is_refused() -> None:
    amounts = (1.0, 4.0, 16.0, 64.0)
    straight = Growth("plate", amounts, tuple(times(30 + n) for n in amounts))
    square = Growth("plate", amounts, tuple(times(30 + 0.1 * n**2) for n in amounts))
    assert scaling.verdict_of(straight).holds
    assert not scaling.verdict_of(square).holds


def test_creep_writes_compares_and_names_what_became_slower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "speed.json"
    words = ["bench", "creep", "--seconds", "0.1", "--file", str(file)]
    assert cli.main(words) == 1
    assert "make it with --write" in capsys.readouterr().err
    assert cli.main([*words, "--write"]) == 0
    kept = json.loads(file.read_text())
    assert "cores" in kept["machine"]
    for one in kept["stages"].values():
        one["ratio"] *= 1000
    file.write_text(json.dumps(kept))
    assert cli.main(words) == 0
    assert "No stage became slower" in capsys.readouterr().out
    for name in ("yolo", "whole"):
        kept["stages"][name]["ratio"] /= 1_000_000
    file.write_text(json.dumps(kept))
    assert cli.main(words) == 1
    out = capsys.readouterr().out
    assert "CREPT   yolo takes" in out and "2 stages became slower" in out


def test_the_kept_figures_are_whole() -> None:
    assert "core" in Record.read(creep.KEPT).machine


@pytest.mark.parametrize("tool", ["stages", "floor", "scaling", "creep"])
def test_there_must_be_time_to_measure(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", tool, "--seconds", "0"]) == 1
    assert "--seconds: expected more than 0, got 0" in capsys.readouterr().err


def test_a_photo_must_be_there_and_have_a_plate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(tmp_path, "stages", "--photo", str(tmp_path / "none.jpg")) == 1
    assert "none.jpg: No such file" in capsys.readouterr().err
    empty = tmp_path / "empty.png"
    Image.new("RGB", (320, 180)).save(empty)
    assert bench(tmp_path, "stages", "--photo", str(empty)) == 1
    assert "expected a photo with at least one plate" in capsys.readouterr().err
    empty.write_bytes(b"nothing")
    assert bench(tmp_path, "stages", "--photo", str(empty)) == 2
    assert str(empty) in capsys.readouterr().err


def test_baseline_needs_the_published_recognizer(
    tmp_path: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(tmp_path, "baseline", "--baseline", str(tmp_path)) == 1
    assert "stn.pt: the published recognizer is not there" in capsys.readouterr().err
    words = ["baseline", "--baseline", str(published)]
    assert bench(tmp_path, *words, "--data", str(tmp_path)) == 1
    assert "plates.csv" in capsys.readouterr().err
    assert bench(tmp_path, *words, "--photos", "-1") == 1
    assert "--photos: expected 0 or more" in capsys.readouterr().err


def test_sizes_of_matrices_are_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "floor", "--sizes", "0"]) == 1
    assert "--sizes: expected 1 or more" in capsys.readouterr().err
    assert min(arithmetic.SIZES) >= 1024
