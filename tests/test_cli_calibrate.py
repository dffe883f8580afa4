"""`plates calibrate`: crops whose text is known, read as served, and what comes out."""

import csv
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from plate_models import calibration
from plate_models.calibrating.mix import DEFAULT_MIX, least_width, paint, render
from plate_models.calibrating.run import groups_of
from plate_models.calibrating.trials import SETS, Block, Trial, as_photo, plan, read_crops
from plate_models.geometry import crop_boxes
from plate_models.spec import RECTIFIER
from plate_models.training.detection_photos import validation_names
from plate_models.weights import WEIGHTS_DIR, check_manifest, load_modules
from plates.cli import main as cli

BOX = (120.0, 150.0, 280.0, 190.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos with a plate each, on both sides of the detector's split, and one too small."""
    folder = tmp_path_factory.mktemp("data")
    images = folder / "world_photos" / "images"
    images.mkdir(parents=True)
    names = [f"w_{number}.jpg" for number in range(8)]
    assert 0 < len(validation_names(names)) < len(names)
    rng = np.random.default_rng(0)
    rows = []
    for name in names:
        photo = cv2.GaussianBlur(rng.integers(0, 256, (320, 420, 3), np.uint8), (0, 0), 9)
        photo[150:190, 120:280] = 210
        cv2.imwrite(str(images / name), photo)
        rows += [(name, *BOX), (name, 10, 10, 60, 25)]
    with (folder / "world_photos" / "plates.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "x0", "y0", "x1", "y1"), *rows])
    return folder


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A copy of the released weights with a calibration that belongs to others."""
    folder = shutil.copytree(WEIGHTS_DIR, tmp_path / "weights")
    others = calibration.Calibration(recognizer_sha256="0" * 64)
    (folder / calibration.NAME).write_text(others.to_json())
    cli.main(["weights", "--weights", str(folder)])
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_sets_share_no_photo_and_no_chance(data: Path) -> None:
    plans = [plan(data, part, 450, DEFAULT_MIX) for part in SETS]
    keys = [block.key for blocks in plans for block in blocks]
    assert len(set(keys)) == len(keys)
    photos = [{block.photo.name for block in blocks if block.photo} for blocks in plans]
    assert photos[1] == validation_names(photos[0] | photos[1])
    assert not photos[0] & photos[1]
    for blocks in plans:
        assert sum(block.count for block in blocks) == 225
        painted = [len(block.boxes) for block in blocks if block.photo]
        assert sum(painted) == 225 and max(painted) - min(painted) <= 1
        assert {box for block in blocks for box in block.boxes} == {BOX}


def test_few_crops_are_spread_over_all_photos(data: Path) -> None:
    blocks = plan(data, "fit", 2, replace(DEFAULT_MIX, painted_share=1.0))
    assert [len(block.boxes) for block in blocks] == [1, 1]
    assert plan(data, "fit", 0, DEFAULT_MIX) == []


def test_blocks_are_repeatable_and_differ(data: Path) -> None:
    painted = next(block for block in plan(data, "fit", 20, DEFAULT_MIX) if block.photo)
    for block in (Block((0, 0, 0), count=2), painted):
        first, again = (block.make(5, DEFAULT_MIX) for _ in range(2))
        other = replace(block, key=(1, *block.key[1:])).make(5, DEFAULT_MIX)
        for a, b, c in zip(first, again, other, strict=True):
            assert a.text == b.text and np.array_equal(a.image, b.image)
            assert not np.array_equal(a.image, c.image)


def test_crops_are_as_large_as_the_mix_says() -> None:
    rng = np.random.default_rng(0)
    assert least_width("ru.car", DEFAULT_MIX.character_px) == pytest.approx(56, abs=0.1)
    photo = np.full((320, 420, 3), 120, np.uint8)
    crops = [render(rng) for _ in range(12)]
    crops += [paint(photo, np.array(BOX), rng) for _ in range(12)]
    for crop in crops:
        assert crop.image.shape == (*RECTIFIER.crop_hw, 3) and crop.image.dtype == np.uint8
        assert crop.width_px >= least_width(crop.kind, DEFAULT_MIX.character_px)
        assert crop.text and crop.lines in (1, 2)


def test_a_box_too_small_for_any_plate_is_refused() -> None:
    photo = np.full((320, 420, 3), 120, np.uint8)
    with pytest.raises(ValueError, match="too small"):
        paint(photo, np.array([100.0, 100, 112, 104]), np.random.default_rng(0))


def test_crops_laid_in_a_photo_are_cut_out_unchanged() -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, *RECTIFIER.crop_hw, 3), np.uint8)
    lines = torch.tensor([1, 2] * 20)
    photo, boxes = as_photo(images, lines, RECTIFIER)
    crops = crop_boxes(photo, boxes, lines)
    assert np.array_equal(crops.permute(0, 2, 3, 1).numpy(), images)


def test_a_wider_look_at_a_crop_sees_no_other_crop() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, *RECTIFIER.crop_hw, 3), np.uint8)
    lines = torch.tensor([1, 2, 1])
    wider = torch.tensor([-9.0, -9.0, 9.0, 9.0])
    photo, boxes = as_photo(images, lines, RECTIFIER)
    together = crop_boxes(photo, boxes + wider, lines)
    for place, crop in enumerate(together):
        alone = slice(place, place + 1)
        photo, boxes = as_photo(images[alone], lines[alone], RECTIFIER)
        expected = crop_boxes(photo, boxes + wider, lines[alone])[0]
        torch.testing.assert_close(crop, expected, atol=1, rtol=0)


def test_crops_are_read_as_served(one_thread: None) -> None:
    mix = replace(DEFAULT_MIX, kinds=(("ru.car", 1.0),))
    crops = [render(np.random.default_rng(seed), mix) for seed in range(6)]
    modules = load_modules(calibrated=False)
    assert read_crops([], modules) == []
    trials = read_crops(crops, modules)
    assert [trial.text for trial in trials] == [crop.text for crop in crops]
    assert sum(trial.right for trial in trials) >= 5
    assert all(0 <= trial.raw <= 1 for trial in trials)
    alone = read_crops(crops[3:], modules)
    assert [trial.read for trial in alone] == [trial.read for trial in trials[3:]]
    assert [trial.raw for trial in alone] == pytest.approx([trial.raw for trial in trials[3:]])


def test_groups_hold_every_trial_three_times() -> None:
    trials = [Trial("painted", "ru.car", width, "A", "A", True, 1.0) for width in (60, 80, 500)]
    groups = groups_of(trials)
    assert groups["painted"] == groups["ru.car"] == trials
    assert groups["width 0 to 80 px"] == trials[:1]
    assert groups["width 80 to 110 px"] == trials[1:2]
    assert groups["width from 220 px"] == trials[2:]


def test_calibrates_weights_that_have_another_ones_calibration(
    data: Path, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    words = ["--data", str(data), "--weights", str(weights), "--out", str(out)]
    words += ["--crops", "10", "--workers", "1", "--release"]
    assert cli.main(["calibrate", *words]) == 0
    printed = capsys.readouterr().out
    assert "isotonic, cross-validated" in printed and "readable from" in printed
    released = calibration.load(weights / calibration.NAME)
    digest = hashlib.sha256((weights / "recognizer.safetensors").read_bytes()).hexdigest()
    assert released.recognizer_sha256 == digest
    assert released == calibration.load(out / calibration.NAME)
    check_manifest(weights)
    report = json.loads((out / "report.json").read_text())
    assert report["crops_fitted"] == report["measured"]["crops"] == 10
    assert {"rendered", "painted"} < set(report["groups"])
    for name in ("reliability.png", "risk_coverage.png"):
        assert cv2.imread(str(out / name)) is not None
    assert len((out / "measure.csv").read_text().splitlines()) == 11
