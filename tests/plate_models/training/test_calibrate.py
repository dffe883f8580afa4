"""`plates calibrate`: crops with known texts are read as in serving, scores are fitted to them."""

import json
import shutil
import signal
from dataclasses import replace

import cv2
import numpy as np
import pandas as pd
import pytest
from support import REPOSITORY, files_limited_to

from plate_models.engines.nets import load_nets
from plate_models.recognition.calibration import LOGIT_LIMIT, UNCALIBRATED, Calibration
from plate_models.release import CALIBRATION, WEIGHTS_DIR, check_manifest, sha256_of, write_manifest
from plate_models.training import calibration as calibrating
from plate_models.training.calibration import isotonic, with_thresholds


def test_crops_are_of_legible_size_and_read_as_served():
    nets, dice = load_nets(), map(np.random.default_rng, range(12))
    crops, widths = zip(*(calibrating.render_known(rng, "ru.car") for rng in dice), strict=True)
    assert min(widths) >= 56 and len({*widths}) == 12
    readings = [calibrating.read_crop(crop, nets) for crop in crops]
    right = [r.candidates[0][0] == c.text for r, c in zip(readings, crops, strict=True)]
    assert sum(right) >= 10 and all(0 <= reading.score <= 1 for reading in readings)
    # If the detector reports two lines for one, serving reads one line, too, with a higher score.
    surest = max(range(12), key=lambda place: readings[place].score * right[place])
    doubtful = calibrating.read_crop(replace(crops[surest], rows=("", crops[surest].text)), nets)
    assert doubtful.candidates[0][0] == crops[surest].text


def test_weights_calibrated_for_others_can_be_calibrated(tmp_path, run, monkeypatch):
    load_nets()  # exports the released weights if they are not exported yet
    # Exporting equal weights again takes longer.
    monkeypatch.setattr(
        calibrating,
        "ensure_exported",
        lambda bare, to: (bare / CALIBRATION).exists() or shutil.copytree(REPOSITORY, to),
    )
    weights, out = shutil.copytree(WEIGHTS_DIR, tmp_path / "weights"), tmp_path / "report"
    others = Calibration(measured_with={"recognizer": "0" * 64})
    (weights / CALIBRATION).write_text(others.to_json())
    write_manifest(weights)
    words = f"--weights {weights} --out {out} --crops 10 --workers 1 --release --seed 7".split()
    done = run("calibrate", *words)
    assert done.returncode == 0
    assert "as read" in done.stdout and "readable from" in done.stdout
    released = Calibration.from_json((weights / CALIBRATION).read_text())
    digest = sha256_of(weights / "recognizer.safetensors")
    assert released.measured_with["recognizer"] == digest
    kept = json.loads((weights / CALIBRATION).read_text())["fit"]
    assert released == Calibration.from_json((out / CALIBRATION).read_text())
    check_manifest(weights)
    for name in ("reliability", "risk_coverage"):
        assert cv2.imread(str(out / f"{name}.png")) is not None
    fit, measured = (pd.read_csv(out / f"{name}.csv") for name in ("fit", "measure"))
    assert (kept["crops_fitted"], kept["measured"]["crops"]) == (len(fit), len(measured))
    # Clutter without a reading is left out.
    assert all(8 <= len(each) <= 10 for each in (fit, measured))
    assert not {*measured.text.dropna()} & {*fit.text.dropna()}


def test_a_home_country_without_plates_to_render_is_an_error(tmp_path, monkeypatch, run):
    monkeypatch.setattr(calibrating, "CALIBRATION_SHARES", (("sk.car", 1.0),))
    done = run("calibrate", "--crops", 10, "--out", tmp_path)
    assert done.returncode == 1
    assert "ru.toml: no plates to render: give a format [formats.plate]" in done.stderr


def test_a_full_disk_leaves_the_calibration_in_force(tmp_path, run, monkeypatch):
    weights, out = shutil.copytree(WEIGHTS_DIR, tmp_path / "weights"), tmp_path / "out"
    out.mkdir()
    (out / CALIBRATION).write_text("new" * 5000)
    monkeypatch.setattr(calibrating, "calibrate", lambda *_, **__: ())
    with files_limited_to(10_000):
        done = run("calibrate", "--weights", weights, "--out", out, "--release")
    assert done.returncode == 1 and "File too large" in done.stderr
    check_manifest(weights)


def test_a_stopped_calibration_leaves_no_temporary_files(tmp_path, run, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(calibrating, "ensure_exported", lambda *_: signal.raise_signal(15))
    assert run("calibrate", "--out", tmp_path / "out").returncode == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def readings_of(scores, right):
    rows = {"raw": np.array(scores, float), "right": np.array(right, bool)}
    return pd.DataFrame(rows).assign(eligible=True, home=True)


def test_isotonic_scores_match_the_shares_of_right_texts_and_few_crops_limit_them():
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
    # Rounding must not exceed the limit: 36.7 * n / n is more than 36.7 for this n.
    raw = np.concatenate([[0.5, 0.7], np.ones(227)])
    assert isotonic(raw, np.arange(229) != 1).knots[-1][0] == LOGIT_LIMIT


def test_the_lowest_score_with_few_wrong_texts_is_the_threshold_of_readable_ones():
    scores, mostly = [0.4, 0.6, 0.7, 0.8, 0.9], [True, True, False, True, True]
    for given, right, most_wrong, threshold in (
        (scores, mostly, 0.0, 0.8),
        (scores, mostly, 0.25, 0.6),
        (scores, mostly, 1.0, 0.6),  # texts with scores below 0.5 are never readable
        (scores, [not one for one in mostly], 0.0, 1.0),
        # A threshold can't separate equal scores: one wrong text counts for all of them.
        ([0.9, 0.9], [True, False], 0.0, 1.0),
        ([], [], 0.5, 1.0),
    ):
        found = with_thresholds(Calibration(), readings_of(given, right), most_wrong, 0.25)
        assert found == Calibration(readable_from=threshold)
    # Texts of other formats than home's have their own threshold, if there are enough of them.
    home, other = (readings_of(scores, mostly), readings_of(scores[1:4], [False, True, True]))
    both = pd.concat([home, other.assign(home=False)], ignore_index=True)
    too_few = Calibration().elsewhere_readable_from
    for most_wrong, threshold in ((0.25, too_few), (0.333, too_few), (0.34, 0.6)):
        found = with_thresholds(Calibration(), both, 0.25, most_wrong)
        assert (found.readable_from, found.elsewhere_readable_from) == (0.6, threshold)


def test_calibration_error_and_brier_score_equal_those_computed_by_hand():
    readings = readings_of([0.9, 0.6, 0.9, 0.6], [True, False, True, True])
    found = calibrating.describe(readings, UNCALIBRATED)
    assert (found["crops"], found["right"]) == (4, 0.75)
    # There are more bins than readings, so that each reading is a bin of its own.
    assert found["ece"] == pytest.approx((0.1 + 0.1 + 0.6 + 0.4) / 4)
    assert found["brier"] == pytest.approx((0.01 + 0.36 + 0.01 + 0.16) / 4)
