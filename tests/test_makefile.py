"""What `make` does again, and what it leaves alone."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from plate_models import contract
from plate_models.spec import MODEL_VERSION

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = [
    *(f"{net}/{MODEL_VERSION}/model.{kind}" for net in contract.GRAPHS for kind in ("pt", "onnx")),
    f"plate_recognition/{MODEL_VERSION}/{contract.MANIFEST}",
]
# What the artifacts, or what is read on the golden photo, depends on.
SOURCES = [
    *("plate_models/nets/net.py", "weights/net.safetensors", "plate_models/golden.jpg"),
    *("plate_models/pipeline.py", "plate_models/recognition/decoding.py"),
    *("plate_models/recognition/grammar.py", "plate_models/recognition/countries/ru.toml"),
]


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A clone of empty files that was set up and exported long ago."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    requirements = [f"docker/requirements/{name}.txt" for name in ("dev", "torch")]
    first = ["Makefile", "pyproject.toml", "docker/setup.sh", *requirements, *SOURCES]
    artifacts = [f"model_repository/{artifact}" for artifact in ARTIFACTS]
    made = [".venv/.setup", *artifacts, "model_repository/.exported"]
    for age, name in enumerate(reversed(first + made), start=1):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (10_000 - age,) * 2)
    return tmp_path


def would_export(clone: Path) -> bool:
    """Whether `make export` has something to do there."""
    command = ["make", "-q", "-C", clone, "model_repository/.exported"]
    status = subprocess.run(command, capture_output=True).returncode
    assert status in (0, 1)
    return bool(status)


def test_what_is_exported_is_left_alone(exported: Path) -> None:
    assert not would_export(exported)


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_a_lost_artifact_is_exported_again(exported: Path, artifact: str) -> None:
    (exported / "model_repository" / artifact).unlink()
    assert would_export(exported)


@pytest.mark.parametrize("source", SOURCES)
def test_changed_sources_are_exported_again(exported: Path, source: str) -> None:
    (exported / source).write_text("changed")
    assert would_export(exported)


def test_changed_training_is_not_exported_again(exported: Path) -> None:
    (exported / "plate_models" / "training").mkdir()
    (exported / "plate_models" / "training" / "loop.py").write_text("changed")
    assert not would_export(exported)


def test_live_tests_are_told_of_every_server(exported: Path) -> None:
    servers = {
        "PLATES_URL": "http://gateway:1",
        "PLATES_TRITON_URL": "triton:2",
        "PLATES_TRITON_HTTP_URL": "triton:3",
    }
    given = [f"{name}={value}" for name, value in servers.items()]
    command = ["make", "-n", "-C", exported, "test-live", *given]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if "-m live" in line]
    for name, value in servers.items():
        assert f'{name}="{value}"' in line
