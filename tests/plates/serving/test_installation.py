"""Which Triton is taken, and what it needs: each thing that is missing is named with its cure."""

import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from test_embedded import ECHO_CONFIG, ECHO_MODEL, is_ready

from plate_models.contract import MANIFEST
from plates import gpu
from plates.serving import EmbeddedTriton, PreflightError, installation, triton
from plates.serving.installation import LIBPYTHON, Installation, find_installation, find_problems

REPOSITORY = Path(__file__).resolve().parents[3] / "model_repository"


def wheel() -> Installation:
    found = find_installation()
    assert found is not None and found.is_wheel
    return found


def make_image(folder: Path) -> Installation:
    """What an image has: programs that do nothing."""
    image = Installation(folder, is_wheel=False)
    for program in (image.server, image.stub):
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
    return image


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "models/model/1").mkdir(parents=True)
    (tmp_path / "models/model/1/model.py").touch()
    (tmp_path / "models/model/config.pbtxt").write_text('backend: "python"\n')
    return tmp_path / "models"


def problems(found: Installation | None, models: Path, **changes: Any) -> list[str]:
    environment = triton.environment("cpu", found)
    return find_problems(found, environment, models, changes.pop("profile", "cpu"), **changes)


def problem(found: Installation | None, models: Path, **changes: Any) -> str:
    (only,) = problems(found, models, **changes)
    return only


# --- which Triton is taken ---


def test_the_wheel_comes_before_the_image(tmp_path: Path) -> None:
    found = find_installation(make_image(tmp_path).folder)
    assert found is not None and found.is_wheel


def test_the_image_is_found_where_there_is_no_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "_package_folder", lambda _: None)
    assert find_installation(tmp_path) is None
    image = make_image(tmp_path / "tritonserver")
    assert find_installation(image.folder) == image


def test_the_images_own_backends_are_taken_as_they_are(tmp_path: Path) -> None:
    image = make_image(tmp_path / "tritonserver")
    assert image.lay_out_backends(tmp_path / "backends") == image.folder / "backends"
    assert not (tmp_path / "backends").exists()


def test_the_wheel_gets_our_backends(tmp_path: Path) -> None:
    backends = wheel().lay_out_backends(tmp_path / "backends")
    assert {folder.name for folder in backends.iterdir()} >= {"python", "pytorch", "onnxruntime"}
    assert (backends / "onnxruntime" / "model.py").is_file()


def test_the_images_libraries_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/cuda/compat/lib")
    ours = triton.environment("gpu", make_image(tmp_path))
    assert ours["LD_LIBRARY_PATH"] == "/usr/local/cuda/compat/lib"
    assert ours["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert triton.environment("cpu", wheel())["LD_LIBRARY_PATH"] != ours["LD_LIBRARY_PATH"]


# --- what it needs ---


def test_nothing_is_missing_here(models: Path, tmp_path: Path) -> None:
    assert problems(wheel(), models) == problems(make_image(tmp_path / "opt"), models) == []


def test_no_triton_at_all(models: Path) -> None:
    found = problem(None, models)
    for word in ("nvidia-pytriton", "make setup", "/opt/tritonserver", "glibc", "x86-64"):
        assert word in found
    assert "PLATES_TRITON_URL" in found and os.uname().machine in found


@pytest.mark.parametrize("is_wheel", [True, False])
def test_a_missing_stub(models: Path, tmp_path: Path, is_wheel: bool) -> None:
    found = problem(Installation(tmp_path, is_wheel), models)
    assert "triton_python_backend_stub" in found
    assert ("make setup" if is_wheel else "image with the Python backend") in found


def test_a_missing_libpython(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_libpython", lambda: None)
    found = problem(wheel(), models)
    assert LIBPYTHON in found and "apt install" in found
    assert re.fullmatch(r"libpython3\.\d+\.so\.1\.0", LIBPYTHON)


def test_a_folder_that_no_library_is_loaded_from(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = types.SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID)
    monkeypatch.setattr(os, "statvfs", lambda _: flags)
    found = problem(wheel(), models)
    assert "noexec" in found and "TMPDIR" in found


def test_a_stub_that_lacks_a_library(models: Path, tmp_path: Path) -> None:
    image = make_image(tmp_path / "opt")
    image.stub.write_text("#!/bin/sh\necho 'libxyz.so.1.0: cannot open' >&2\nexit 127\n")
    assert "libxyz.so.1.0: cannot open" in problem(image, models)


def test_a_space_in_a_path(models: Path) -> None:
    bad = models.rename(models.with_name("my models"))
    found = problem(wheel(), bad)
    assert "the model repository has a space" in found and str(bad) in found
    with pytest.raises(PreflightError, match="has a space"):
        EmbeddedTriton(bad).start()


@pytest.mark.parametrize("port", [70000, -1, None])
def test_a_port_that_can_not_be_used(models: Path, port: int | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = port or taken.getsockname()[1]
        with pytest.raises(PreflightError) as refused:
            EmbeddedTriton(models, http_port=port).start()
    (found,) = refused.value.problems
    assert f"Port {port} " in found and "PLATES_TRITON_HTTP_PORT" in found


def test_missing_artifacts_per_profile(tmp_path: Path) -> None:
    net = tmp_path / "net"
    (net / "1").mkdir(parents=True)
    (net / "configs").mkdir()
    (net / "config.pbtxt").write_text('# backend: "x"\nbackend: "pytorch"\n')
    (net / "configs" / "cpu.pbtxt").write_text('backend: "onnxruntime"\n')
    found = problem(wheel(), tmp_path)
    assert "net has no model.onnx" in found and "make export" in found
    assert "net has no model.pt" in problem(wheel(), tmp_path, profile="gpu")
    (net / "1" / "model.onnx").touch()
    assert problems(wheel(), tmp_path) == []


def test_a_lost_manifest(tmp_path: Path) -> None:
    model = tmp_path / "plate_recognition"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('backend: "python"\n')
    (model / "1" / "model.py").touch()
    assert f"plate_recognition has no {MANIFEST}" in problem(wheel(), tmp_path)
    (model / "1" / MANIFEST).touch()
    assert problems(wheel(), tmp_path) == []


def test_an_empty_repository_and_all_problems_at_once(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(PreflightError) as caught,
    ):
        EmbeddedTriton(tmp_path, http_port=taken.getsockname()[1]).start()
    assert len(caught.value.problems) == 2
    assert f"There is no model in {tmp_path}" in str(caught.value)


# --- a GPU ---


def test_a_profile_for_a_gpu_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "find_gpu_problem", lambda: "NVIDIA's driver finds none")
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.26.4+cpu")
    monkeypatch.setattr(installation, "ARTIFACTS", {})
    monkeypatch.setattr(installation, "MANIFESTS", {})
    driver, torch = problems(wheel(), REPOSITORY, profile="gpu")
    for name in ("lprnet", "plate_recognition", "stn", "yolo", "PLATES_PROFILE=cpu"):
        assert name in driver
    assert "torch 1.26.4+cpu has no CUDA" in torch and "make setup" in torch
    assert problems(wheel(), REPOSITORY) == []


def test_a_profile_for_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "find_gpu_problem", lambda: None)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.26.4+cu130")
    monkeypatch.setattr(installation, "ARTIFACTS", {})
    monkeypatch.setattr(installation, "MANIFESTS", {})
    assert problems(wheel(), REPOSITORY, profile="gpu") == []


def test_a_missing_driver_is_named() -> None:
    found = gpu.find_gpu_problem("libno-such-driver.so")
    assert found and "libno-such-driver.so is not found" in found


def driver(tmp_path: Path, status: int, gpus: int) -> str:
    """Build a driver that answers so."""
    source = tmp_path / "driver.c"
    source.write_text(
        f"int cuInit(unsigned flags) {{ return {status}; }}\n"
        f"int cuDeviceGetCount(int *count) {{ *count = {gpus}; return 0; }}\n"
    )
    library = tmp_path / f"libcuda-{status}-{gpus}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler, which a driver is made with")
@pytest.mark.parametrize(
    ("status", "gpus", "expected"),
    [
        (0, 1, None),
        (0, 0, "NVIDIA's driver finds none"),
        (100, 0, "NVIDIA's driver finds none (CUDA error 100)"),
    ],
)
def test_the_driver_is_asked(tmp_path: Path, status: int, gpus: int, expected: str | None) -> None:
    assert gpu.find_gpu_problem(driver(tmp_path, status, gpus)) == expected


@pytest.mark.skipif(gpu.find_gpu_problem() is None, reason="there is a GPU here")
def test_no_server_is_started_for_a_gpu_that_is_not_there() -> None:
    with pytest.raises(PreflightError, match="on a GPU, and NVIDIA's driver") as refused:
        EmbeddedTriton(REPOSITORY, profile="gpu").start()
    assert any("PLATES_PROFILE=cpu" in problem for problem in refused.value.problems)


# --- a server that is laid out like the image's ---


@pytest.mark.live
@pytest.mark.control
def test_a_server_laid_out_like_the_images_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = wheel()
    image = Installation(tmp_path / "tritonserver", is_wheel=False)
    image.server.parent.mkdir(parents=True)
    image.server.write_text(f'#!/bin/sh\nexec {installed.server} "$@"\n')
    image.server.chmod(0o755)
    shutil.copytree(installed.folder / "backends/python", image.stub.parent)
    image.stub.unlink(missing_ok=True)
    image.stub.symlink_to(installed.stub)
    monkeypatch.setattr(triton, "find_installation", lambda: image)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(installation.find_libpython()))
    (tmp_path / "models/echo/1").mkdir(parents=True)
    (tmp_path / "models/echo/config.pbtxt").write_text(ECHO_CONFIG)
    (tmp_path / "models/echo/1/model.py").write_text(ECHO_MODEL)
    with EmbeddedTriton(tmp_path / "models") as started:
        assert is_ready(started)
        words = Path(f"/proc/{started.pids.server}/cmdline").read_text().split("\0")
        assert f"--backend-directory={image.folder}/backends" in words
