"""Model repositories with versions made from an exported one: good, misreading and damaged."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

NETS = ("yolo", "stn", "lprnet")
PIPELINE = ("model.py", "golden.jpg")
Spoil = Callable[[Path], None]


def manifest_of(repository: Path, version: int) -> Path:
    return repository / "plate_recognition" / str(version) / "exported.json"


def copy_repository(exported: Path, folder: Path) -> Path:
    """Its version 1, with the artifacts that a CPU is served from."""
    artifacts = shutil.ignore_patterns("model.pt", ".exported", "__pycache__", "[2-9]*")
    shutil.copytree(exported, folder, ignore=artifacts)
    write_manifest(folder, 1, manifest_of(folder, 1))
    return folder


def write_manifest(repository: Path, version: int, source: Path) -> None:
    """What the source says, with hashes of the artifacts as they are."""
    manifest = json.loads(source.read_text())
    names = [f"{net}/{version}/model.onnx" for net in NETS]
    digests = {n: hashlib.sha256((repository / n).read_bytes()).hexdigest() for n in names}
    manifest_of(repository, version).write_text(json.dumps(manifest | {"artifacts": digests}))


def add_version(repository: Path, version: int, spoil: Spoil = lambda _: None) -> None:
    """Publish version 1's weights under another version, as `plates export` does.

    Args:
        repository: From `copy_repository`.
        version: Of the new release.
        spoil: Does something to the nets' files before they are hashed.
    """
    for net in NETS:
        shutil.copytree(repository / net / "1", repository / net / str(version))
    spoil(repository)
    folder = repository / "plate_recognition" / str(version)
    folder.mkdir()
    for name in PIPELINE:
        shutil.copy(repository / "plate_recognition" / "1" / name, folder)
    write_manifest(repository, version, manifest_of(repository, 1))


def remove_version(repository: Path, version: int) -> None:
    for model in (*NETS, "plate_recognition"):
        shutil.rmtree(repository / model / str(version))


def rotate_alphabet(version: int) -> Spoil:
    """A recognizer that takes each character for its neighbour in the alphabet."""

    def spoil(repository: Path) -> None:
        path = repository / "lprnet" / str(version) / "model.onnx"
        model = onnx.load(path)
        head = [t for t in model.graph.initializer if t.name.startswith("head.")]
        for tensor in head:
            rows = numpy_helper.to_array(tensor)
            turned = np.concatenate([np.roll(rows[:-1], 1, axis=0), rows[-1:]])
            tensor.CopyFrom(numpy_helper.from_array(turned, tensor.name))
        onnx.save(model, path)

    return spoil


def truncate(net: str, version: int) -> Spoil:
    """A file that was copied in part, and hashed then."""

    def spoil(repository: Path) -> None:
        path = repository / net / str(version) / "model.onnx"
        path.write_bytes(path.read_bytes()[:-100_000])

    return spoil
