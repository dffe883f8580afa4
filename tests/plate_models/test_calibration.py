"""The map from raw scores to probabilities, and the checks that it belongs to the weights."""

import json
import math
import shutil
from dataclasses import replace

import pytest

from plate_models import release, spec, weights
from plate_models.recognition import calibration
from plate_models.recognition.calibration import Calibration, logit, sigmoid

SHA256 = "0123456789abcdef" * 4
PINS = dict.fromkeys(("recognizer", "rectifier", "country", "grammar", "colour"), SHA256)
BENT = Calibration(((-2.0, -3.0), (1.0, 0.0), (30.0, 8.0)), 0.9, PINS, 0.99)


def test_calibration_is_linear_in_logits_between_knots_and_bounded_beyond_them():
    for raw in (0.0, 1e-300, 0.3, 1 - 1e-12, 1.0):
        assert Calibration().apply(raw) == raw
    assert BENT.apply(sigmoid(-0.5)) == pytest.approx(sigmoid(-1.5))
    assert BENT.apply(sigmoid(1.0)) == pytest.approx(0.5)
    # Below the first knot it is proportional to the raw score, so that an impossible text gets 0.
    assert BENT.apply(sigmoid(-2.0) / 5) == pytest.approx(sigmoid(-3) / 5)
    assert BENT.apply(0.0) == 0.0
    # Several knots on the lowest level were fitted to few texts: it falls from the last of them on.
    floor = Calibration(((-10.0, -2.0), (-4.0, -2.0), (1.0, 0.0)))
    assert floor.apply(sigmoid(-4.0) / 100) == pytest.approx(sigmoid(-2.0) / 100)
    level = Calibration(((-1.0, 2.0), (3.0, 2.0)))
    assert level.apply(sigmoid(-1.0)) == level.apply(1.0) == pytest.approx(sigmoid(2.0))
    assert BENT.apply(1.0) == BENT.apply(1.0000001) == pytest.approx(sigmoid(8))
    assert BENT.apply(math.nan) == 0.0
    # Scores close to 1 remain distinguishable.
    calibrated = [BENT.apply(1 - 10.0**-k) for k in range(2, 14)]
    assert calibrated == sorted(set(calibrated))
    for probability in (0.0, 1e-320, 1e-9, 0.5, 1 - 2**-53, 1.0):
        assert abs(logit(probability)) <= calibration.LOGIT_LIMIT
        assert sigmoid(logit(probability)) == pytest.approx(probability, abs=1e-15)


def test_a_calibration_survives_json():
    for fitted in (Calibration(), BENT):
        text = fitted.to_json({"crops": 7})
        assert Calibration.from_json(text) == fitted
        assert json.loads(text)["fit"]["crops"] == 7


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": 2}, "version"),
        ({"surplus": 1}, "surplus"),
        ({"knots": [[0, 0]]}, "knots"),
        ({"knots": [[0, 0], [1, math.nan]]}, "knots"),
        ({"knots": [[0, 1], [1, 0]]}, "monotone"),
        ({"readable_from": 1.1}, "readable_from"),
        ({"recognizer_sha256": "ABC"}, "recognizer_sha256"),
        ({"fit": {"measured_with": {"colour": "ABC"}}}, "fit.measured_with.colour"),
        *((text, "^calibration") for text in ("", "{", "[]", "3", "[" * 100_000)),
    ],
)
def test_malformed_files_are_refused_with_the_name_of_the_wrong_key(change, named):
    text = change if isinstance(change, str) else json.dumps(json.loads(BENT.to_json()) | change)
    with pytest.raises(release.WeightsError, match=named):
        Calibration.from_json(text)


def test_older_files_pin_the_recognizer_alone():
    values = json.loads(BENT.to_json()) | {"fit": {"date": "2026-11-21"}}
    assert Calibration.from_json(json.dumps(values)).measured_with == {"recognizer": SHA256}
    values["recognizer_sha256"] = None
    assert Calibration.from_json(json.dumps(values)) == replace(BENT, measured_with={})


def test_an_error_or_a_warning_names_each_part_that_differs_from_the_measurement():
    BENT.check(PINS)
    Calibration().check(PINS)
    for net in ("recognizer", "rectifier"):
        with pytest.raises(release.WeightsError, match=f"the {net} .*plates calibrate"):
            BENT.check(PINS | {net: "f" * 64})
    for other in ("country", "grammar", "colour"):
        with pytest.warns(UserWarning, match=f"the {other} .*plates calibrate"):
            BENT.check(PINS | {other: "f" * 64})


def test_weights_are_compared_with_their_calibration(tmp_path, monkeypatch):
    folder = shutil.copytree(release.WEIGHTS_DIR, tmp_path / "weights")
    countries = shutil.copytree(weights.COUNTRIES, tmp_path / "countries")
    (countries / "ru.toml").write_text((countries / "ru.toml").read_text("utf-8"), "utf-8-sig")
    monkeypatch.setattr(weights, "COUNTRIES", countries)
    found = weights.measured_with(folder, spec.RECOGNIZER.countries)
    file = folder / release.CALIBRATION
    assert Calibration.from_json(file.read_text()).measured_with.items() >= found.items()
    file.write_text(Calibration(measured_with=found | {"rectifier": SHA256}).to_json())
    release.write_manifest(folder)
    with pytest.raises(release.WeightsError, match="the rectifier"):
        weights.load_modules(folder)
    file.write_bytes(b"\xff\xfe")
    release.write_manifest(folder)
    with pytest.raises(release.WeightsError, match=rf"{folder}/calibration\.json: "):
        weights.load_modules(folder)
