"""--engine and --device: what is asked for is taken, or refused in one line."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from command_line import SCENE, SCENE_TEXT

from plate_models import contract, export, weights
from plate_models.engines import nets
from plate_models.images import decode
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
        manifest.write_text(json.dumps(export._made_for(weights.load_modules(source))))

    monkeypatch.setattr(export, "export", copy_instead)
    loaded = nets.load_nets("served", folder=others(tmp_path / "others"))
    assert loaded.engine == "served" and not loaded.config.calibration.knots
    photo = torch.from_numpy(decode(SCENE.read_bytes()))
    guesses = [plate.reading.candidates[0][0] for plate in loaded.read(photo)]
    assert SCENE_TEXT in guesses
    assert len(exported) == 1 and export.REPOSITORY not in (exported[0], *exported[0].parents)


REFUSED = {
    ("--engine", "tensorflow"): "engine: expected one of served, torch, got 'tensorflow'",
    ("--device", "tpu"): "device: expected cpu or cuda:0, got 'tpu'",
    ("--device", "cuda:x"): "device: expected cpu or cuda:0, got 'cuda:x'",
    ("--device", "cuda:99"): "device: cuda:99 is not there; torch sees",
    ("--device", "cuda:99", "--engine", "served"): "cuda:99",
}


@pytest.mark.parametrize("command", ["read", "eval"])
@pytest.mark.parametrize("words", REFUSED)
def test_no_such_engine_or_device_is_one_line(
    command: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    target = [str(SCENE)] if command == "read" else ["--data", str(SCENE.parent)]
    assert cli.main([command, *target, *words]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(f"plates {command}: ") and REFUSED[words] in shown.err
    assert shown.err.count("\n") == 1 and shown.out == ""


def test_the_served_engine_is_not_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nets, "check_device", lambda _: None)
    with pytest.raises(nets.EngineError, match='"served" runs on the CPU; cuda:0 needs'):
        nets.load_nets("served", "cuda:0")


VIA = {
    ("--via", "rest"): "--via: expected triton, got 'rest'",
    ("--via", "triton", "--rendered"): "leave the other parts out",
    ("--triton", "localhost:8001"): "goes with --via triton",
    ("--via", "triton", "--triton", "nowhere"): "--triton: Value error, 'nowhere' has no port",
}


@pytest.mark.parametrize("words", VIA)
def test_a_way_to_triton_that_makes_no_sense_is_one_line(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["eval", "--data", str(tmp_path), *words]) == 1
    message = capsys.readouterr().err
    assert VIA[words] in message and message.count("\n") == 1


def test_an_unknown_format_is_not_exported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["export", "--format", "tensorflow"])
    assert "unrecognized arguments: --format tensorflow" in capsys.readouterr().err
