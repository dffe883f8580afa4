"""--engine and --device: what is asked for is taken."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from support import SCENE, SCENE_TEXT

from plate_models import contract, export, weights
from plate_models.engines import nets
from plate_models.images import decode
from plate_models.spec import spec_to_json
from plates.cli import main as cli


def others(folder: Path) -> Path:
    """Weights that are not the released ones: another file in the same manifest."""
    shutil.copytree(weights.WEIGHTS_DIR, folder)
    (folder / "calibration.json").unlink()
    weights.write_manifest(folder)
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The engines and devices that are loaded; what is loaded finds nothing."""
    loaded: list[tuple[str, str]] = []

    def load(engine: str, device: str, folder: Path) -> nets.Nets:
        loaded.append((engine, device))
        nothing = SimpleNamespace(engine=engine, device=device, read=lambda _: [])
        return cast(nets.Nets, nothing)

    monkeypatch.setattr(nets, "load_nets", load)
    return loaded


def test_what_runs_follows_from_weights_and_device(
    asked: list[tuple[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {
        (): ("served", "cpu"),
        ("--weights", str(weights.WEIGHTS_DIR)): ("served", "cpu"),
        ("--weights", str(tmp_path)): ("torch", "cpu"),
        ("--weights", str(tmp_path), "--engine", "served"): ("served", "cpu"),
        ("--engine", "torch"): ("torch", "cpu"),
        ("--device", "cuda:0"): ("torch", "cuda:0"),
        # Contradicts itself: that is for load_nets to refuse, not to be mended here.
        ("--device", "cuda:0", "--engine", "served"): ("served", "cuda:0"),
    }
    for options, (engine, device) in words.items():
        assert cli.main(["read", str(SCENE), "--json", *options]) == 0
        line = json.loads(capsys.readouterr().out)
        assert set(line) == {"file", "image", "plates", "model"}
        assert line["model"] == {"device": device, "engine": engine}
    assert asked == list(words.values())


def test_other_weights_are_served_without_touching_what_triton_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported: list[Path] = []

    def copy_instead(source: Path, repository: Path) -> None:
        exported.append(repository)
        assert not list(repository.rglob("model.onnx"))
        for model in ("yolo", "stn", "lprnet"):
            shutil.copy(export.REPOSITORY / model / "1" / "model.onnx", repository / model / "1")
        manifest = repository / "plate_recognition" / "1" / contract.MANIFEST
        modules = weights.load_modules(source)
        made_for = {
            "specs": spec_to_json(modules.specs),
            "calibration": json.loads(modules.calibration.to_json()),
        }
        manifest.write_text(json.dumps(made_for))

    monkeypatch.setattr(export, "export", copy_instead)
    loaded = nets.load_nets("served", folder=others(tmp_path / "others"))
    assert loaded.engine == "served" and not loaded.config.calibration.knots
    photo = torch.from_numpy(decode(SCENE.read_bytes()))
    guesses = [plate.reading.candidates[0][0] for plate in loaded.read(photo)]
    assert SCENE_TEXT in guesses
    assert len(exported) == 1 and export.REPOSITORY not in (exported[0], *exported[0].parents)


def test_the_served_engine_is_not_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nets, "check_device", lambda _: None)
    with pytest.raises(nets.EngineError, match='"served" runs on the CPU; cuda:0 needs'):
        nets.load_nets("served", "cuda:0")
