"""Ending processes: those that are meant and no others; and what Triton's processes get."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import wait_until

from plates.serving import EmbeddedTriton, processes, triton

SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def word(request: pytest.FixtureRequest) -> str:
    return f"plates_test_{os.getpid()}_{request.node.name}"


Children = list["subprocess.Popen[bytes]"]


@pytest.fixture
def children(word: str) -> Iterator[Children]:
    """Two with the word in their arguments, one without."""
    commands = [[sys.executable, "-c", SLEEP, *words] for words in ([word], [f"x-{word}-y"], [])]
    started = [subprocess.Popen(command) for command in commands]
    wait_until(lambda: len(processes.mentioning(word)) == 2)
    yield started
    for child in started:
        child.kill()
        child.wait()


def test_only_those_with_the_word_in_their_arguments_are_ended(
    word: str, children: Children
) -> None:
    processes.kill_mentioning(word, timeout=30)
    assert [processes.is_alive(child.pid) for child in children] == [False, False, True]


def test_the_empty_word_ends_no_process(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[psutil.Process] = []
    monkeypatch.setattr(psutil.Process, "kill", killed.append)
    processes.kill_mentioning("", timeout=1)
    assert killed == [] and all(processes.is_alive(child.pid) for child in children)
    assert processes.leftovers("") == []


def test_a_process_of_another_user_ends_nothing(
    word: str, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "kill", refuse)
    processes.kill_mentioning(word, timeout=0.1)
    assert all(processes.is_alive(child.pid) for child in children)


def test_tritons_log_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedTriton(tmp_path)
    server.bound_log()  # there is none yet
    monkeypatch.setattr(server, "_folder", tmp_path)
    server.bound_log()
    assert server.log_tail() == ""
    monkeypatch.setattr(triton, "MAX_LOG_BYTES", 1000)
    log = tmp_path / "triton.log"
    with log.open("ab") as written:
        for kept in (True, False):
            subprocess.run(["echo", "x" * 600], stdout=written, check=True)
            size = log.stat().st_size
            server.bound_log()
            assert log.stat().st_size == (size if kept else 0)
        subprocess.run(["echo", "the end"], stdout=written, check=True)
    assert server.log_tail() == "the end"


def test_triton_does_not_get_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATES_TOKENS", "secret-of-the-gate")
    monkeypatch.setenv("PLATES_TRITON_TOKEN", "another")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    variables = triton.environment("cpu", None)
    assert variables["OMP_NUM_THREADS"] == "3"
    assert not [name for name in variables if name.startswith("PLATES_")]


def test_it_listens_where_it_must_and_is_asked_on_loopback(tmp_path: Path) -> None:
    everywhere = EmbeddedTriton(
        tmp_path,
        profile="gpu",
        host="0.0.0.0",  # noqa: S104
        http_port=8000,
        grpc_port=8001,
        metrics_port=8002,
    )
    assert everywhere.http_url == "127.0.0.1:8000"
    assert everywhere.metrics_url == "127.0.0.1:8002"
    options = everywhere._options(tmp_path, tmp_path)
    for name, port in (("http", 8000), ("grpc", 8001), ("metrics", 8002)):
        assert {f"--{name}-address=0.0.0.0", f"--{name}-port={port}"} <= set(options)
    # Loading models stays the supervisor's own, wherever it listens.
    restricted = [word for word in options if "restricted" in word]
    assert len(restricted) == 2 and all("plates-key=" in word for word in restricted)
