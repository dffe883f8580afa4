"""Weights: saved with a contract, built from it, refused if contract and tensors don't fit."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import write_files

from plate_models import release, spec, weights
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.nets.yolov5 import YOLOv5

# No value is that of the Russian weights, or the default of spec.py.
OTHERS = spec.Specs(
    spec.DetectorSpec(
        classes=("plate",),
        anchors_wh=tuple(((8.0 * k, 4.0 * k), (16.0 * k, 6.0 * k)) for k in (1, 2, 4)),
        width_multiple=0.125,
    ),
    spec.RectifierSpec(
        crop_hw=(48, 128), crop_margin_hw=(0.4, 0.2), rectified_hw=(24, 110), mean=100.0
    ),
    spec.RecognizerSpec(alphabet="ÄÖÜ0123456789", countries=("ru",), steps=28),
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not safetensors", ""),
        (None, "expected the metadata 'contract', .*plates import"),
        ({"format": "pt"}, r"found \['format'\]"),
        ({"contract": "[3]"}, "contract: expected an object"),
        ({"contract": "[" * 100_000}, "metadata is damaged"),
    ],
)
def test_damaged_files_and_files_without_a_contract_are_refused(tmp_path, content, message):
    path = tmp_path / "recognizer.safetensors"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        save_file({"x": torch.ones(1)}, path, content)
    with pytest.raises(release.WeightsError, match=rf"recognizer\.safetensors.*{message}"):
        weights.read_file(path)


def test_the_manifest_detects_a_changed_byte(tmp_path):
    names = [f"{name}.safetensors" for name in release.NAMES] + ["calibration.json"]
    write_files(tmp_path, {name: name.encode() for name in names})
    cure = "SHA256SUMS is missing: run `plates weights --weights /"
    with pytest.raises(release.WeightsError, match=cure):
        release.check_manifest(tmp_path)
    release.write_manifest(tmp_path)
    before = release.check_manifest(tmp_path)
    assert before.startswith("sha256:") and len(before) == 71
    for name in names:
        (tmp_path / name).write_bytes(name.upper().encode())
        with pytest.raises(release.WeightsError, match=f"{name}: its SHA-256 is not the one in"):
            release.check_manifest(tmp_path)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "calibration.json").unlink()
    with pytest.raises(release.WeightsError, match=r"calibration\.json is missing: restore it"):
        release.check_manifest(tmp_path)
    (tmp_path / "SHA256SUMS").write_text("only-one-word\n")
    with pytest.raises(release.WeightsError, match="only-one-word"):
        release.check_manifest(tmp_path)


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    nets = YOLOv5(OTHERS.detector), STN(OTHERS.rectifier), LPRNet(OTHERS.recognizer)
    for name, net in zip(release.NAMES, nets, strict=True):
        weights.save(net, name, {}, folder, OTHERS)
    release.write_manifest(folder)
    return folder


def change_file(source, folder, name, contract=None, state=None):
    """Copy weights, change values of one file (None removes one) and rewrite the manifest."""
    shutil.copytree(source, folder)
    path = folder / f"{name}.safetensors"
    values, tensors = (
        {key: value for key, value in (old | (new or {})).items() if value is not None}
        for old, new in ((weights.read_file(path).contract, contract), (load_file(path), state))
    )
    save_file(tensors, path, {"contract": json.dumps(values)})
    release.write_manifest(folder)
    return folder


def test_nets_are_built_from_the_contract_in_the_weights(others):
    assert weights.load_modules().config.specs.recognizer == spec.RECOGNIZER
    assert (others / "recognizer.safetensors").stat().st_mode & 0o777 == 0o644
    nets = weights.load_modules(others)
    assert nets.config.specs == OTHERS
    assert nets.detect(torch.zeros(1, 3, 96, 128, dtype=torch.uint8)).shape == (1, 300, 6)
    plates, theta = nets.rectify(torch.zeros(2, 3, 48, 128))
    assert plates.shape == (2, 3, 24, 110) and theta.shape == (2, 2, 3)
    assert nets.recognize(plates).shape == (2, 14, 28)


def test_contracts_of_the_first_release_and_half_precision_are_accepted(others, tmp_path):
    later = dict.fromkeys(("two_line_margin_hw", "row_spans", "countries", "activation"))
    state = load_file(others / "recognizer.safetensors")
    halved = {key: value.half() for key, value in state.items()}
    folder = change_file(others, tmp_path / "silu", "detector", later)
    folder = change_file(folder, tmp_path / "half", "rectifier", later)
    folder = change_file(folder, tmp_path / "old", "recognizer", later, halved)
    nets = weights.load_modules(folder)
    assert nets.config.specs == OTHERS
    assert all(value.dtype == torch.float32 for value in nets.recognize.parameters())


CONTRACTS = [
    ("recognizer", {"alphabet": "ÄÖ0123456789"}, "expected .13, .* 12 .* found .14, "),
    ("recognizer", {"alphabet": "ÄÖ00123456789"}, "alphabet: .* not '0' again"),
    ("recognizer", {"countries": ["nowhere"]}, r"countries: .*nowhere\.toml"),
    ("recognizer", {"countries": ["ru", "by"]}, "countries: by: the alphabet lacks ABCEHIKM"),
    ("recognizer", {"rectified_hw": [24, 94]}, r"rectified_hw: .*\(24, 110\).*\(24, 94\)"),
    ("recognizer", {"colour": "red"}, r"contract\.colour: Unexpected .* found 'red'"),
    ("recognizer", {"alphabet": None}, r"its contract lacks \['alphabet'\]"),
    ("recognizer", {"steps": 24}, "steps: expected 28, found 24"),
    ("rectifier", {"crop_hw": [64, 128]}, r"localization\.7\.weight: expected .*2048"),
    ("rectifier", {"crop_hw": [50, 130]}, r"no rectifier fits crop_hw \(50, 130\)"),
    ("rectifier", {"row_spans": [[0, 0.5], [0.6, 0.5]]}, "row_spans: expected from < to"),
    ("detector", {"classes": ["a", "b", "c"]}, "classes: .*at most 2"),
    ("detector", {"classes": ["a", "b"]}, r"model\.24\.m\.0\.weight: expected \(14, "),
    ("detector", {"anchors_wh": [[[9, 9]] * 2] * 3}, r"model\.24\.anchors: .*as in the"),
    ("detector", {"strides": [4, 8, 16]}, r"strides\[0\]: expected 8, found 4"),
    ("detector", {"canvases_hw": [[448, 770]]}, r"canvases_hw\[0\]\[1\]: .*multiple of 32"),
    ("detector", {"canvases_hw": [[64, 64]]}, "max_candidates: expected"),
]
NOT_FINITE, NEGATIVE = torch.ones(14), torch.ones(16)
NOT_FINITE[0], NEGATIVE[0] = torch.nan, -1
TENSORS = [
    ("recognizer", {"head.bias": NOT_FINITE}, r"head\.bias: expected finite"),
    ("detector", {"model.1.bn.running_var": NEGATIVE}, r"running_var: expected variances"),
    ("detector", {"model.2.cv1.bn.bias": None}, r"2\.cv1\.bn\.bias: .*no such tensor"),
    ("rectifier", {"more": torch.ones(1)}, "more: expected no such tensor"),
    ("recognizer", {"head.bias": torch.ones(14).int()}, "head.bias: expected floats"),
]


@pytest.mark.parametrize(
    ("part", "name", "change", "message"),
    [*(("contract", *row) for row in CONTRACTS), *(("state", *row) for row in TENSORS)],
)
def test_wrong_contracts_and_tensors_are_refused(others, tmp_path, part, name, change, message):
    folder = change_file(others, tmp_path / "w", name, **{part: change})
    with pytest.raises(release.WeightsError, match=rf"{name}\.safetensors.*{message}"):
        weights.load_modules(folder)


def test_specs_survive_json():
    assert spec.spec_from_json(spec.Specs, {}, "specs") == spec.DEFAULTS
    for values, countries in (({"country": "cz"}, ("cz",)), ({}, ("ru",))):
        older = spec.spec_from_json(spec.RecognizerSpec, values, "older weights")
        assert older.countries == countries
    written = json.dumps(spec.spec_to_json(OTHERS))
    assert spec.spec_from_json(spec.Specs, json.loads(written), "specs") == OTHERS
