"""`plates calibrate`: crops whose text is known, read as served, and what comes out."""

import csv
import hashlib
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch

from plate_models.recognition import calibration
from plate_models.recognition.calibration import LOGIT_LIMIT, Calibration, sigmoid
from plate_models.rectification import crop_boxes
from plate_models.spec import DEFAULTS, RECTIFIER
from plate_models.training import calibration as calibrating
from plate_models.training.calibration import (
    Trial,
    frame_of,
    groups_of,
    isotonic,
    measured_with,
    quality,
    read_crops,
    with_threshold,
)
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
    others = calibration.Calibration(measured_with={"recognizer": "0" * 64})
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


def noise_crops(count: int) -> list[KnownCrop]:
    images = np.random.default_rng(0).integers(0, 256, (count, *RECTIFIER.crop_hw, 3), np.uint8)
    return [
        KnownCrop(image, "", "ru.car", 1 + number % 2, "rendered", 99.0)
        for number, image in enumerate(images)
    ]


def test_crops_laid_in_photos_are_cut_out_unchanged() -> None:
    laid, cut = noise_crops(20), []
    assert list(lay_out([], DEFAULTS)) == []
    for part, photo, boxes in lay_out(laid, DEFAULTS):
        crops = crop_boxes(photo, boxes, torch.tensor([crop.lines for crop in part]))
        cut += list(crops.permute(0, 2, 3, 1).numpy())
    assert np.array_equal(np.stack(cut), np.stack([crop.image for crop in laid]))


def test_a_wider_look_at_a_crop_sees_no_other_crop() -> None:
    laid, wider = noise_crops(8), torch.tensor([-9.0, -9.0, 9.0, 9.0])
    ((_, photo, boxes),) = lay_out(laid, DEFAULTS)
    together = crop_boxes(photo, boxes + wider, torch.tensor([1, 2] * 4))
    for crop, seen in zip(laid, together, strict=True):
        ((_, photo, boxes),) = lay_out([crop], DEFAULTS)
        expected = crop_boxes(photo, boxes + wider, torch.tensor([crop.lines]))[0]
        torch.testing.assert_close(seen, expected, atol=1, rtol=0)


def test_crops_are_read_as_served(one_thread: None) -> None:
    mix = replace(DEFAULT_MIX, kinds=(("ru.car", 1.0),))
    crops = [render(np.random.default_rng(seed), mix) for seed in range(6)]
    modules = load_modules(calibrated=False)
    assert read_crops([], modules) == []
    trials = read_crops(crops, modules)
    assert [trial.text for trial in trials] == [crop.text for crop in crops]
    assert sum(trial.read == trial.text for trial in trials) >= 5
    assert all(0 <= trial.raw <= 1 for trial in trials)
    alone = read_crops(crops[3:], modules)
    assert [trial.read for trial in alone] == [trial.read for trial in trials[3:]]
    assert [trial.raw for trial in alone] == pytest.approx([trial.raw for trial in trials[3:]])


def test_a_plate_whose_lines_are_in_doubt_is_read_both_ways_as_in_serving(
    one_thread: None,
) -> None:
    """A detector that takes one line for two: serving reads it as one line, too, and is surer."""
    mix = replace(DEFAULT_MIX, kinds=(("ru.car", 1.0),), median_size=4.0, size_spread=0.1)
    crops = [replace(render(np.random.default_rng(seed), mix), lines=2) for seed in range(4)]
    trials = read_crops(crops, load_modules(calibrated=False))
    assert [trial.read for trial in trials] == [crop.text for crop in crops]


def test_groups_hold_every_trial_three_times() -> None:
    widths = (60, 80, 500)
    frame = frame_of(Trial("painted", "ru.car", width, "A", "A", True, 1.0) for width in widths)
    groups = groups_of(frame)
    assert len(groups["painted"]) == len(groups["ru.car"]) == 3
    bands = [list(part.width_px) for name, part in groups.items() if name.startswith("width")]
    assert bands == [[60], [500], [80]] or sorted(bands) == [[60], [80], [500]]


def test_calibrates_weights_that_have_another_ones_calibration(
    data: Path, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    words = ["--data", str(data), "--weights", str(weights), "--out", str(out)]
    words += ["--crops", "10", "--workers", "1", "--release"]
    assert cli.main(["calibrate", *words]) == 0
    printed = capsys.readouterr().out
    assert "as read" in printed and "readable from" in printed
    released = calibration.load(weights / calibration.NAME)
    digest = hashlib.sha256((weights / "recognizer.safetensors").read_bytes()).hexdigest()
    assert released.measured_with["recognizer"] == digest
    kept = json.loads((weights / calibration.NAME).read_text())["fit"]
    assert kept["measured_with"] == measured_with(weights)
    assert released == calibration.load(out / calibration.NAME)
    check_manifest(weights)
    report = json.loads((out / "report.json").read_text())
    assert report["crops_fitted"] == report["measured"]["crops"] == 10
    assert report["method"] in ("identity", "isotonic")
    assert {"rendered", "painted"} < set(report["groups"])
    for name in ("reliability.png", "risk_coverage.png"):
        assert cv2.imread(str(out / name)) is not None
    assert len((out / "measure.csv").read_text().splitlines()) == 11


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "nowhere"], "nowhere"),
        (["--data", "nowhere", "--workers", "0"], "--workers"),
        (["--data", "nowhere", "--crops", "3"], "crops"),
        (["--data", "nowhere", "--weights", "nowhere_either"], "nowhere_either"),
    ],
)
def test_what_is_missing_is_named(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["calibrate", *words]) == 1
    assert told in capsys.readouterr().err


def test_data_must_be_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PLATES_DATA", raising=False)
    assert cli.main(["calibrate"]) == 1
    assert "--data" in capsys.readouterr().err


def test_what_decides_a_score_is_named_by_its_hash(tmp_path: Path) -> None:
    folder = shutil.copytree(WEIGHTS_DIR, tmp_path / "weights")
    before = measured_with(folder)
    assert set(before) == {"recognizer", "rectifier", "country", "grammar", "colour"}
    with (folder / "rectifier.safetensors").open("ab") as file:
        file.write(b"changed")
    after = measured_with(folder)
    assert {name for name in before if before[name] != after[name]} == {"rectifier"}


SCORES = np.array([0.9, 0.6, 0.9, 0.6])
TRUTH = np.array([True, False, True, True])


def test_quality_by_hand() -> None:
    found = quality(SCORES, TRUTH)
    assert (found["crops"], found["right"], found["claimed"]) == (4, 0.75, 0.75)
    # More bins than claims: each stands for itself.
    assert found["ece"] == pytest.approx((0.1 + 0.1 + 0.6 + 0.4) / 4)
    assert found["brier"] == pytest.approx((0.01 + 0.36 + 0.01 + 0.16) / 4)
    assert found["brier_constant"] == pytest.approx(0.75 * 0.25)
    assert found["log_loss"] == pytest.approx(
        -(2 * math.log(0.9) + math.log(0.4) + math.log(0.6)) / 4, abs=1e-6
    )
    assert math.isfinite(quality(np.array([1.0]), np.array([False]))["log_loss"])


def test_the_sure_do_not_hide_the_doubtful() -> None:
    found = quality(np.array([0.5] * 10 + [1.0] * 90), np.ones(100, np.bool_))
    assert found["ece"] == pytest.approx(0.05) and found["ece_doubtful"] == pytest.approx(0.5)


def test_the_surest_95_percent_include_all_that_score_as_much() -> None:
    scores = np.linspace(0.5, 1, 100)
    right = np.arange(100) >= 10
    assert quality(scores, right)["right_at_95"] == pytest.approx(90 / 95, abs=1e-5)
    assert quality(np.full(100, 0.5), right)["right_at_95"] == pytest.approx(0.9)


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


def test_no_fit_leaves_the_range_by_rounding() -> None:
    # 36.7 * n / n is more than 36.7 for this n.
    raw = np.concatenate([[0.5, 0.7], np.ones(227)])
    assert isotonic(raw, np.arange(229) != 1).knots[-1][0] == LOGIT_LIMIT


def frame(scores: list[float], right: list[bool]) -> pd.DataFrame:
    reads = ["A" if one else "B" for one in right]
    pairs = zip(scores, reads, strict=True)
    return frame_of(Trial("painted", "ru.car", 99, "A", read, True, raw) for raw, read in pairs)


def test_threshold_of_what_is_readable() -> None:
    scores, right = [0.4, 0.6, 0.7, 0.8, 0.9], [True, True, False, True, True]

    def threshold(right: list[bool], most_wrong: float, least: float = 0.5) -> float:
        found = with_threshold(Calibration(), frame(scores, right), most_wrong, least)
        return found.readable_from

    assert threshold(right, 0.0) == 0.8
    assert threshold(right, 0.25) == 0.6
    assert threshold(right, 1.0, least=0.65) == 0.7
    assert threshold([not one for one in right], 0.0) == 1.0
    # Equal scores can't be told apart: a wrong one among them counts for all.
    assert with_threshold(Calibration(), frame([0.9, 0.9], [True, False]), 0.0, 0.5) == Calibration(
        readable_from=1.0
    )
    nothing = with_threshold(Calibration(), frame([], []), 0.5, 0.5)
    assert nothing.readable_from == 1.0


def test_raw_scores_are_kept_where_a_map_is_no_better(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: Path
) -> None:
    """Readings that are right as often as their scores say, and readings that claim too much."""

    def read(block: Block, claim: float, **_: object) -> list[Trial]:
        rng = np.random.default_rng(block.key)
        logits = rng.normal(2, 2, 400)
        right = rng.random(400) < 1 / (1 + np.exp(-logits))
        return [
            Trial("rendered", "ru.car", 99, "A", "A" if one else "B", True, sigmoid(claim * x))
            for x, one in zip(logits.tolist(), right, strict=True)
        ]

    methods = {}
    for claim in (1.0, 3.0):
        monkeypatch.setattr(
            calibrating, "_read_block", lambda *a, claim=claim, **k: read(*a, claim=claim, **k)
        )
        run = calibrating.CalibrationRun(data, folder=tmp_path, crops=400, workers=0)
        methods[claim] = calibrating.calibrate(run).report["method"]
    assert methods == {1.0: "identity", 3.0: "isotonic"}
