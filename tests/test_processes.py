"""Ending processes: those that are meant, and nobody else; and what Triton's are told."""

import os
import subprocess
import sys
from itertools import chain, repeat
from pathlib import Path

import pytest

from plates.serving import EmbeddedTriton, launch, processes, server
from plates.serving.processes import Process

WORD = "plates_test_of_processes_"
SLEEP = "import time; time.sleep(600)"


def test_only_those_with_the_word_in_their_arguments_are_ended() -> None:
    word = f"{WORD}{os.getpid()}"
    commands = [[sys.executable, "-c", SLEEP, *words] for words in ([word], [f"x-{word}-y"], [])]
    children = [subprocess.Popen(command) for command in commands]
    try:
        processes.kill_mentioning(word, timeout=30)
        assert [processes.is_alive(child.pid) for child in children] == [False, False, True]
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_orphans_that_were_inherited_leave_no_zombie() -> None:
    word = f"{WORD}reaped_{os.getpid()}"
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", SLEEP, word], os.environ)
    family = processes.kill_mentioning(word, timeout=30)
    assert family == {child}
    assert child in {process.pid for process in processes.process_table()}
    processes.reap({*family, os.getppid()})
    assert child not in {process.pid for process in processes.process_table()}


def test_whoever_is_given_the_id_of_one_that_has_ended_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meant = Process(4321, 1, "S", 1, began=100, command=("stub", WORD))
    ending = Process(4321, 1, "R", 1, began=100, command=())
    stranger = Process(4321, 1, "S", 1, began=900, command=("editor",))
    tables = chain([[meant], [ending]], repeat([stranger]))
    killed: list[int] = []
    monkeypatch.setattr(processes, "process_table", lambda: next(tables))
    monkeypatch.setattr(processes.os, "kill", lambda pid, _: killed.append(pid))
    processes.kill_mentioning(WORD, timeout=30)
    assert killed == [4321, 4321]


def test_a_process_of_another_user_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(pid: int, _: int) -> None:
        asked.append(pid)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(processes.os, "kill", refuse)
    processes.kill_all([11, 12])
    assert asked == [11, 12]


def test_tritons_log_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = EmbeddedTriton(tmp_path)
    triton.bound_log()  # there is none yet
    monkeypatch.setattr(triton, "_folder", tmp_path)
    triton.bound_log()
    monkeypatch.setattr(server, "MAX_LOG_BYTES", 1000)
    log = tmp_path / "triton.log"
    with log.open("ab") as written:
        for kept in (True, False):
            subprocess.run(["echo", "x" * 600], stdout=written, check=True)
            size = log.stat().st_size
            triton.bound_log()
            assert log.stat().st_size == (size if kept else 0)
        subprocess.run(["echo", "the end"], stdout=written, check=True)
    assert triton.log_tail() == "the end"


def test_triton_is_not_told_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATES_TOKENS", "secret-of-the-gate")
    monkeypatch.setenv("PLATES_TRITON_TOKEN", "another")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    told = launch.environment("cpu", None)
    assert told["OMP_NUM_THREADS"] == "3"
    assert not [name for name in told if name.startswith("PLATES_")]
