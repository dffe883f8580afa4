"""A small model repository with releases that only look like some."""

import hashlib
import json
from pathlib import Path

CONFIG = 'backend: "{}"\nmax_batch_size: 1\n'
MODELS = {"yolo": "openvino", "lprnet": "onnxruntime", "plate_recognition": "python"}
PLATE = ("A123BC77", [10.0, 20.0, 110.0, 44.0])


def make_repository(folder: Path) -> Path:
    for model, backend in MODELS.items():
        (folder / model / "configs").mkdir(parents=True)
        (folder / model / "config.pbtxt").write_text(CONFIG.format("pytorch"))
        (folder / model / "configs" / "cpu.pbtxt").write_text(CONFIG.format(backend))
    publish(folder, 1)
    return folder


def publish(folder: Path, version: int, plate: tuple[str, list[float]] = PLATE) -> None:
    hashes = {}
    for net in ("yolo", "lprnet"):
        for kind in ("onnx", "pt"):
            name = f"{net}/{version}/model.{kind}"
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(name)
            hashes[name] = hashlib.sha256(name.encode()).hexdigest()
    pipeline = folder / "plate_recognition" / str(version)
    pipeline.mkdir(exist_ok=True)
    (pipeline / "model.py").write_text("pass")
    (pipeline / "golden.jpg").write_bytes(b"photo")
    golden = [{"text": plate[0], "box": plate[1]}]
    manifest = {"artifacts": hashes, "golden": golden}
    (pipeline / "exported.json").write_text(json.dumps(manifest))
