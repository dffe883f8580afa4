"""The supervisor without a Triton: how often it restarts what, the worker, all parts together."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Clock, wait_until

from api.status import Status, read_status
from plates.serving import gateway, processes, supervisor
from plates.serving.errors import GaveUp, StartError
from plates.serving.gateway import GatewayWorker
from plates.serving.supervisor import RestartBudget, Supervisor

PATIENCE_S = 30

# --- how often a part may be restarted ---


def test_restarts_are_spaced_out_and_end() -> None:
    clock = Clock()
    restarts = RestartBudget("The part", clock)
    pauses = [restarts.spend("it is broken") for _ in range(supervisor.MAX_IN_A_ROW)]
    assert pauses == [0, 0.5, 1, 2, 4]
    with pytest.raises(GaveUp, match="The part can't be healed: after 5 restarts it is broken"):
        restarts.spend("it is broken")


def test_rare_restarts_never_end_as_long_as_the_part_is_well_in_between() -> None:
    clock = Clock()
    restarts = RestartBudget("The part", clock)
    for _ in range(3 * supervisor.MAX_IN_A_ROW):
        clock.now += supervisor.WINDOW_S + 1
        assert restarts.spend("it is broken") == 0
        restarts.well()


def test_a_part_that_is_well_for_a_moment_each_time_is_given_up_as_well() -> None:
    clock = Clock()
    restarts = RestartBudget("The part", clock)
    for _ in range(supervisor.MAX_IN_WINDOW):
        clock.now += 5
        assert restarts.spend("it is broken") < 5
        restarts.well()
    with pytest.raises(GaveUp, match="after 10 restarts it is broken"):
        restarts.spend("it is broken")


def test_slow_failures_in_a_row_end_too() -> None:
    clock = Clock()
    restarts = RestartBudget("The part", clock)
    for _ in range(supervisor.MAX_IN_A_ROW):
        clock.now += 3 * supervisor.WINDOW_S
        restarts.spend("it is never ready")
    clock.now += 3 * supervisor.WINDOW_S
    with pytest.raises(GaveUp):
        restarts.spend("it is never ready")


# --- the gateway's worker ---

SIGNS = """
import os, sys, time
words = sys.argv[1:]
give = int(words[words.index("--alive") + 1])
for _ in range({signs}):
    os.write(give, b".")
    time.sleep(0.05)
{then}
"""
WELL = SIGNS.format(signs=10**6, then="")
MUTE = SIGNS.format(signs=3, then="time.sleep(600)")
ENDING = SIGNS.format(signs=1, then="sys.exit(7)")
NEVER = SIGNS.format(signs=0, then="sys.exit(7)")


@contextlib.contextmanager
def working(code: str, **environment: str) -> Iterator[GatewayWorker]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        part = GatewayWorker(lambda: environment, listener, [sys.executable, "-c", code])
        try:
            yield part
        finally:
            part.stop()


def pid_of(part: GatewayWorker) -> int:
    assert part._process is not None
    return part._process.pid


def ticked_until(part: GatewayWorker, condition: Callable[[], Any]) -> None:
    def look() -> Any:
        part.tick()
        return condition()

    wait_until(look)


def test_a_killed_worker_is_started_again() -> None:
    with working(WELL) as part:
        part.start()
        assert part.status.state == "ready" and part.status.restarts == {"gateway": 0}
        first = pid_of(part)
        os.kill(first, signal.SIGKILL)
        ticked_until(part, lambda: part.status.restarts["gateway"] == 1)
        assert part.status.state == "healing"
        ticked_until(part, lambda: part.status.state == "ready")
        assert pid_of(part) != first
        last = pid_of(part)
    assert not processes.is_alive(last)


def test_a_worker_that_gives_no_sign_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "SILENCE_S", 0.5)
    with working(MUTE) as part:
        part.start()
        mute = pid_of(part)
        ticked_until(part, lambda: part.status.restarts["gateway"] == 1)
        assert not processes.is_alive(mute)


def test_a_worker_that_ends_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_LONGEST_PAUSE_S", 0.0)
    with working(ENDING) as part:
        part.start()
        with pytest.raises(GaveUp, match=r"The gateway can't be healed.*status 7"):
            ticked_until(part, lambda: False)
        assert part.status.restarts["gateway"] == supervisor.MAX_IN_WINDOW


def test_a_worker_that_can_not_be_made_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    popen, failures = subprocess.Popen, [OSError(11, "no room"), OSError(24, "too many files")]

    def fail_at_first(*words: Any, **options: Any) -> "subprocess.Popen[bytes]":
        if failures:
            raise failures.pop()
        return popen(*words, **options)

    with working(WELL) as part:
        part.start()
        os.kill(pid_of(part), signal.SIGKILL)
        ticked_until(part, lambda: part.status.restarts["gateway"] == 1)
        monkeypatch.setattr(gateway.subprocess, "Popen", fail_at_first)
        open_files = len(list(Path("/proc/self/fd").iterdir()))
        ticked_until(part, lambda: not failures)
        assert part.status.state == "healing"
        assert len(list(Path("/proc/self/fd").iterdir())) == open_files
        ticked_until(part, lambda: part.status.state == "ready")
        assert part.status.restarts["gateway"] == 3
        failures = [OSError(11, "no room")]
        with pytest.raises(StartError, match="no room"):
            part.start()


def test_a_worker_that_never_serves_is_an_error() -> None:
    with working(NEVER) as part, pytest.raises(StartError, match="status 7"):
        part.start()


def test_callers_wait_for_the_worker_which_gets_the_socket_and_tritons_address() -> None:
    code = (
        "import socket; words = sys.argv[1:]\n"
        "listener = socket.socket(fileno=int(words[words.index('--listen') + 1]))\n"
        "listener.accept()[0].sendall(os.environ['PLATES_TRITON_URL'].encode())\n"
    )
    with working(SIGNS.format(signs=1, then=code), PLATES_TRITON_URL="here:1") as part:
        address = part._listener.getsockname()
        with socket.create_connection(address, timeout=PATIENCE_S) as caller:
            part.start()
            assert caller.recv(100) == b"here:1"


# --- all parts together ---


class PartOfATest:
    def __init__(self, name: str, journal: list[str]) -> None:
        self.name, self.journal = name, journal
        self.status = Status("starting", {name: 0})
        self.todo: list[Callable[[], None]] = []

    def start(self) -> None:
        self.journal.append(f"start {self.name}")
        self.status = Status("ready", {self.name: 0})

    def tick(self) -> None:
        if self.todo:
            self.todo.pop(0)()

    def stop(self) -> None:
        self.journal.append(f"stop {self.name}")


def test_parts_are_started_in_order_watched_and_stopped_backwards(tmp_path: Path) -> None:
    journal: list[str] = []
    path = tmp_path / "status.json"
    one, two = PartOfATest("one", journal), PartOfATest("two", journal)

    def break_down() -> None:
        two.status = Status("healing", {"two": 1})

    def note() -> None:
        journal.append(str(read_status(path)))
        two.status = Status("ready", {"two": 1})

    def give_up() -> None:
        one.status = Status("ready", {"one": 0}, 1, {"2": "it misreads"})
        raise GaveUp("no hope")

    one.todo = [lambda: None, note, give_up]
    two.todo = [break_down]
    supervisor = Supervisor([one, two], path)
    supervisor.start()
    assert read_status(path) == Status("ready", {"one": 0, "two": 0})
    with pytest.raises(GaveUp, match="no hope"):
        supervisor.run()
    supervisor.stop()
    healing = str(Status("healing", {"one": 0, "two": 1}))
    assert journal == ["start one", "start two", healing, "stop two", "stop one"]
    failed = Status("failed", {"one": 0, "two": 1}, 1, {"2": "it misreads"})
    assert read_status(path) == failed


def test_what_nobody_expected_ends_with_a_status_too(tmp_path: Path) -> None:
    part = PartOfATest("one", [])
    part.todo = [lambda: 1 // 0]  # type: ignore[list-item, return-value]
    supervisor = Supervisor([part], tmp_path / "status.json")
    supervisor.start()
    with pytest.raises(ZeroDivisionError):
        supervisor.run()
    assert read_status(tmp_path / "status.json") == Status("failed", {"one": 0})


def test_a_status_that_can_not_be_written_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor([PartOfATest("one", [])], tmp_path / "gone" / "status.json")
    supervisor.start()
    assert "status file can't be written" in caplog.text
