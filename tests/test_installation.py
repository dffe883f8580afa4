"""Which Triton is taken, and what is made of it: the wheel's, or that of NVIDIA's image."""

import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from test_embedded import ECHO_CONFIG, ECHO_MODEL, is_ready

from plates.serving import EmbeddedTriton, fitness, installation, launch, preflight, server
from plates.serving.installation import Stock, Wheel, find_installation, find_wheel

HERE = f"libpython3.{sys.version_info.minor}.so.1.0"


def make_stock(folder: Path, libpython: str = HERE) -> Stock:
    """What an image has, without its contents."""
    stock = Stock(folder)
    for part in (stock.server, stock.stub):
        part.parent.mkdir(parents=True)
        part.write_bytes(b"\0" + libpython.encode() + b"\0")
        part.chmod(part.stat().st_mode | stat.S_IXUSR)
    return stock


def wanted(folder: Path) -> fitness.Wanted:
    (folder / "model/1").mkdir(parents=True)
    (folder / "model/1/model.py").touch()
    (folder / "model/config.pbtxt").write_text('backend: "python"\n')
    return fitness.Wanted(folder, "cpu", preflight.LOOPBACK, {})


def test_the_wheel_comes_before_the_image(tmp_path: Path) -> None:
    stock = make_stock(tmp_path / "tritonserver")
    assert isinstance(find_installation(stock.folder), Wheel)


def test_the_image_is_found_where_there_is_no_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "find_wheel", lambda: None)
    assert find_installation(tmp_path) is None
    stock = make_stock(tmp_path / "tritonserver")
    assert find_installation(stock.folder) == stock


def test_the_images_own_backends_are_taken_as_they_are(tmp_path: Path) -> None:
    stock = make_stock(tmp_path / "tritonserver")
    backends = stock.lay_out_backends(tmp_path / "backends")
    assert backends == stock.folder / "backends"
    assert not (tmp_path / "backends").exists()


def test_the_images_libraries_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/cuda/compat/lib")
    ours = launch.environment("gpu", Stock())
    assert ours["LD_LIBRARY_PATH"] == "/usr/local/cuda/compat/lib"
    assert ours["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert launch.environment("cpu", find_wheel())["LD_LIBRARY_PATH"] != ours["LD_LIBRARY_PATH"]


def test_what_only_the_wheel_needs_is_not_asked_of_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for check in ("check_glibc", "check_numpy", "check_platform", "check_libpython"):
        monkeypatch.setattr(preflight, check, lambda *_, name=check: name)
    monkeypatch.setattr(preflight, "check_stub", lambda *_: None)
    order = wanted(tmp_path / "models")
    assert fitness.problems_with(make_stock(tmp_path / "opt"), order, {}) == []
    assert "check_numpy" in fitness.problems_with(find_wheel(), order, {})
    (none, platform) = fitness.problems_with(None, order, {})
    assert "make setup" in none and "/opt/tritonserver" in none and platform == "check_platform"


def test_an_image_for_another_python_is_refused(tmp_path: Path) -> None:
    stock = make_stock(tmp_path / "opt", "libpython3.10.so.1.0")
    problems = fitness.problems_with(stock, wanted(tmp_path / "models"), {})
    assert len(problems) == 1
    assert "Python 3.10" in problems[0] and f"3.{sys.version_info.minor}" in problems[0]


def test_an_image_without_the_python_backend_is_refused(tmp_path: Path) -> None:
    stock = make_stock(tmp_path / "opt")
    stock.stub.unlink()
    problem = preflight.check_installation(stock)
    assert problem and "lacks triton_python_backend_stub" in problem


@pytest.mark.live
@pytest.mark.control
def test_a_server_laid_out_like_the_images_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = find_wheel()
    assert wheel is not None
    stock = Stock(tmp_path / "tritonserver")
    stock.server.parent.mkdir(parents=True)
    stock.server.write_text(f'#!/bin/sh\nexec {wheel.server} "$@"\n')
    stock.server.chmod(0o755)
    python = stock.stub.parent
    shutil.copytree(wheel.folder / "backends/python", python)
    stock.stub.unlink(missing_ok=True)
    stock.stub.symlink_to(wheel.stub)
    monkeypatch.setattr(server, "find_installation", lambda: stock)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(preflight.find_libpython()))
    (tmp_path / "models/echo/1").mkdir(parents=True)
    (tmp_path / "models/echo/config.pbtxt").write_text(ECHO_CONFIG)
    (tmp_path / "models/echo/1/model.py").write_text(ECHO_MODEL)
    with EmbeddedTriton(tmp_path / "models") as started:
        assert is_ready(started)
        assert f"--backend-directory={stock.folder}/backends" in Path(
            f"/proc/{started.pids.server}/cmdline"
        ).read_text().split("\0")


def test_it_listens_where_it_is_told_and_is_asked_on_loopback(tmp_path: Path) -> None:
    everywhere = EmbeddedTriton(tmp_path, host="0.0.0.0", http_port=8000, metrics_port=8002)  # noqa: S104
    assert everywhere.http_url == "127.0.0.1:8000"
    assert everywhere.metrics_url == "127.0.0.1:8002"
    ports = launch.Ports(8000, 8001, 8002)
    command = launch.command(
        Path("tritonserver"),
        repository=tmp_path,
        backends=tmp_path,
        host="0.0.0.0",  # noqa: S104
        ports=ports,
        profile="gpu",
        shm_prefix="plates_",
        key="secret",
    )
    for name, port in vars(ports).items():
        assert {f"--{name}-address=0.0.0.0", f"--{name}-port={port}"} <= set(command)
    # Loading models stays the supervisor's own, wherever it listens.
    restricted = [word for word in command if "restricted" in word]
    assert len(restricted) == 2 and all(word.endswith("plates-key=secret") for word in restricted)
