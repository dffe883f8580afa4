"""`plates calibrate`: crops whose text is known, read as served, and what comes out."""

import hashlib
import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
from support import SAMPLES, labelled_set

from plate_models.recognition import calibration
from plate_models.recognition.calibration import LOGIT_LIMIT, UNCALIBRATED, Calibration, sigmoid
from plate_models.spec import RECTIFIER
from plate_models.training import calibration as calibrating
from plate_models.training.calibration import describe, isotonic, read_crops, with_thresholds
from plate_models.training.known_crops import (
    DEFAULT_MIX,
    SETS,
    Block,
    least_width,
    paint,
    plan,
    render,
)
from plate_models.training.labels import validation_names
from plate_models.weights import WEIGHTS_DIR, check_manifest, load_modules, write_manifest
from plates.cli import main as cli


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos on both sides of the detector's split, with plates large and small."""
    folder = tmp_path_factory.mktemp("data")
    labelled_set(folder / "world_photos", *sorted(file.name for file in SAMPLES.glob("*.jpg")))
    return folder


def test_the_sets_share_no_photo_and_no_chance(data: Path) -> None:
    plans = [plan(data, part, 450, DEFAULT_MIX) for part in SETS]
    keys = [block.key for blocks in plans for block in blocks]
    assert len(set(keys)) == len(keys)
    names = [path.name for path in (data / "world_photos" / "images").iterdir()]
    for part, blocks in zip(SETS, plans, strict=True):
        photos = {block.photo.name for block in blocks if block.photo}
        assert photos and all((n in validation_names(names)) == (part == "measure") for n in photos)
        boxes = [box for block in blocks for box in block.boxes]
        assert sum(block.count for block in blocks) == len(boxes) == 225
        assert all(box[2] - box[0] >= DEFAULT_MIX.painted_over_px for box in boxes)
        times = [boxes.count(box) for box in boxes]
        assert max(times) - min(times) <= 1
    # Few crops are spread over all photos.
    few = plan(data, "fit", 2, replace(DEFAULT_MIX, painted_share=1.0))
    assert [len(block.boxes) for block in few] == [1, 1]
    assert plan(data, "fit", 0, DEFAULT_MIX) == []


def test_crops_are_repeatable_and_as_large_as_the_mix_says(data: Path) -> None:
    assert least_width("ru.car", DEFAULT_MIX.character_px) == pytest.approx(56, abs=0.1)
    painted = next(block for block in plan(data, "fit", 8, DEFAULT_MIX) if block.photo)
    for block in (Block((0, 0, 0), count=3), painted):
        first, again = (block.make(5, DEFAULT_MIX) for _ in range(2))
        other = replace(block, key=(1, *block.key[1:])).make(5, DEFAULT_MIX)
        for a, b, c in zip(first, again, other, strict=True):
            assert a.text == b.text and np.array_equal(a.image, b.image)
            assert not np.array_equal(a.image, c.image)
            assert a.image.shape == (*RECTIFIER.crop_hw, 3) and a.image.dtype == np.uint8
            assert a.width_px >= least_width(a.kind, DEFAULT_MIX.character_px)
            assert a.text and a.lines in (1, 2)
    with pytest.raises(ValueError, match="too small"):
        paint(
            np.zeros((320, 420, 3), np.uint8),
            np.array([100.0, 100, 112, 104]),
            np.random.default_rng(0),
        )


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
    others = Calibration(measured_with={"recognizer": "0" * 64})
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
    assert released == calibration.load(out / calibration.NAME)
    check_manifest(weights)
    for name in ("reliability", "risk_coverage"):
        assert cv2.imread(str(out / f"{name}.png")) is not None
    measured = pd.read_csv(out / "measure.csv")
    assert len(measured) == 10 and set(measured.source) == {"rendered", "painted"}


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PLATES_DATA", raising=False)
    for words, named in (
        ("--data nowhere", "nowhere"),
        ("--data nowhere --workers 0", "--workers"),
        ("--data nowhere --crops 3", "crops"),
        ("--data nowhere --weights nowhere_either", "nowhere_either"),
        ("", "--data"),
    ):
        assert cli.main(["calibrate", "--out", str(tmp_path), *words.split()]) == 1
        assert named in capsys.readouterr().err


def readings_of(scores: list[float], right: list[bool]) -> pd.DataFrame:
    rows = {"raw": np.array(scores, float), "right": np.array(right, bool)}
    return pd.DataFrame(rows).assign(eligible=True, known=True)


def test_isotonic_finds_what_came_true_and_claims_no_more_than_it_has_seen() -> None:
    rng = np.random.default_rng(1)
    truth = rng.uniform(0.05, 0.95, 20_000)
    raw = truth**8
    scores = calibrating.apply_all(isotonic(raw, rng.random(20_000) < truth), raw)
    assert np.abs(scores - truth).mean() < 0.02
    assert (np.diff(scores[np.argsort(raw)]) >= 0).all()
    raw = np.linspace(0.5, 0.99, 9)
    always = isotonic(raw, np.ones(9, np.bool_))
    assert always.apply(0.5) == always.apply(1.0) == pytest.approx(9.5 / 10)
    assert always.apply(0.0) == 0.0
    assert isotonic(raw, np.zeros(9, np.bool_)).apply(1.0) == pytest.approx(0.5 / 10)
    assert isotonic(np.zeros(0), np.zeros(0, np.bool_)) == Calibration()
    # No fit leaves the range by rounding: 36.7 * n / n is more than 36.7 for this n.
    raw = np.concatenate([[0.5, 0.7], np.ones(227)])
    assert isotonic(raw, np.arange(229) != 1).knots[-1][0] == LOGIT_LIMIT


def test_threshold_of_what_is_readable() -> None:
    scores, mostly = [0.4, 0.6, 0.7, 0.8, 0.9], [True, True, False, True, True]
    for given, right, most_wrong, threshold in (
        (scores, mostly, 0.0, 0.8),
        (scores, mostly, 0.25, 0.6),
        (scores, mostly, 1.0, 0.6),  # no text that scores less than a half is readable
        (scores, [not one for one in mostly], 0.0, 1.0),
        # Equal scores can't be told apart: a wrong one among them counts for all.
        ([0.9, 0.9], [True, False], 0.0, 1.0),
        ([], [], 0.5, 1.0),
    ):
        found = with_thresholds(Calibration(), readings_of(given, right), most_wrong)
        assert (found.readable_from, found.unknown_readable_from) == (threshold, None)
    # Unknown formats have one of their own, where there are enough of them.
    known, unknown = (readings_of(scores, mostly), readings_of(scores[1:4], [False, True, True]))
    both = pd.concat([known, unknown.assign(known=False)], ignore_index=True)
    for most_wrong, thresholds in ((0.25, (0.6, None)), (0.34, (0.6, 0.6)), (0.333, (0.6, None))):
        found = with_thresholds(Calibration(), both, most_wrong)
        assert (found.readable_from, found.unknown_readable_from) == thresholds


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


def test_quality_by_hand() -> None:
    readings = readings_of([0.9, 0.6, 0.9, 0.6], [True, False, True, True])
    found = describe(readings, UNCALIBRATED)
    assert (found["crops"], found["right"]) == (4, 0.75)
    # More bins than claims: each stands for itself.
    assert found["ece"] == pytest.approx((0.1 + 0.1 + 0.6 + 0.4) / 4)
    assert found["brier"] == pytest.approx((0.01 + 0.36 + 0.01 + 0.16) / 4)
    surprise = -(2 * np.log(0.9) + np.log(0.4) + np.log(0.6)) / 4
    assert found["log_loss"] == pytest.approx(surprise, abs=1e-6)
    assert np.isfinite(describe(readings_of([1.0], [False]), UNCALIBRATED)["log_loss"])
    # The sure do not hide the doubtful.
    found = describe(readings_of([0.5] * 10 + [1.0] * 90, [True] * 100), UNCALIBRATED)
    assert found["ece"] == pytest.approx(0.05) and found["ece_doubtful"] == pytest.approx(0.5)
    # The surest 95 % include all that score as much as the last of them.
    right = [number >= 10 for number in range(100)]
    for scores, share in ((np.linspace(0.5, 1, 100), 90 / 95), (np.full(100, 0.5), 0.9)):
        found = describe(readings_of(list(scores), right), UNCALIBRATED)
        assert found["right_at_95"] == pytest.approx(share, abs=1e-5)
