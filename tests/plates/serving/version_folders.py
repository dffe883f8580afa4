"""A small model repository whose versions only look like some, for `fake_tritonserver`."""

import hashlib
import json
import sys
from pathlib import Path

import fake_tritonserver
import pytest
from fake_tritonserver import BOX, TEXT

from plates.serving import triton
from plates.serving.installation import Installation
from plates.serving.versions import View

CONFIG = 'backend: "{}"\nmax_batch_size: 1\n'
MODELS = {"yolo": "openvino", "lprnet": "onnxruntime", "plate_recognition": "python"}
PLATE = (TEXT, BOX)


def make_repository(folder: Path) -> Path:
    for model, backend in MODELS.items():
        (folder / model / "configs").mkdir(parents=True)
        (folder / model / "config.pbtxt").write_text(CONFIG.format("pytorch"))
        (folder / model / "configs" / "cpu.pbtxt").write_text(CONFIG.format(backend))
    publish(folder, 1)
    return folder


def publish(folder: Path, number: int, code: str = "pass", text: str = TEXT) -> None:
    """Add a version: what its model.py holds, and what is read with it on its golden photo."""
    hashes = {}
    for net in ("yolo", "lprnet"):
        for kind in ("onnx", "pt"):
            name = f"{net}/{number}/model.{kind}"
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(name)
            hashes[name] = hashlib.sha256(name.encode()).hexdigest()
    pipeline = folder / "plate_recognition" / str(number)
    pipeline.mkdir(exist_ok=True)
    (pipeline / "model.py").write_text(code)
    (pipeline / "sleep.py").write_text("import time; time.sleep(600)")
    (pipeline / "text").write_text(text)
    (pipeline / "golden.jpg").write_bytes(b"photo")
    golden = [{"text": PLATE[0], "box": PLATE[1]}]
    manifest = {"artifacts": hashes, "golden": golden}
    (pipeline / "exported.json").write_text(json.dumps(manifest))


def shown(view: View) -> dict[str, set[int]]:
    """Models to the versions that a view shows."""
    return {
        model.name: {int(version.name) for version in model.glob("[0-9]*")}
        for model in view.folder.iterdir()
    }


def install_fake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `EmbeddedTriton` start the fake server instead of Triton."""
    image = Installation(folder, is_wheel=False)
    server = f'exec {sys.executable} {fake_tritonserver.__file__} "$@"'
    for program, line in ((image.server, server), (image.stub, "exit 1")):
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    monkeypatch.setattr(triton, "find_installation", lambda: image)
