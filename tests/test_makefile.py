"""What `make` does again, and what it leaves alone."""

import os
import shutil
import subprocess

from support import ROOT

from plate_models import contract, release
from plate_models.spec import MODEL_VERSION

ARTIFACTS = [
    *(f"{net}/{MODEL_VERSION}/model.{kind}" for net in contract.GRAPHS for kind in ("pt", "onnx")),
    f"plate_recognition/{MODEL_VERSION}/{release.MANIFEST}",
]
# What the artifacts, or what is read on the golden photo, depends on.
SOURCES = [
    *("plate_models/nets/net.py", "weights/net.safetensors", "plate_models/golden.jpg"),
    *("plate_models/pipeline.py", "plate_models/recognition/decoding.py"),
    *("plate_models/recognition/grammar.py", "plate_models/recognition/countries/ru.toml"),
]
OFFLINE = "plate_models/training/loop.py"


def would_export(clone):
    """Whether `make export` has something to do there."""
    command = ["make", "-q", "-C", clone, "model_repository/.exported"]
    status = subprocess.run(command, capture_output=True).returncode
    assert status in (0, 1)
    return bool(status)


def test_it_exports_again_what_is_lost_or_stale(tmp_path):
    """In a clone of empty files that was set up and exported long ago."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    requirements = [f"docker/requirements/{name}.txt" for name in ("dev", "torch")]
    first = ["Makefile", "pyproject.toml", "docker/setup.sh", *requirements, *SOURCES, OFFLINE]
    artifacts = [f"model_repository/{artifact}" for artifact in ARTIFACTS]
    made = [".venv/.setup", *artifacts, "model_repository/.exported"]
    for moment, name in enumerate(first + made):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (moment, moment))
    assert not would_export(tmp_path)
    for artifact in artifacts:
        (tmp_path / artifact).rename(tmp_path / "lost")
        assert would_export(tmp_path), artifact
        (tmp_path / "lost").rename(tmp_path / artifact)
    for source in SOURCES:
        os.utime(tmp_path / source)
        assert would_export(tmp_path), source
        os.utime(tmp_path / source, (0, 0))
    os.utime(tmp_path / OFFLINE)
    assert not would_export(tmp_path)
    script = tmp_path / ".venv" / "bin" / "plates"
    script.parent.mkdir()
    for place in (tmp_path, tmp_path.parent):  # scripts name where the clone was set up
        script.write_text(f"#!{place}/.venv/bin/python\n")
        assert would_export(tmp_path) == (place != tmp_path)
