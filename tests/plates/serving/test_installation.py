"""How Triton is started, and the problems found before its start, each with a cure."""

import os
import socket
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from serving_support import make_image, make_repository
from support import REPOSITORY, embedded_triton, files_limited_to

from plate_models.release import MANIFEST
from plates.serving import installation, triton
from plates.serving.errors import PreflightError
from plates.serving.installation import LIBPYTHON, Installation, find_installation, find_problems


@pytest.fixture
def wheel():
    found = find_installation()
    assert found is not None and found.is_wheel
    return found


@pytest.fixture
def models(tmp_path):
    return make_repository(tmp_path / "мои модели")  # like the name of a home folder


def test_triton_gets_this_python_no_secrets_and_removable_backends(wheel, tmp_path, monkeypatch):
    for name in ("PLATES_TOKENS", "PLATES_TRITON_TOKEN", "PYTHONPATH", "PYTHONHOME"):
        monkeypatch.setenv(name, "secret-of-the-gate")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/cuda/compat/lib")
    variables = make_image(tmp_path).environment("gpu")
    assert variables["OMP_NUM_THREADS"] == "3" and variables["GOMP_SPINCOUNT"] == "0"
    assert variables["OPENBLAS_NUM_THREADS"] == variables["MALLOC_ARENA_MAX"] == "1"
    assert "secret-of-the-gate" not in variables.values()
    assert variables["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    # In an image the order of the libraries is unchanged.
    assert variables["LD_LIBRARY_PATH"] == "/usr/local/cuda/compat/lib"
    for_cpu = wheel.environment("cpu")
    assert for_cpu["LD_LIBRARY_PATH"] != variables["LD_LIBRARY_PATH"]
    assert "CUDA_VISIBLE_DEVICES" not in variables and for_cpu["CUDA_VISIBLE_DEVICES"] == ""
    monkeypatch.setattr("shutil.copytree", None)  # It would copy the mode of read-only folders.
    assert (wheel.lay_out_backends(tmp_path / "copy") / "openvino" / "model.py").exists()


def test_tritons_log_does_not_fill_the_disk(tmp_path, monkeypatch):
    server = embedded_triton(tmp_path)
    monkeypatch.setattr(server, "_folder", tmp_path)
    server.tidy()
    assert server.log_tail() == "", "there is no log yet"
    monkeypatch.setattr(triton, "MAX_LOG_BYTES", 1000)
    log = tmp_path / "triton.log"
    with log.open("ab", buffering=0) as written:
        for size in (600, 0):
            written.write(b"x" * 600)
            server.tidy()
            assert log.stat().st_size == size
        written.write(b"the end")
    monkeypatch.setattr("shutil.rmtree", Mock(side_effect=KeyboardInterrupt))  # a stop signal
    with pytest.raises(KeyboardInterrupt):
        server.kill()
    assert server.log_tail() == "the end"


def test_problems_of_the_installation_are_named_with_a_cure(wheel, models, tmp_path, monkeypatch):
    image = make_image(tmp_path / "opt")
    assert find_problems(wheel, models, "cpu") == find_problems(image, models, "cpu") == []
    (nothing,) = find_problems(None, models, "cpu")
    for word in ("nvidia-pytriton", "make setup", "/opt/tritonserver", "glibc", "x86-64"):
        assert word in nothing
    assert "PLATES_TRITON_URL" in nothing and os.uname().machine in nothing
    for is_wheel, cure in ((True, "make setup"), (False, "image with the Python backend")):
        (no_stub,) = find_problems(Installation(tmp_path, is_wheel), models, "cpu")
        assert "triton_python_backend_stub" in no_stub and cure in no_stub
    image.stub.write_text("#!/bin/sh\necho 'libxyz.so.1.0: cannot open' >&2\nexit 127\n")
    assert "libxyz.so.1.0: cannot open" in find_problems(image, models, "cpu")[0]
    monkeypatch.setattr(installation, "find_libpython", lambda: None)
    monkeypatch.setattr(os, "statvfs", lambda _: Mock(f_flag=os.ST_NOEXEC | os.ST_NOSUID))
    monkeypatch.setattr(sys, "executable", "/opt/my plates/python")
    monkeypatch.setattr("tempfile.tempdir", "/врем")
    libpython, noexec, space, letters = find_problems(wheel, models, "cpu")
    assert LIBPYTHON in libpython and "apt install" in libpython
    assert "noexec" in noexec and "TMPDIR" in noexec
    assert "this Python, '/opt/my plates/python', has a space" in space
    assert "(TMPDIR), '/врем', has a space or a letter beyond ASCII" in letters


@pytest.mark.parametrize("port", [70000, -1, None])
def test_unusable_ports_are_named_together_with_all_other_problems(models, tmp_path, port):
    (models / "plate_recognition" / "1" / MANIFEST).unlink()  # as if it was not exported
    with socket.create_server(("127.0.0.1", 0)) as taken:
        one = taken.getsockname()[1]
        port = port or one
        with pytest.raises(PreflightError) as refused:
            embedded_triton(models, triton_http_port=port).start()
    _, no_model, bad_port = str(refused.value).split("\n- ")
    assert f"There is no exported model in {models}: run `make export`" in no_model
    assert f"Port {port} " in bad_port and "PLATES_TRITON_HTTP_PORT" in bad_port
    with pytest.raises(PreflightError, match=r"(?s)no exported model.*PLATES_TRITON_GRPC_PORT"):
        embedded_triton(tmp_path, triton_http_port=one, triton_grpc_port=one).start()


def test_a_full_disk_is_a_problem_of_the_start_and_leaves_no_folder(models, tmp_path):
    with files_limited_to(0), pytest.raises(PreflightError, match=r"can't be started: .*too large"):
        embedded_triton(models, tmp_path).start()
    assert [*tmp_path.iterdir()] == [models]


@pytest.mark.parametrize(("host", "further"), [("127.0.0.1", False), ("0.0.0.0", True)])  # noqa: S104
def test_clients_of_several_tritons_are_disconnected_to_find_further_ones(tmp_path, host, further):
    options = embedded_triton(tmp_path, triton_host=host)._options(tmp_path, tmp_path)
    assert any("max-connection-age" in option for option in options) == further


def driver(status, gpus):
    """A fake of NVIDIA's driver library, on a machine with so many GPUs."""
    count = Mock(side_effect=lambda pointer: setattr(pointer._obj, "value", gpus))
    return Mock(cuInit=Mock(return_value=status), cuDeviceGetCount=count)


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        (OSError(), "NVIDIA's driver is not there"),
        (driver(100, 0), "NVIDIA's driver finds none (CUDA error 100)"),
        (driver(0, 0), "NVIDIA's driver finds none."),
    ],
)
def test_the_gpu_profile_needs_a_gpu(wheel, monkeypatch, library, reason):
    monkeypatch.setattr(installation, "MANIFEST", "model.py")  # it may not be exported yet
    monkeypatch.setattr(installation.ctypes, "CDLL", Mock(side_effect=[library, driver(0, 1)]))
    assert find_problems(wheel, REPOSITORY, "cpu") == []
    (found,) = find_problems(wheel, REPOSITORY, "gpu")
    for word in ("lprnet, plate_recognition, stn, yolo", reason, "PLATES_PROFILE=cpu"):
        assert word in found
    assert find_problems(wheel, REPOSITORY, "gpu") == []
