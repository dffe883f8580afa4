"""The rendered benchmark: the same for everybody, and none of training's."""

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from plate_models.engines.nets import Nets, load_nets
from plate_models.images import decode
from plate_models.pipeline import Plate
from plate_models.training.benchmark import BenchmarkPhoto, photo_named, render_photo, render_photos
from plate_models.training.evaluation.rendered import (
    QUESTIONS,
    RenderedReport,
    corner_error,
    count_questions,
    load_rendered,
    score_rendered,
)
from plate_models.training.synthetic.kinds import CAR, KINDS
from plates.cli import main as cli

TRAINING = ("clutter", "crops", "photo", "plates", "scenes", "wear")


@pytest.fixture(scope="module")
def photos() -> list[BenchmarkPhoto]:
    """Eight photos of cars, two of each other kind."""
    return [render_photo(kind, n) for kind in KINDS for n in range(8 if kind == CAR else 2)]


def test_photos_follow_from_their_names(photos: list[BenchmarkPhoto]) -> None:
    assert len({photo.file for photo in photos}) == len(photos)
    assert render_photo("ru.car", 0, seed=1).file not in {photo.file for photo in photos}
    by_name = {photo.name: photo for photo in photos}
    again = list(render_photos([("ru.car", 1), ("ru.motorcycle", 0)], workers=1))
    assert [photo.name for photo in again] == ["ru.car-0001", "ru.motorcycle-0000"]
    for photo in again:
        assert photo.file == by_name[photo.name].file == photo_named(photo.name).file
        np.testing.assert_array_equal(load_rendered(photo.name), decode(photo.file))
    with pytest.raises(ValueError, match=r"expected a kind of plate out of ru\.car"):
        render_photo("ru.bicycle", 0)


def test_labels_are_of_the_sizes_promised(photos: list[BenchmarkPhoto]) -> None:
    plates = [(photo, plate) for photo in photos for plate in photo.plates]
    for photo, plate in plates:
        width, height = Image.open(io.BytesIO(photo.file)).size
        assert (width, height) in ((960, 540), (1280, 720))
        x0, y0, x1, y1 = plate.box
        assert x0 >= 0 and y0 >= 0 and x1 <= width and y1 <= height
        assert (45 if plate.lines == 2 else 70) <= plate.width <= 400


def test_nothing_of_the_benchmark_knows_what_training_renders() -> None:
    code = "import sys, plate_models.training.benchmark; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "plate_models.training.synthetic.ink" in loaded
    assert not loaded & {f"plate_models.training.synthetic.{name}" for name in TRAINING}
    assert "torch" not in loaded


def moved(plate: Plate, x: float) -> Plate:
    """The same plate, so many pixels to the right."""
    quad = tuple((corner[0] + x, corner[1]) for corner in plate.quad)
    return replace(plate, box=tuple(np.add(plate.box, (x, 0, x, 0)).tolist()), quad=quad)


def test_each_fault_shows_in_its_column(
    photos: list[BenchmarkPhoto], monkeypatch: pytest.MonkeyPatch
) -> None:
    nets, photo = load_nets(), next(p for p in photos if p.name == "ru.motorcycle-0000")
    (label,) = photo.plates
    (read,) = nets.read(torch.from_numpy(decode(photo.file)))
    right = replace(read, quad=tuple(map(tuple, label.quad.tolist())))
    wrong_text = replace(read.reading, text="0000AA00", candidates=(("0000AA00", 0.9),))
    wrong = replace(right, lines=1, reading=wrong_text)

    def score(*plates: Plate) -> tuple[RenderedReport, set[str]]:
        monkeypatch.setattr(Nets, "read", lambda *_: list(plates))
        report = RenderedReport(1, *score_rendered(photo, nets))
        return report, {count.name for count in count_questions(report.plates) if count.hits}

    report, hits = score(moved(right, 0.02 * label.width))
    assert hits == set(QUESTIONS) and not report.false_texts.hits
    error = corner_error(report.plates)
    assert error and error.mean == pytest.approx(0.02, abs=1e-5)
    report, hits = score()
    assert hits == {"no wrong"} and corner_error(report.plates) is None
    assert "nothing found" in "\n".join(report.lines())
    assert score(wrong)[1] == {"found", "format"}
    report, hits = score(right, moved(wrong, 2e3))
    assert "read" in hits and report.false_texts.hits == 1
    nothing = RenderedReport(0)
    assert any("0/0" in line for line in nothing.lines()) and nothing.to_dict()["plates"] == []
    assert list(render_photos([], workers=0)) == []


def test_eval_scores_the_benchmark_without_any_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PLATES_DATA", raising=False)
    files = ["--json", str(tmp_path / "kept.json"), "--sheet", str(tmp_path / "sheet.png")]
    assert cli.main(["eval", "--rendered", "--per-type", "1", "--workers", "0", *files]) == 0
    shown = capsys.readouterr().out
    kept = json.loads((tmp_path / "kept.json").read_text(encoding="utf-8"))["rendered"]
    assert set(kept["kinds"]) == {*KINDS, "all"}
    assert all(f"\n{kind} " in shown for kind in kept["kinds"])
    counts = {count["name"]: count for count in kept["kinds"]["all"]["counts"]}
    assert counts["found"]["total"] == len(kept["plates"]) >= len(KINDS)
    assert min(counts["found"]["hits"], counts["read"]["hits"]) >= len(KINDS) - 1
    with Image.open(tmp_path / "sheet-rendered.png") as sheet:
        assert sheet.width > 1000
