"""`plates calibrate`: crops whose text is known, read as served, and what comes out."""

import csv
import hashlib
import json
import math
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch

from plate_models.recognition import calibration
from plate_models.recognition.calibration import LOGIT_LIMIT, UNCALIBRATED, Calibration, sigmoid
from plate_models.rectification import crop_boxes
from plate_models.spec import DEFAULTS, RECTIFIER
from plate_models.training import calibration as calibrating
from plate_models.training.calibration import describe, isotonic, read_crops, with_threshold
from plate_models.training.known_crops import (
    DEFAULT_MIX,
    SETS,
    Block,
    KnownCrop,
    lay_out,
    least_width,
    paint,
    plan,
    render,
)
from plate_models.training.labels import validation_names
from plate_models.weights import WEIGHTS_DIR, check_manifest, load_modules, write_manifest
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
    # Few crops are spread over all photos.
    few = plan(data, "fit", 2, replace(DEFAULT_MIX, painted_share=1.0))
    assert [len(block.boxes) for block in few] == [1, 1]
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
    with pytest.raises(ValueError, match="too small"):
        paint(photo, np.array([100.0, 100, 112, 104]), rng)


def test_crops_laid_in_photos_are_cut_out_unchanged_and_apart() -> None:
    rng, spec = np.random.default_rng(0), DEFAULTS
    images = rng.integers(0, 256, (20, *RECTIFIER.crop_hw, 3), np.uint8)
    laid = [KnownCrop(im, "", "", 1 + k % 2, "rendered", 99.0) for k, im in enumerate(images)]
    assert list(lay_out([], spec)) == []

    def cut(crops: list[KnownCrop], wider: float) -> torch.Tensor:
        found = []
        for part, photo, boxes in lay_out(crops, spec):
            boxes += torch.tensor([-wider, -wider, wider, wider])
            found.append(crop_boxes(photo, boxes, torch.tensor([crop.lines for crop in part])))
        return torch.cat(found).permute(0, 2, 3, 1)

    assert np.array_equal(cut(laid, 0).numpy(), images)
    # A wider box shows nothing of the crops beside it.
    for crop, seen in zip(laid, cut(laid, 9), strict=True):
        torch.testing.assert_close(seen, cut([crop], 9)[0], atol=1, rtol=0)


def test_crops_are_read_as_served() -> None:
    mix = replace(DEFAULT_MIX, kinds=(("ru.car", 1.0),), median_size=4.0, size_spread=0.1)
    crops = [render(np.random.default_rng(seed), mix) for seed in range(6)]
    modules = load_modules(calibrated=False)
    assert read_crops([], modules).empty
    readings = read_crops(crops, modules)
    assert list(readings.text) == [crop.text for crop in crops]
    assert readings.right.sum() >= 5 and readings.raw.between(0, 1).all()
    alone = read_crops(crops[3:], modules)
    assert list(alone.read) == list(readings.read[3:])
    assert list(alone.raw) == pytest.approx(list(readings.raw[3:]))
    # A detector that takes one line for two: serving reads it as one line, too, and is surer.
    doubtful = read_crops([replace(crop, lines=2) for crop in crops[:3]], modules)
    assert list(doubtful.read) == [crop.text for crop in crops[:3]]


def test_calibrates_weights_that_have_another_ones_calibration(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, out = shutil.copytree(WEIGHTS_DIR, tmp_path / "weights"), tmp_path / "report"
    others = Calibration(recognizer_sha256="0" * 64)
    (weights / calibration.NAME).write_text(others.to_json())
    write_manifest(weights)
    words = ["--data", str(data), "--weights", str(weights), "--out", str(out)]
    words += ["--crops", "10", "--workers", "1", "--release"]
    assert cli.main(["calibrate", *words]) == 0
    printed = capsys.readouterr().out
    assert "as read" in printed and "readable from" in printed
    released = calibration.load(weights / calibration.NAME)
    digest = hashlib.sha256((weights / "recognizer.safetensors").read_bytes()).hexdigest()
    assert released.measured_with["recognizer"] == digest
    kept = json.loads((weights / calibration.NAME).read_text())["fit"]
    assert kept["crops_fitted"] == kept["measured"]["crops"] == 10
    assert kept["method"] in ("identity", "isotonic")
    assert released == calibration.load(out / calibration.NAME)
    check_manifest(weights)
    for name in ("reliability", "risk_coverage"):
        assert cv2.imread(str(out / f"{name}.png")) is not None
    measured = pd.read_csv(out / "measure.csv")
    assert len(measured) == 10 and set(measured.source) == {"rendered", "painted"}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--data", "nowhere"], "nowhere"),
        (["--data", "nowhere", "--workers", "0"], "--workers"),
        (["--data", "nowhere", "--crops", "3"], "crops"),
        (["--data", "nowhere", "--weights", "nowhere_either"], "nowhere_either"),
        ([], "--data"),
    ],
)
def test_what_is_missing_is_named(
    words: list[str],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("PLATES_DATA", raising=False)
    assert cli.main(["calibrate", "--out", str(tmp_path), *words]) == 1
    assert named in capsys.readouterr().err


def readings_of(scores: list[float], right: list[bool]) -> pd.DataFrame:
    rows = {"raw": np.array(scores, float), "right": np.array(right, bool)}
    return pd.DataFrame(rows).assign(eligible=True)


def test_quality_by_hand() -> None:
    readings = readings_of([0.9, 0.6, 0.9, 0.6], [True, False, True, True])
    found = describe(readings, UNCALIBRATED)
    assert (found["crops"], found["right"]) == (4, 0.75)
    # More bins than claims: each stands for itself.
    assert found["ece"] == pytest.approx((0.1 + 0.1 + 0.6 + 0.4) / 4)
    assert found["brier"] == pytest.approx((0.01 + 0.36 + 0.01 + 0.16) / 4)
    assert found["log_loss"] == pytest.approx(
        -(2 * math.log(0.9) + math.log(0.4) + math.log(0.6)) / 4, abs=1e-6
    )
    assert math.isfinite(describe(readings_of([1.0], [False]), UNCALIBRATED)["log_loss"])
    # The sure do not hide the doubtful.
    found = describe(readings_of([0.5] * 10 + [1.0] * 90, [True] * 100), UNCALIBRATED)
    assert found["ece"] == pytest.approx(0.05) and found["ece_doubtful"] == pytest.approx(0.5)
    # The surest 95 % include all that score as much as the last of them.
    right = [number >= 10 for number in range(100)]
    for scores, share in ((np.linspace(0.5, 1, 100), 90 / 95), (np.full(100, 0.5), 0.9)):
        found = describe(readings_of(list(scores), right), UNCALIBRATED)
        assert found["right_at_95"] == pytest.approx(share, abs=1e-5)


def test_isotonic_finds_what_came_true() -> None:
    rng = np.random.default_rng(1)
    truth = rng.uniform(0.05, 0.95, 20_000)
    right = rng.random(20_000) < truth
    raw = truth**8
    scores = calibrating.apply_all(isotonic(raw, right), raw)
    assert np.abs(scores - truth).mean() < 0.02
    assert (np.diff(scores[np.argsort(raw)]) >= 0).all()


def test_isotonic_claims_no_more_than_it_has_seen() -> None:
    raw = np.linspace(0.5, 0.99, 9)
    always = isotonic(raw, np.ones(9, np.bool_))
    assert always.apply(0.0) == always.apply(1.0) == pytest.approx(9.5 / 10)
    never = isotonic(raw, np.zeros(9, np.bool_))
    assert never.apply(1.0) == pytest.approx(0.5 / 10)
    assert isotonic(np.zeros(0), np.zeros(0, np.bool_)) == Calibration()

    # No fit leaves the range by rounding: 36.7 * n / n is more than 36.7 for this n.
    raw = np.concatenate([[0.5, 0.7], np.ones(227)])
    assert isotonic(raw, np.arange(229) != 1).knots[-1][0] == LOGIT_LIMIT


def test_threshold_of_what_is_readable() -> None:
    scores, right = [0.4, 0.6, 0.7, 0.8, 0.9], [True, True, False, True, True]

    def threshold(scores: list[float], right: list[bool], most_wrong: float) -> float:
        readings = readings_of(scores, right)
        return with_threshold(Calibration(), readings, most_wrong).readable_from

    assert threshold(scores, right, 0.0) == 0.8
    assert threshold(scores, right, 0.25) == 0.6
    # No text that scores less than a half is readable.
    assert threshold(scores, right, 1.0) == 0.6
    assert threshold(scores, [not one for one in right], 0.0) == 1.0
    # Equal scores can't be told apart: a wrong one among them counts for all.
    assert threshold([0.9, 0.9], [True, False], 0.0) == 1.0
    assert threshold([], [], 0.5) == 1.0


def test_raw_scores_are_kept_where_a_map_is_no_better(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: Path
) -> None:
    """Readings that are right as often as their scores say, and readings that claim too much."""

    def read(claim: float, block: Block, **_: object) -> pd.DataFrame:
        rng = np.random.default_rng(block.key)
        logits = rng.normal(2, 2, 400)
        right = rng.random(400) < 1 / (1 + np.exp(-logits))
        return readings_of([sigmoid(claim * x) for x in logits.tolist()], right.tolist())

    for claim, method in ((1.0, "identity"), (3.0, "isotonic")):
        monkeypatch.setattr(calibrating, "_read_block", partial(read, claim))
        found = calibrating.calibrate(data, folder=tmp_path, crops=400, workers=0)
        assert found.report["method"] == method
