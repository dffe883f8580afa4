"""The map from raw scores to probabilities, and how well it is measured."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plate_models.recognition.calibration import (
    LOGIT_LIMIT,
    Calibration,
    CalibrationError,
    load,
    logit,
    sigmoid,
)
from plate_models.training.calibrating import fitting, metrics

SHA256 = "0123456789abcdef" * 4
BENT = Calibration(((-2.0, -3.0), (1.0, 0.0), (30.0, 8.0)), 0.9, SHA256)


def test_without_knots_nothing_changes() -> None:
    for raw in (0.0, 1e-300, 0.3, 1 - 1e-12, 1.0):
        assert Calibration().apply(raw) == raw


@pytest.mark.parametrize("calibration", [Calibration(), BENT])
def test_what_is_no_probability_becomes_one(calibration: Calibration) -> None:
    assert calibration.apply(math.nan) == 0.0
    assert calibration.apply(math.inf) == calibration.apply(1.0)
    assert calibration.apply(-math.inf) == calibration.apply(0.0)
    assert calibration.apply(1.0000001) == calibration.apply(1.0)


def test_lines_run_between_knots_and_end_with_them() -> None:
    assert BENT.apply(sigmoid(-0.5)) == pytest.approx(sigmoid(-1.5))
    assert BENT.apply(sigmoid(1.0)) == pytest.approx(0.5)
    assert BENT.apply(0.0) == BENT.apply(sigmoid(-2.5)) == pytest.approx(sigmoid(-3))
    assert BENT.apply(1.0) == pytest.approx(sigmoid(8))


def test_scores_next_to_one_stay_apart() -> None:
    nines = [1 - 10.0**-k for k in range(2, 14)]
    calibrated = [BENT.apply(raw) for raw in nines]
    assert calibrated == sorted(set(calibrated))


@pytest.mark.parametrize("probability", [0.0, 1e-320, 1e-9, 0.5, 1 - 2**-53, 1.0])
def test_logit_and_sigmoid_undo_each_other(probability: float) -> None:
    assert abs(logit(probability)) <= LOGIT_LIMIT
    assert sigmoid(logit(probability)) == pytest.approx(probability, abs=1e-15)


def test_json_and_back(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    for calibration in (Calibration(), BENT):
        path.write_text(calibration.to_json({"crops": 7}))
        assert load(path) == calibration
        assert json.loads(path.read_text())["fit"] == {"crops": 7}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": 2}, "version"),
        ({"version": None}, "version"),
        ({"surplus": 1}, "surplus"),
        ({"knots": None}, "knots"),
        ({"knots": [[0, 0]]}, "knots"),
        ({"knots": [[0, 0], [1]]}, "knots"),
        ({"knots": [[0, 0], [1, "1"]]}, "knots"),
        ({"knots": [[0, 0], [1, math.nan]]}, "knots"),
        ({"knots": [[0, 0], [1, 400]]}, "knots"),
        ({"knots": [[0, 1], [1, 0]]}, "monotone"),
        ({"knots": [[1, 0], [1, 1]]}, "monotone"),
        ({"readable_from": 1.1}, "readable_from"),
        ({"readable_from": True}, "readable_from"),
        ({"readable_from": math.inf}, "readable_from"),
        ({"readable_from": 10**400}, "readable_from"),
        ({"recognizer_sha256": "ABC"}, "recognizer_sha256"),
        ({"recognizer_sha256": 5}, "recognizer_sha256"),
    ],
)
def test_malformed_values_are_refused_by_name(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({**json.loads(BENT.to_json()), **change}))
    with pytest.raises(CalibrationError, match=named) as refusal:
        load(path)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"3", b"[" * 100_000])
def test_files_that_are_no_calibration_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(content)
    with pytest.raises(CalibrationError, match=r"calibration\.json"):
        load(path)
    with pytest.raises(CalibrationError, match=r"can't be read"):
        load(tmp_path / "missing.json")


def test_missing_keys_are_refused() -> None:
    for key in json.loads(BENT.to_json()):
        values = json.loads(BENT.to_json())
        del values[key]
        with pytest.raises(CalibrationError, match=key):
            Calibration.from_json(json.dumps(values))


def test_other_weights_are_refused() -> None:
    BENT.check_recognizer(SHA256)
    Calibration().check_recognizer(SHA256)
    with pytest.raises(CalibrationError, match="plates calibrate"):
        BENT.check_recognizer("f" * 64)


def test_it_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, plate_models.recognition.calibration; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy"} & set(run.stdout.split())


CLAIMS = np.array([0.9, 0.6, 0.9, 0.6])
TRUTH = np.array([True, False, True, True])
NOTHING = np.zeros(0), np.zeros(0, np.bool_)


def test_nothing_claimed_is_nothing_wrong() -> None:
    assert metrics.ece_equal_mass(*NOTHING) == 0.0
    assert metrics.brier(*NOTHING) == metrics.brier_of_constant(NOTHING[1]) == 0.0
    assert metrics.log_loss(*NOTHING) == 0.0
    assert metrics.right_at_coverage(*NOTHING) == 1.0
    assert all(len(part) == 0 for part in metrics.risk_coverage(*NOTHING))
    assert metrics.pava(*(np.zeros(0),) * 2) == []


def test_calibration_error_by_hand() -> None:
    assert metrics.ece_equal_mass(CLAIMS, TRUTH, bins=1) == pytest.approx(0.0)
    # Two bins: 0.6 claimed and one of two right, 0.9 claimed and both right.
    assert metrics.ece_equal_mass(CLAIMS, TRUTH, bins=2) == pytest.approx(0.1)
    # More bins than claims: each stands for itself.
    assert metrics.ece_equal_mass(CLAIMS, TRUTH, bins=9) == pytest.approx((0.2 + 0.6 + 0.4) / 4)


def test_bins_have_equal_mass() -> None:
    found = metrics.equal_mass_bins(np.linspace(0, 1, 32) ** 9, np.ones(32, np.bool_))
    assert len(found.count) == 15
    assert set(found.count.tolist()) == {2, 3} and found.count.sum() == 32
    assert (np.diff(found.claimed) > 0).all()


def test_bins_of_equal_width_leave_out_the_empty_ones() -> None:
    found = metrics.equal_width_bins(np.array([0.0, 0.05, 0.95, 1.0]), TRUTH)
    assert found.count.tolist() == [2, 2] and found.right.tolist() == [1, 2]
    assert found.claimed.tolist() == pytest.approx([0.025, 0.975])


def test_the_sure_do_not_hide_the_doubtful() -> None:
    scores = np.array([0.5] * 10 + [1.0] * 90)
    found = fitting.quality_of(scores, np.ones(100, np.bool_))
    assert found.ece == pytest.approx(0.05) and found.ece_doubtful == pytest.approx(0.5)


def test_brier_and_log_loss_by_hand() -> None:
    assert metrics.brier(CLAIMS, TRUTH) == pytest.approx((0.01 + 0.36 + 0.01 + 0.16) / 4)
    assert metrics.brier_of_constant(TRUTH) == pytest.approx(0.75 * 0.25)
    assert metrics.log_loss(CLAIMS, TRUTH) == pytest.approx(
        -(2 * math.log(0.9) + math.log(0.4) + math.log(0.6)) / 4
    )
    assert math.isfinite(metrics.log_loss(np.array([1.0]), np.array([False])))


def test_equal_scores_are_answered_together() -> None:
    thresholds, coverage, risk = metrics.risk_coverage(CLAIMS, TRUTH)
    assert thresholds.tolist() == [0.9, 0.6]
    assert coverage.tolist() == [0.5, 1.0]
    assert risk.tolist() == [0.0, 0.25]
    assert metrics.right_at_coverage(CLAIMS, TRUTH, 0.5) == 1.0
    assert metrics.right_at_coverage(CLAIMS, TRUTH, 0.75) == 0.75


def test_pava_by_hand() -> None:
    ones = np.ones(4)
    assert metrics.pava(np.array([1.0, 3, 2, 4]), ones) == [(0, 1, 1.0), (1, 3, 2.5), (3, 4, 4.0)]
    assert metrics.pava(np.array([4.0, 3, 2, 1]), ones) == [(0, 4, 2.5)]
    heavy = metrics.pava(np.array([0.2, 0.8, 0.4]), np.array([1.0, 3, 1]))
    assert [(a, b) for a, b, _ in heavy] == [(0, 1), (1, 3)]
    assert heavy[1][2] == pytest.approx(0.7)


def test_pava_is_the_min_max_formula() -> None:
    # Robertson et al. 1988: the fit at i is the largest, over beginnings at or before i, of
    # the smallest mean, over ends at or after i.
    rng = np.random.default_rng(0)
    for _ in range(20):
        values, weights = rng.random(9), rng.integers(1, 5, 9).astype(float)
        fitted = [mean for a, b, mean in metrics.pava(values, weights) for _ in range(a, b)]
        expected = [
            max(
                min(np.average(values[a:b], weights=weights[a:b]) for b in range(i + 1, 10))
                for a in range(i + 1)
            )
            for i in range(9)
        ]
        assert fitted == pytest.approx(expected)


def overconfident(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores whose logits are three times too large, and what came true."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(2, 2, count)
    raw = np.array([sigmoid(3 * x) for x in logits])
    return raw, rng.random(count) < 1 / (1 + np.exp(-logits))


def test_temperature_finds_the_factor() -> None:
    calibration = fitting.temperature(*overconfident(5000))
    for raw in (0.2, 0.9, 1 - 1e-9):
        assert logit(calibration.apply(raw)) == pytest.approx(logit(raw) / 3, rel=0.1)
    timid = fitting.temperature(np.array([0.6, 0.6, 0.6, 0.4]), np.array([True, True, True, False]))
    assert timid.apply(0.6) > 0.9


def test_isotonic_finds_what_no_temperature_can() -> None:
    rng = np.random.default_rng(1)
    truth = rng.uniform(0.05, 0.95, 20_000)
    right = rng.random(20_000) < truth
    raw = truth**8
    scores = fitting.apply_all(fitting.isotonic(raw, right), raw)
    assert np.abs(scores - truth).mean() < 0.02
    assert (np.diff(scores[np.argsort(raw)]) >= 0).all()
    line = fitting.apply_all(fitting.temperature(raw, right), raw)
    assert metrics.log_loss(scores, right) < metrics.log_loss(line, right) - 0.01


def test_isotonic_claims_no_more_than_it_has_seen() -> None:
    raw = np.linspace(0.5, 0.99, 9)
    always = fitting.isotonic(raw, np.ones(9, np.bool_))
    assert always.apply(0.0) == always.apply(1.0) == pytest.approx(9.5 / 10)
    never = fitting.isotonic(raw, np.zeros(9, np.bool_))
    assert never.apply(1.0) == pytest.approx(0.5 / 10)


def test_no_fit_leaves_the_range_by_rounding() -> None:
    # 36.7 * d / d and 36.7 * n / n are more than 36.7 for these.
    timid = fitting.temperature(np.full(35, 0.6), np.arange(35) > 0)
    assert timid.knots[1][1] == -timid.knots[0][1] == LOGIT_LIMIT
    raw = np.concatenate([[0.5, 0.7], np.ones(227)])
    sure = fitting.isotonic(raw, np.arange(229) != 1)
    assert sure.knots[-1][0] == LOGIT_LIMIT


@pytest.mark.parametrize("fit", fitting.METHODS.values())
def test_from_nothing_no_method_learns_anything(fit: fitting.Fit) -> None:
    assert fit(*NOTHING) == Calibration()


def test_the_better_method_is_chosen_on_readings_it_has_not_seen() -> None:
    found = fitting.cross_validate(*overconfident(2000), np.random.default_rng(0))
    assert set(found) == {"identity", "temperature", "isotonic"}
    assert fitting.choose(found) == "temperature"
    assert found["temperature"].ece < 0.03 < found["identity"].ece
    assert found["temperature"].brier < found["temperature"].brier_constant


def test_threshold_of_what_is_readable() -> None:
    scores = np.array([0.4, 0.6, 0.7, 0.8, 0.9])
    right = np.array([True, True, False, True, True])
    assert fitting.threshold_of(scores, right, 0.0) == 0.8
    assert fitting.threshold_of(scores, right, 0.25) == 0.6
    assert fitting.threshold_of(scores, right, 1.0, least=0.65) == 0.7
    assert fitting.threshold_of(scores, ~right, 0.0) == 1.0
    assert fitting.threshold_of(*NOTHING, 0.5) == 1.0
