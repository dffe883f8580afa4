"""For the tests of serving: model repositories, and a Triton as in its container image."""

import hashlib
import json
import shutil

from support import wait_until, write_files

from plates.serving.installation import Installation


def ticked_until(part, condition, seconds=30):
    """Call tick() of a part of the service until a condition is true."""
    wait_until(lambda: part.tick() or condition(), seconds)


TEXT, BOX = "A123BC77", [10.0, 20.0, 110.0, 44.0]
CONFIG = """
backend: "python"
input [ { name: "image" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [
  { name: "texts" data_type: TYPE_STRING dims: [ -1, 1 ] },
  { name: "coordinates" data_type: TYPE_FP32 dims: [ -1, 4 ] }
]
instance_group [ { kind: KIND_CPU } ]
"""
MODEL = f"""
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        texts = pb_utils.Tensor("texts", np.array([["{TEXT}"]], object))
        boxes = pb_utils.Tensor("coordinates", np.array([{BOX}], np.float32))
        return [pb_utils.InferenceResponse([texts, boxes]) for r in requests]
"""
BROKEN = "raise ImportError('no such luck')"
SLOW = MODEL + "    def initialize(self, args):\n        import time; time.sleep(300)\n"


def make_repository(folder, models=("plate_recognition",)):
    """Make a repository with version 1 of a model that returns the same plate for each photo.

    Only plate_recognition runs in a Triton; the files of other models are dummies.
    """
    write_files(folder, {f"{model}/config.pbtxt": CONFIG.encode() for model in models})
    publish(folder, 1)
    return folder


def publish(folder, number, code=MODEL):
    """Add a version of each model, with `code` as plate_recognition's model.py."""
    models = [config.parent.name for config in folder.glob("*/config.pbtxt")]
    artifacts = [f"{model}/{number}/weights.bin" for model in models]
    files = {artifact: artifact for artifact in artifacts}
    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in artifacts}
    manifest = {"artifacts": hashes, "golden": [{"text": TEXT, "box": BOX}]}
    own = {"model.py": code, "golden.jpg": "photo", "exported.json": json.dumps(manifest)}
    files |= {f"plate_recognition/{number}/{name}": content for name, content in own.items()}
    write_files(folder, {name: content.encode() for name, content in files.items()})


def make_image(folder):
    """A Triton laid out as in its container image, made of two shell scripts."""
    image = Installation(folder, is_wheel=False)
    for program in (image.server, image.stub):
        write_files(folder, {program: b"#!/bin/sh\nexit 1\n"})
        program.chmod(0o755)
    return image


EXPORTED = ("yolo", "stn", "lprnet", "plate_recognition")


def add_version(repository, version, damaged=""):
    """Publish version 1's weights again; a `damaged` net is truncated before it is hashed."""
    for model in EXPORTED:
        source, target = repository / model / "1", repository / model / str(version)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("exported.json"))
    folder = repository / "plate_recognition"
    content = (folder / "1" / "exported.json").read_text().replace("/1/", f"/{version}/")
    manifest = json.loads(content)
    if damaged:
        name = f"{damaged}/{version}/model.onnx"
        data = (repository / name).read_bytes()[:-100_000]
        (repository / name).write_bytes(data)
        manifest["artifacts"][name] = hashlib.sha256(data).hexdigest()
    (folder / str(version) / "exported.json").write_text(json.dumps(manifest))


def remove_version(repository, version):
    for model in EXPORTED:
        shutil.rmtree(repository / model / str(version))
