"""Each thing that can be missing has its own message, which says what to do."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import types
from pathlib import Path

import pytest

from plate_models.contract import MANIFEST
from plates.serving import EmbeddedTriton, PreflightError, preflight
from plates.serving.installation import Wheel, find_wheel

REPOSITORY = Path(__file__).resolve().parent.parent / "model_repository"


def test_this_machine_passes() -> None:
    wheel = find_wheel()
    assert wheel is not None
    libpython = preflight.find_libpython()
    problems = [
        preflight.check_python(),
        preflight.check_platform(),
        preflight.check_glibc(),
        preflight.check_numpy(),
        preflight.check_installation(wheel),
        preflight.check_libpython(libpython),
        preflight.check_stub(wheel.stub, {**os.environ, "LD_LIBRARY_PATH": str(libpython)}),
    ]
    assert problems == [None] * 7


@pytest.mark.parametrize("version", [(3, 10), (3, 13), (2, 7)])
def test_other_pythons(version: tuple[int, int]) -> None:
    problem = preflight.check_python(version)
    assert problem and f"{version[0]}.{version[1]}" in problem and "make setup" in problem


@pytest.mark.parametrize(
    ("system", "machine"), [("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "riscv64")]
)
def test_other_platforms(system: str, machine: str) -> None:
    problem = preflight.check_platform(system, machine)
    assert problem and f"{system} {machine}" in problem and "PLATES_TRITON_URL" in problem


@pytest.mark.parametrize("found", ["glibc 2.34", "glibc 1.99", "no glibc", ""])
def test_other_c_libraries(found: str) -> None:
    problem = preflight.check_glibc(found)
    assert problem and "2.35" in problem and found in problem


@pytest.mark.parametrize("found", ["glibc 2.35", "glibc 2.41", "glibc 3.0"])
def test_c_libraries_that_will_do(found: str) -> None:
    assert preflight.check_glibc(found) is None


def test_numpy_2() -> None:
    assert preflight.check_numpy("1.26.4") is None
    problem = preflight.check_numpy("2.0.0")
    assert problem and "numpy 2.0.0" in problem and "numpy<2" in problem


def test_a_missing_or_broken_wheel(tmp_path: Path) -> None:
    problem = preflight.check_installation(None)
    assert problem and "nvidia-pytriton" in problem and "make setup" in problem
    problem = preflight.check_installation(Wheel(tmp_path))
    assert problem and "lacks tritonserver" in problem


def test_a_missing_libpython() -> None:
    problem = preflight.check_libpython(None)
    assert problem and preflight.libpython_name() in problem and "apt install" in problem
    assert preflight.libpython_name().startswith(f"libpython3.{sys.version_info.minor}.so")


def test_a_stub_that_lacks_a_library(tmp_path: Path) -> None:
    stub = tmp_path / "stub"
    stub.write_text("#!/bin/sh\necho 'libpython3.99.so.1.0: cannot open' >&2\nexit 127\n")
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    problem = preflight.check_stub(stub, {})
    assert problem and "libpython3.99.so.1.0" in problem


def test_a_space_in_a_path(tmp_path: Path) -> None:
    good, bad = tmp_path / "models", tmp_path / "my models"
    problems = list(preflight.check_spaces({"this Python": good, "the model repository": bad}))
    assert len(problems) == 1 and "the model repository" in problems[0] and str(bad) in problems[0]
    bad.mkdir()
    with pytest.raises(PreflightError, match="has a space"):
        EmbeddedTriton(bad).start()


def test_a_folder_that_no_library_is_loaded_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert preflight.check_exec(tmp_path) is None
    told = types.SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID)
    monkeypatch.setattr(os, "statvfs", lambda _: told)
    problem = preflight.check_exec(tmp_path)
    assert problem and "noexec" in problem and "TMPDIR" in problem


@pytest.mark.parametrize("port", [70000, -1])
def test_a_port_that_is_none(port: int) -> None:
    (problem,) = preflight.check_ports({"PLATES_TRITON_HTTP_PORT": port})
    assert str(port) in problem and "PLATES_TRITON_HTTP_PORT" in problem


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (problem,) = preflight.check_ports({"PLATES_TRITON_HTTP_PORT": port, "FREE": 0})
    assert f"Port {port}" in problem and "PLATES_TRITON_HTTP_PORT" in problem


def test_missing_artifacts_per_profile(tmp_path: Path) -> None:
    (tmp_path / "net" / "1").mkdir(parents=True)
    (tmp_path / "net" / "configs").mkdir()
    (tmp_path / "net" / "config.pbtxt").write_text('# backend: "x"\nbackend: "pytorch"\n')
    (tmp_path / "net" / "configs" / "cpu.pbtxt").write_text('backend: "onnxruntime"\n')
    (problem,) = preflight.check_artifacts(tmp_path, "cpu")
    assert "net has no model.onnx" in problem and "make export" in problem
    (problem,) = preflight.check_artifacts(tmp_path, "gpu")
    assert "net has no model.pt" in problem
    (tmp_path / "net" / "1" / "model.onnx").touch()
    assert not list(preflight.check_artifacts(tmp_path, "cpu"))


def test_a_lost_manifest(tmp_path: Path) -> None:
    model = tmp_path / "plate_recognition"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('backend: "python"\n')
    (model / "1" / "model.py").touch()
    (problem,) = preflight.check_artifacts(tmp_path, "cpu")
    assert f"plate_recognition has no {MANIFEST}" in problem and "make export" in problem
    (model / "1" / MANIFEST).touch()
    assert not list(preflight.check_artifacts(tmp_path, "cpu"))


def test_an_empty_repository_and_all_problems_at_once(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(PreflightError) as caught,
    ):
        EmbeddedTriton(tmp_path, http_port=taken.getsockname()[1]).start()
    assert len(caught.value.problems) == 2
    assert f"There is no model in {tmp_path}" in str(caught.value)


def test_a_profile_for_a_gpu_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "find_gpu_problem", lambda: "NVIDIA's driver finds none")
    (problem, other) = preflight.check_gpu(REPOSITORY, "gpu", "2.13.0+cpu")
    for name in ("lprnet", "plate_recognition", "stn", "yolo", "PLATES_PROFILE=cpu"):
        assert name in problem
    assert "torch 2.13.0+cpu has no CUDA" in other and "make setup" in other
    assert not list(preflight.check_gpu(REPOSITORY, "cpu", "2.13.0+cpu"))


def test_a_profile_for_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "find_gpu_problem", lambda: None)
    assert not list(preflight.check_gpu(REPOSITORY, "gpu", "2.13.0+cu130"))


def test_a_missing_driver_is_named() -> None:
    problem = preflight.find_gpu_problem("libno-such-driver.so")
    assert problem and "libno-such-driver.so is not found" in problem


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
    ("status", "gpus", "problem"),
    [
        (0, 1, None),
        (0, 0, "NVIDIA's driver finds none"),
        (100, 0, "NVIDIA's driver finds none (CUDA error 100)"),
    ],
)
def test_the_driver_is_asked(tmp_path: Path, status: int, gpus: int, problem: str | None) -> None:
    assert preflight.find_gpu_problem(driver(tmp_path, status, gpus)) == problem


@pytest.mark.skipif(preflight.find_gpu_problem() is None, reason="there is a GPU here")
def test_no_server_is_started_for_a_gpu_that_is_not_there() -> None:
    with pytest.raises(PreflightError, match="on a GPU, and NVIDIA's driver") as refused:
        EmbeddedTriton(REPOSITORY, profile="gpu").start()
    assert any("PLATES_PROFILE=cpu" in problem for problem in refused.value.problems)
