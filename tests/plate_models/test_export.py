"""The exported artifacts compute what the nets compute, or nothing is exported."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from google.protobuf import text_format
from torch import Tensor, nn
from tritonclient.grpc import model_config_pb2

from plate_models import contract, export, spec, weights
from plate_models.export import read_golden
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.nets.yolov5 import YOLOv5
from plate_models.spec import Specs, spec_from_json

MODELS = ("yolo", "stn", "lprnet")
BATCHES = export.BATCHES
# Smaller canvases than served: what is exported takes any.
SMALL = Specs(detector=spec.DetectorSpec(canvases_hw=((96, 160), (96, 96), (160, 96))))


def make_weights(folder: Path, seed: int = 0) -> Path:
    """Untrained weights whose outputs still depend on the input."""
    torch.manual_seed(seed)
    folder.mkdir(exist_ok=True)
    stn = STN()
    nn.init.normal_(stn.localization[-1].weight, std=0.05)
    weights.save(YOLOv5(SMALL.detector), "detector", {}, folder, SMALL)
    weights.save(stn, "rectifier", {}, folder)
    weights.save(LPRNet(), "recognizer", {}, folder)
    weights.write_manifest(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _small_batches() -> Iterator[None]:
    """Check in small batches: the largest take long, and `make export` tries them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "BATCHES", (1, 4))
        yield


@pytest.fixture
def all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "BATCHES", BATCHES)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_weights(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def exported(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("repository")
    (repository / "plate_recognition" / "1").mkdir(parents=True)
    written = export.export(released, repository)
    assert written is not None and len(written) == 6
    return repository


@pytest.fixture
def modules(released: Path) -> dict[str, nn.Module]:
    loaded = weights.load_modules(released)
    nets = (loaded.detect, loaded.rectify, loaded.recognize)
    return dict(zip(MODELS, nets, strict=True))


def test_nothing_but_artifacts_and_the_manifest_is_left(exported: Path) -> None:
    files = {str(p.relative_to(exported)) for p in exported.rglob("*") if p.is_file()}
    artifacts = {f"{model}/1/model.{kind}" for model in MODELS for kind in ("pt", "onnx")}
    pipeline = {f"plate_recognition/1/{n}" for n in ("model.py", "golden.jpg", "exported.json")}
    assert files == artifacts | pipeline


def test_the_manifest_names_the_weights(exported: Path, released: Path) -> None:
    manifest = json.loads((exported / "plate_recognition/1/exported.json").read_text())
    assert manifest["weights"] == weights.check_manifest(released)
    assert len(manifest["artifacts"]) == 6
    assert manifest["golden"] == [], "what is untrained reads nothing"
    args = {"model_repository": f"{exported}/plate_recognition", "model_version": "1"}
    origin = contract.read_origin(args | {"model_instance_kind": "CPU"})
    assert (origin.weights, origin.device) == (manifest["weights"], "cpu")
    assert spec_from_json(Specs, manifest["specs"], "specs") == weights.load_modules(released).specs


# None of these is what was traced or what the export compares.
INPUTS = {
    "yolo": (torch.uint8, (3, 3, 320, 416)),
    "stn": (torch.float32, (7, 3, *spec.RECTIFIER.crop_hw)),
    "lprnet": (torch.float32, (7, 3, *spec.RECTIFIER.rectified_hw)),
}


@pytest.mark.parametrize("model", MODELS)
def test_both_artifacts_agree_with_the_module(
    exported: Path, modules: dict[str, nn.Module], model: str
) -> None:
    dtype, shape = INPUTS[model]
    inputs = (torch.rand(shape) * (256 if dtype == torch.uint8 else 1)).to(dtype)
    expected = modules[model](inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    script = export.load_torchscript(exported / model / "1" / "model.pt")(inputs)
    session = onnxruntime.InferenceSession(exported / model / "1" / "model.onnx")
    assert [entry.name for entry in session.get_inputs()] == [spec.TENSORS.graph_input]
    assert tuple(entry.name for entry in session.get_outputs()) == contract.GRAPHS[model]
    onnx = session.run(None, {spec.TENSORS.graph_input: inputs.numpy()})
    for found in (script if isinstance(script, tuple) else (script,), onnx):
        for one, other in zip(expected, found, strict=True):
            if model == "yolo":  # boxes of equal score may change places
                one, other = one[..., 4], other[..., 4]
            np.testing.assert_allclose(one, np.asarray(other), atol=1e-3)


def declared(model: str) -> list[list[int]]:
    text = (export.REPOSITORY / model / "configs" / "cpu.pbtxt").read_text(encoding="utf-8")
    return [list(o.dims) for o in text_format.Parse(text, model_config_pb2.ModelConfig()).output]


@pytest.mark.parametrize("model", MODELS)
def test_onnx_declares_exactly_the_configured_shapes(exported: Path, model: str) -> None:
    """Triton's own backend refuses anything else, even a size where the other varies."""
    session = onnxruntime.InferenceSession(exported / model / "1" / "model.onnx")
    sizes = [entry.shape for entry in session.get_outputs()]
    found = [[-1 if isinstance(size, str) else size for size in shape] for shape in sizes]
    assert found == [[-1, *dims] for dims in declared(model)]


def test_another_alphabet_is_exported_and_other_sizes_are_not(
    released: Path, exported: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(released, tmp_path / "weights")
    repository = shutil.copytree(exported, tmp_path / "repository")
    specs = Specs(recognizer=spec.RecognizerSpec(alphabet="01ÄÖ"))
    weights.save(LPRNet(specs.recognizer), "recognizer", {}, folder, specs)
    weights.write_manifest(folder)
    assert export.export(folder, repository)
    session = onnxruntime.InferenceSession(repository / "lprnet" / "1" / "model.onnx")
    plates = np.zeros((2, *INPUTS["lprnet"][1][1:]), np.float32)
    assert session.run(None, {"input__0": plates})[0].shape == (2, 5, 24)
    manifest = json.loads((repository / "plate_recognition/1/exported.json").read_text())
    assert spec_from_json(Specs, manifest["specs"], "specs") == specs
    wider = Specs(rectifier=spec.RectifierSpec(crop_hw=(64, 192)))
    weights.save(STN(wider.rectifier), "rectifier", {}, folder, wider)
    weights.write_manifest(folder)
    with pytest.raises(export.ExportError, match=r"crop_hw: expected \(64, 160\).*\(64, 192\)"):
        export.export(folder, repository)


def test_a_release_is_whole_beside_the_others(released: Path, exported: Path) -> None:
    before = {path: path.read_bytes() for path in exported.rglob("*") if path.is_file()}
    assert export.export(released, exported, "12")
    assert all(path.read_bytes() == content for path, content in before.items())
    ours = {str(p.relative_to(exported)) for p in before}
    files = {str(p.relative_to(exported)) for p in exported.rglob("12/*")}
    assert files == {name.replace("/1/", "/12/") for name in ours}
    source = export.REPOSITORY / "plate_recognition" / "1" / "model.py"
    assert (exported / "plate_recognition" / "12" / "model.py").read_bytes() == source.read_bytes()
    args = {"model_repository": f"{exported}/plate_recognition", "model_version": "12"}
    assert contract.read_origin(args | {"model_instance_kind": "CPU"}).version == "12"
    assert export.export(released, exported, "12") is None
    (exported / "plate_recognition" / "12" / "golden.jpg").write_bytes(b"another")
    assert export.export(released, exported, "12") is not None


@pytest.mark.parametrize("version", ["0", "-1", "", "two", "1.5", "02", "²", "99999999999"])
def test_what_triton_takes_for_no_version_is_refused(
    released: Path, exported: Path, version: str
) -> None:
    with pytest.raises(export.ExportError, match=r"^version: expected "):
        export.export(released, exported, version)


def test_an_export_that_ends_midway_leaves_no_release(
    released: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = shutil.copytree(exported, tmp_path / "repository")
    release = repository / "plate_recognition" / "1"
    replace = Path.replace

    def full(path: Path, target: Path) -> Path:
        if path.name == "golden.jpg":
            raise OSError("No space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", full)
    other = make_weights(tmp_path / "other", seed=1)
    with pytest.raises(OSError, match="No space"):
        export.export(other, repository)
    assert {path.name for path in release.iterdir()} == {"model.py", "golden.jpg"}


def test_a_golden_photo_must_be_read(released: Path, exported: Path, tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    with pytest.raises(export.ExportError, match="there is no such file"):
        export.export(released, exported, "3", photo)
    photo.write_bytes(b"no photo")
    with pytest.raises(export.ExportError, match="not an image"):
        export.export(released, exported, "3", photo)
    shutil.copy(export.DEFAULT_GOLDEN, photo)
    with pytest.raises(export.ExportError, match="they read none"):
        export.export(released, exported, "3", photo)
    assert not (exported / "plate_recognition" / "3").exists()


def test_the_released_weights_read_our_golden_photo() -> None:
    (plate,) = read_golden(export.DEFAULT_GOLDEN, weights.load_modules())
    assert plate["text"] == "P593OO977"
    np.testing.assert_allclose(plate["box"], [334.6, 248.0, 408.3, 265.2], atol=3)


def test_a_second_export_does_nothing(exported: Path, released: Path) -> None:
    assert export.export(released, exported) is None


def test_what_the_golden_expectation_depends_on_is_exported_again(
    exported: Path, released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path(export.__file__).parent
    copy = shutil.copytree(package, tmp_path / "package")
    monkeypatch.setattr(export, "_PACKAGE", copy)
    assert export.export(released, exported) is None
    for loop in copy.glob("training/*.py"):
        loop.write_text("changed")
    assert export.export(released, exported) is None
    for name in ("pipeline.py", "recognition/decoding.py", "recognition/countries/ru.toml"):
        (copy / name).write_text("changed")
        assert export.export(released, exported) is not None


def test_damaged_and_lost_artifacts_are_written_again(exported: Path, released: Path) -> None:
    damaged = exported / "lprnet" / "1" / "model.onnx"
    damaged.write_bytes(b"damaged")
    lost = exported / "yolo" / "1" / "model.pt"
    lost.unlink()
    assert export.export(released, exported) is not None
    assert damaged.stat().st_size > 1000 and lost.exists()


def test_missing_weights_are_an_error(tmp_path: Path, exported: Path) -> None:
    with pytest.raises(weights.WeightsError):
        export.export(tmp_path, exported)


def test_disagreement_stops_everything(
    released: Path, tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = export._write_onnx

    def crooked(graph: export.Graph, net: nn.Module, path: Path) -> None:
        if graph.name == "lprnet":
            with torch.no_grad():
                next(net.parameters()).mul_(1.01)
        honest(graph, net, path)
        if graph.name == "lprnet":
            with torch.no_grad():
                next(net.parameters()).div_(1.01)

    other = make_weights(tmp_path / "other", seed=1)
    before = {path: path.read_bytes() for path in exported.rglob("*") if path.is_file()}
    monkeypatch.setattr(export, "_write_onnx", crooked)
    with pytest.raises(export.ExportError, match="lprnet: ONNX disagrees"):
        export.export(other, exported)
    after = {path: path.read_bytes() for path in exported.rglob("*") if path.is_file()}
    assert before == after


def test_artifacts_are_checked_alone_and_in_batches_up_to_the_largest(all_batches: None) -> None:
    assert export.batch_sizes(32) == [1, 4, 32]
    assert export.batch_sizes(16) == [1, 4, 16]
    assert export.batch_sizes(3) == [1, 3]
    inputs = export.inputs_for(SMALL, lambda crops: (crops[:, :, :24, :94], None))
    shapes = {name: [tuple(batch.shape) for batch in made] for name, made in inputs.items()}
    assert shapes == {
        "yolo": [
            *((1, 3, *hw) for hw in SMALL.detector.canvases_hw[1:]),
            *((size, 3, 96, 160) for size in (1, 4, 16)),
        ],
        "stn": [(size, 3, 64, 160) for size in (1, 4, 32)],
        "lprnet": [(size, 3, 24, 94) for size in (1, 4, 32)],
    }
    # Scenes and plates, no two alike, and no noise: neighbouring pixels resemble each other.
    for name in ("yolo", "stn"):
        batch = inputs[name][-1].float()
        assert len(batch.flatten(1).unique(dim=0)) == len(batch)
        steps = (batch[..., 1:] - batch[..., :-1]).abs().mean()
        assert steps < 0.5 * batch.std()


def test_a_disagreement_in_large_batches_alone_is_found(
    modules: dict[str, nn.Module], all_batches: None
) -> None:
    """As an artifact has it that computes a batch in parts and drops a row between them."""
    (graph,) = (graph for graph in export.graphs_of(SMALL) if graph.name == "lprnet")
    inputs = export.inputs_for(SMALL, modules["stn"])["lprnet"]

    def forgetful(plates: Tensor) -> Tensor:
        logits = modules["lprnet"](plates)
        if len(plates) > 4:
            logits[-1] = logits[0]
        return logits

    net = modules["lprnet"]
    assert export.disagreement(graph, net, {"ONNX": net}, inputs) == ""
    message = export.disagreement(graph, net, {"ONNX": forgetful}, inputs)
    assert message.startswith("lprnet: ONNX disagrees with its module on (32, 3, 24, 94)")
