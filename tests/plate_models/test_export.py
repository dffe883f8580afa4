"""Exported artifacts compute the same as the nets; otherwise nothing is exported."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from plate_models import contract, export, release, spec, weights
from plate_models.engines.nets import ensure_exported
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.nets.yolov5 import YOLOv5

MODELS = tuple(contract.GRAPHS)
# Another alphabet and smaller canvases than the served ones: an export handles any.
SMALL = spec.Specs(
    detector=spec.DetectorSpec(canvases_hw=((96, 160), (96, 96), (160, 96))),
    recognizer=spec.RecognizerSpec(alphabet="01ÄÖ", countries=("ru",)),
)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Untrained weights whose outputs still depend on the input."""
    folder = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    stn = STN()
    torch.nn.init.normal_(stn.localization[-1].weight, std=0.05)
    path = weights.save(YOLOv5(SMALL.detector), "detector", {}, folder, SMALL)
    values = weights.contract_of("detector", SMALL)
    values["canvases_hw"] = SMALL.detector.canvases_hw  # not in a contract by default
    save_file(load_file(path), path, {"contract": json.dumps(values)})
    weights.save(stn, "rectifier", {}, folder, SMALL)
    weights.save(LPRNet(SMALL.recognizer), "recognizer", {}, folder, SMALL)
    release.write_manifest(folder)
    return folder


@pytest.fixture(scope="module")
def exported(released, tmp_path_factory):
    """The only full export of these tests, as it is slow; no test changes it."""
    repository = tmp_path_factory.mktemp("repository")
    assert len(export.export(released, repository)) == 6
    return repository


@pytest.fixture
def repository_copy(exported, tmp_path, monkeypatch):
    """A copy of the exported release; exports into it copy its artifacts and skip the checks."""

    def copy_graphs(_, folder, version):
        for model in MODELS:
            shutil.copytree(exported / model / "1", folder / model / version)
        return {str(p.relative_to(folder)): release.sha256_of(p) for p in folder.rglob("model.*")}

    monkeypatch.setattr(export, "_export_graphs", copy_graphs)
    monkeypatch.setattr(export, "read_golden", lambda *_: [])  # untrained weights read nothing
    return Path(shutil.copytree(exported, tmp_path / "repository"))


def contents(folder):  # file names to bytes
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_release_consists_of_artifacts_a_golden_photo_and_a_manifest(exported, released):
    artifacts = {f"{model}/1/model.{kind}" for model in MODELS for kind in ("pt", "onnx")}
    pipeline = {f"plate_recognition/1/{n}" for n in ("model.py", "golden.jpg", "exported.json")}
    configs = {name for name in contents(release.REPOSITORY) if name.endswith(".pbtxt")}
    assert contents(exported).keys() == artifacts | pipeline | configs
    assert export.os.environ["ORT_DISABLE_TELEMETRY"] == "1", "it would report this machine"
    manifest = json.loads((exported / "plate_recognition/1/exported.json").read_text())
    assert manifest["weights"] == release.check_manifest(released)
    assert manifest["artifacts"].keys() == artifacts
    assert manifest["golden"] == [], "untrained weights read nothing"
    assert spec.spec_from_json(spec.Specs, manifest["specs"], "specs") == SMALL
    # A traced graph must not contain a device: with "cpu" in it, it would not run on a GPU.
    with pytest.warns(DeprecationWarning, match="load"):
        graphs = [torch.jit.load(exported / model / "1" / "model.pt") for model in MODELS]
    assert not [graph for graph in graphs if "Device" in str(graph.inlined_graph)]


def test_sizes_without_a_config_and_versions_that_triton_ignores_are_refused(
    released, exported, tmp_path
):
    folder = shutil.copytree(released, tmp_path / "weights")
    wider = replace(SMALL, rectifier=spec.RectifierSpec(crop_hw=(64, 192)))
    weights.save(STN(wider.rectifier), "rectifier", {}, folder, wider)
    release.write_manifest(folder)
    with pytest.raises(export.ExportError, match=r"crop_hw: expected \(64, 160\).*\(64, 192\)"):
        export.export(folder, exported)
    with pytest.raises(release.WeightsError):
        export.export(tmp_path, exported)
    for version in ("0", "", "1.5", "02", "²", "99999999999"):
        with pytest.raises(export.ExportError, match=r"^version: expected "):
            export.export(released, exported, version)


def test_a_new_version_is_complete_and_leaves_the_others_unchanged(released, repository_copy):
    (repository_copy / "yolo" / "config.pbtxt").write_text("edited by the operator")
    before = contents(repository_copy)
    assert export.export(released, repository_copy, "12")
    after = contents(repository_copy)
    assert after.items() >= before.items()
    assert after.keys() - before.keys() == {n.replace("/1/", "/12/") for n in before if "/1/" in n}
    source = release.REPOSITORY / "plate_recognition" / "1" / "model.py"
    assert after["plate_recognition/12/model.py"] == source.read_bytes()


def test_an_interrupted_export_leaves_no_manifest(released, repository_copy, monkeypatch):
    replace = Path.replace

    def full(path, target):
        if path.name == "golden.jpg":
            raise OSError("No space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", full)
    (repository_copy / "lprnet" / "1" / "model.onnx").unlink()
    with pytest.raises(OSError, match="No space"):
        export.export(released, repository_copy)
    left = {path.name for path in (repository_copy / "plate_recognition" / "1").iterdir()}
    assert left == {"model.py", "golden.jpg"}

    monkeypatch.setattr(shutil, "copyfile", lambda _, to: to.write_bytes(b"half") and 1 / 0)
    (config := repository_copy / "yolo" / "config.pbtxt").unlink()
    with pytest.raises(ZeroDivisionError):
        export.export(released, repository_copy)
    assert not config.exists(), "the next export would keep it"


def test_an_export_fails_without_a_plate_in_the_golden_photo(released, exported, tmp_path):
    photo = tmp_path / "photo.jpg"
    golden = release.DEFAULT_GOLDEN.read_bytes()
    reasons = {None: "there is no such file", b"no photo": "not an image", golden: "they read none"}
    for content, reason in reasons.items():
        if content:
            photo.write_bytes(content)
        with pytest.raises(export.ExportError, match=reason):
            export.export(released, exported, "3", photo)
    assert not (exported / "plate_recognition" / "3").exists()
    (plate,) = export.read_golden(photo, weights.load_modules())
    assert plate["text"] == "X556XM750"
    np.testing.assert_allclose(plate["box"], [196.9, 224.0, 290.3, 245.2], atol=3)


def test_only_changes_and_damage_repeat_an_export(repository_copy, released, tmp_path, monkeypatch):
    others = shutil.ignore_patterns("__pycache__")  # other processes may write there meanwhile
    package = shutil.copytree(Path(export.__file__).parent, tmp_path / "package", ignore=others)
    monkeypatch.setattr(release, "_PACKAGE", package)
    for path, again in (
        ("training/labels.py", False),
        ("pipeline.py", True),
        ("recognition/decoding.py", True),
        ("recognition/countries/ru.toml", True),
    ):
        assert not ensure_exported(released, repository_copy)
        (package / path).write_text("changed")
        assert bool(ensure_exported(released, repository_copy)) is again, path
    before = contents(repository_copy)
    own = (f"plate_recognition/1/{name}" for name in ("golden.jpg", "exported.json"))
    for damaged in ("lprnet/1/model.onnx", *own):
        (repository_copy / damaged).write_bytes(b"[]")
        assert ensure_exported(released, repository_copy)
    (repository_copy / "yolo/1/model.pt").unlink()
    assert ensure_exported(released, repository_copy)
    assert contents(repository_copy) == before


@pytest.mark.parametrize(("model", "error"), [("yolo", 0.01), ("lprnet", np.nan)])
def test_a_wrong_onnx_graph_stops_the_export(released, exported, monkeypatch, model, error):
    write_onnx = export._write_onnx

    def write_with_error(name, net, *where):
        *_, bias = net.parameters()
        right = bias.detach().clone()
        with torch.no_grad():
            bias += error if name == model else 0
            write_onnx(name, net, *where)
            bias.copy_(right)

    before = contents(exported)
    monkeypatch.setattr(export, "_write_onnx", write_with_error)
    with pytest.raises(export.ExportError, match=f"{model}: ONNX disagrees"):
        export.export(released, exported, "4")
    assert contents(exported) == before
