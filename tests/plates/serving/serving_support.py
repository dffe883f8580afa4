"""What tests of serving share: model repositories, real and pretended, and a fake Triton."""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_tritonserver
import pytest
from fake_tritonserver import BOX, TEXT
from support import wait_until

from plates.serving import triton
from plates.serving.installation import Installation


def ticked_until(part: Any, condition: Callable[[], Any], seconds: float = 30) -> None:
    """Tick a part of the service until something has happened."""

    def look() -> Any:
        part.tick()
        return condition()

    wait_until(look, seconds)


# --- a repository whose models only look like some, for `fake_tritonserver` ---

CONFIG = 'backend: "{}"\nmax_batch_size: 1\n'
MODELS = {"yolo": "openvino", "lprnet": "openvino", "plate_recognition": "python"}
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
    manifest = {"artifacts": hashes, "golden": [{"text": PLATE[0], "box": PLATE[1]}]}
    files = {"model.py": code, "text": text, "golden.jpg": "photo"}
    files |= {"sleep.py": "import time; time.sleep(600)", "exported.json": json.dumps(manifest)}
    for file, content in files.items():
        path = folder / "plate_recognition" / str(number) / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)


def make_image(folder: Path, server: str = "exit 1") -> Installation:
    """A Triton as an image has it, of two shell scripts."""
    image = Installation(folder, is_wheel=False)
    for program, line in ((image.server, server), (image.stub, "exit 1")):
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    return image


def install_fake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `EmbeddedTriton` start the fake server instead of Triton."""
    image = make_image(folder, f'exec {sys.executable} {fake_tritonserver.__file__} "$@"')
    monkeypatch.setattr(triton, "find_installation", lambda: image)


# --- one model without weights, which a real Triton loads at once ---

MODEL_CONFIG = """
backend: "python"
input [ { name: "image" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [
  { name: "texts" data_type: TYPE_STRING dims: [ -1, 1 ] },
  { name: "coordinates" data_type: TYPE_FP32 dims: [ -1, 4 ] }
]
instance_group [ { kind: KIND_CPU } ]
"""
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        texts = pb_utils.Tensor("texts", np.array([["A"]], object))
        boxes = pb_utils.Tensor("coordinates", np.zeros((1, 4), np.float32))
        return [pb_utils.InferenceResponse([texts, boxes]) for r in requests]
"""


def make_model(repository: Path) -> Path:
    """Make a repository with one model that reads the same in each photo; returns its code."""
    folder = repository / "plate_recognition" / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(MODEL_CONFIG)
    # The real one has this beside it, and is refused without it.
    (folder / "exported.json").write_text("{}")
    (folder / "model.py").write_text(MODEL)
    return folder / "model.py"


# --- versions made from an exported one: good, misreading and damaged ---

EXPORTED = ("yolo", "stn", "lprnet", "plate_recognition")


def copy_repository(exported: Path, folder: Path) -> Path:
    """Its version 1 alone."""
    ignored = shutil.ignore_patterns(".exported", "__pycache__", "[2-9]*")
    return Path(shutil.copytree(exported, folder, ignore=ignored))


def add_version(repository: Path, version: int, text: str = "", damaged: str = "") -> None:
    """Publish version 1's weights as another version.

    If wanted with a golden photo that should be read as `text`, or with a net that was damaged
    before its hash was taken.
    """
    for model in EXPORTED:
        source, target = repository / model / "1", repository / model / str(version)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("exported.json"))
    folder = repository / "plate_recognition"
    content = (folder / "1" / "exported.json").read_text().replace("/1/", f"/{version}/")
    manifest = json.loads(content)
    if text:
        manifest["golden"][0]["text"] = text
    if damaged:
        name = f"{damaged}/{version}/model.onnx"
        data = (repository / name).read_bytes()[:-100_000]
        (repository / name).write_bytes(data)
        manifest["artifacts"][name] = hashlib.sha256(data).hexdigest()
    (folder / str(version) / "exported.json").write_text(json.dumps(manifest))


def remove_version(repository: Path, version: int) -> None:
    for model in EXPORTED:
        shutil.rmtree(repository / model / str(version))
