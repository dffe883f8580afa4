"""The supervisor's part that is Triton, over a server without models: starts, restarts, changes.

What it does with a real Triton is in test_healing_live.py and test_versions_live.py.
"""

import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import wait_until
from version_folders import install_fake, make_repository, publish

from api.status import read_status
from plates.serving import EmbeddedTriton, healing, processes, supervisor, versions
from plates.serving.errors import (
    GaveUp,
    PreflightError,
    RequestError,
    StartError,
    VersionError,
)
from plates.serving.healing import TritonHealer
from plates.serving.prober import STANDSTILL_S
from plates.serving.supervisor import Supervisor


@pytest.fixture(autouse=True)
def fake_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_fake(tmp_path / "tritonserver", monkeypatch)
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(versions, "LOOK_PAUSE_S", 0.1)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "models")


Make = Callable[..., tuple[TritonHealer, EmbeddedTriton]]


@pytest.fixture
def make(repository: Path) -> Iterator[Make]:
    """Makes healers, and stops them in the end."""
    healers = []

    def make(**ports: int) -> tuple[TritonHealer, EmbeddedTriton]:
        triton = EmbeddedTriton(repository, **ports)
        healers.append(TritonHealer(triton, b"photo"))
        return healers[-1], triton

    yield make
    for healer in healers:
        healer.stop()


def wait_for(healer: TritonHealer, condition: Callable[[], Any]) -> None:
    def look() -> Any:
        healer.tick()
        return condition()

    wait_until(look)


def started(make: Make) -> tuple[TritonHealer, EmbeddedTriton]:
    healer, triton = make()
    healer.start()
    wait_for(healer, lambda: healer.status.state == "ready")
    return healer, triton


def count_starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    starts: list[int] = []
    start = EmbeddedTriton.start

    def counted(self: EmbeddedTriton, *arguments: Any) -> EmbeddedTriton:
        starts.append(1)
        if len(starts) > 10:
            pytest.fail("it is started again and again")
        return start(self, *arguments)

    monkeypatch.setattr(EmbeddedTriton, "start", counted)
    return starts


def free_ports() -> dict[str, int]:
    names = ("http_port", "grpc_port", "metrics_port")
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return dict(zip(names, ports, strict=True))


# --- the first start ---


@pytest.mark.parametrize("fixed", [False, True], ids=["free ports", "fixed ports"])
def test_versions_of_which_none_starts_are_tried_once_each(
    repository: Path, make: Make, monkeypatch: pytest.MonkeyPatch, fixed: bool
) -> None:
    starts = count_starts(monkeypatch)
    for number in (1, 2):
        publish(repository, number, code="raise ImportError")
    healer, _ = make(**(free_ports() if fixed else {}))
    with pytest.raises(StartError, match=r"(?s)version 1 .*no such luck.*Version 2 .*no such luck"):
        healer.start()
    assert len(starts) == 2


@pytest.mark.parametrize("spoilt", ["it ends", "it misreads", "a file is damaged"])
def test_a_start_goes_on_with_the_next_version(repository: Path, make: Make, spoilt: str) -> None:
    code = "raise ImportError" if spoilt == "it ends" else "pass"
    publish(repository, 2, code, text="X999XX99" if spoilt == "it misreads" else "A123BC77")
    if spoilt == "a file is damaged":
        (repository / "yolo" / "2" / "model.onnx").write_text("cut off")
    healer, _ = started(make)
    assert healer.status.release == 1
    expected = {"it ends": "no such luck", "it misreads": "read X999XX99"}
    assert expected.get(spoilt, "is not what was exported") in healer.status.refused["2"]


def test_a_port_in_use_is_no_fault_of_the_version(
    repository: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(repository, 2)
    starts = count_starts(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        healer, _ = make(http_port=taken.getsockname()[1])
        with pytest.raises(PreflightError, match="PLATES_TRITON_HTTP_PORT"):
            healer.start()
    assert len(starts) == 1 and healer.status.refused == {}


def test_a_port_that_is_taken_while_triton_starts_is_no_fault_of_the_version(
    repository: Path, make: Make
) -> None:
    publish(repository, 2)
    server = Path(repository.parent, "tritonserver", "bin", "tritonserver")
    server.write_text("#!/bin/sh\necho 'failed to bind: Address already in use'; exit 1\n")
    healer, _ = make(**free_ports())
    with pytest.raises(PreflightError, match="already in use"):
        healer.start()
    assert healer.status.refused == {}


def test_a_repository_without_versions_is_served_as_it_is(repository: Path, make: Make) -> None:
    (repository / "plate_recognition" / "1" / "exported.json").write_text("{}")
    healer, triton = started(make)
    assert healer.status.release is None
    words = Path(f"/proc/{triton.pids.server}/cmdline").read_text().split("\0")
    assert f"--model-repository={repository}" in words


# --- restarts ---


def test_a_process_that_dies_is_counted_by_its_model_and_triton_restarted(make: Make) -> None:
    healer, triton = started(make)
    assert healer.status.restarts == {"triton": 0, "plate_recognition": 0}
    before, prefix, ports = triton.pids, triton.shm_prefix, (triton.http_url, triton.grpc_url)
    os.kill(before.stubs[0], signal.SIGKILL)
    wait_for(healer, lambda: healer.status.state == "healing")
    wait_for(healer, lambda: healer.status.state == "ready")
    assert healer.status.restarts == {"triton": 0, "plate_recognition": 1}
    assert triton.pids.server != before.server
    assert (triton.http_url, triton.grpc_url) == ports
    assert not any(map(processes.is_alive, (before.guardian, before.server, *before.stubs)))
    assert not processes.leftovers(prefix)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_ends_or_hangs_is_restarted(
    make: Make, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(healing, "SILENCE_S", 3.0)
    healer, triton = started(make)
    os.kill(triton.pids.server, number)
    wait_for(healer, lambda: healer.status.restarts["triton"] == 1)
    wait_for(healer, lambda: healer.status.state == "ready")


def test_a_version_that_was_edited_in_place_ends_with_a_status(
    repository: Path, make: Make, tmp_path: Path
) -> None:
    healer, triton = make()
    status_file = tmp_path / "status.json"
    parts = Supervisor([healer], status_file)
    parts.start()
    (repository / "lprnet" / "1" / "model.onnx").write_text("edited")
    os.kill(triton.pids.server, signal.SIGKILL)
    with pytest.raises(GaveUp, match=r"lprnet/1/model\.onnx is not what was exported"):
        parts.run()
    status = read_status(status_file)
    assert status is not None
    assert (status.state, status.restarts["triton"]) == ("failed", supervisor.MAX_IN_A_ROW)


def test_a_slow_start_keeps_no_other_part_waiting_and_a_stop_then_leaves_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    healer, triton = started(make)
    starting, go_on = threading.Semaphore(0), threading.Semaphore(0)
    start = triton.start

    def slow(*arguments: Any) -> EmbeddedTriton:
        starting.release()
        go_on.acquire(timeout=60)
        return start(*arguments)

    monkeypatch.setattr(triton, "start", slow)
    os.kill(triton.pids.server, signal.SIGKILL)
    wait_for(healer, lambda: starting.acquire(blocking=False))
    healer.tick()
    assert healer.status.state == "healing"
    go_on.release()
    wait_for(healer, lambda: healer.status.state == "ready")
    os.kill(triton.pids.server, signal.SIGKILL)
    wait_for(healer, lambda: starting.acquire(blocking=False))
    threading.Timer(0.1, go_on.release).start()
    healer.stop()
    healer._thread.join(30)
    assert not healer._thread.is_alive()
    assert triton.poll() == 1 and triton._folder is None
    assert healer.status.refused == {}


# --- changes of the model version ---


class ChangeOfATest:
    """Stands for `change_version`: it takes until the test says how it ends.

    Attributes:
        started: Released whenever one begins.
        outcomes: Each error with which one ends; None for success.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = threading.Semaphore(0)
        self.outcomes: queue.Queue[Exception | None] = queue.Queue()
        monkeypatch.setattr(healing, "change_version", self)

    def __call__(self, *_: object) -> None:
        self.started.release()
        if outcome := self.outcomes.get():
            raise outcome


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChangeOfATest]:
    change = ChangeOfATest(monkeypatch)
    yield change
    for _ in range(10):  # one for each that was begun
        change.outcomes.put(None)


def changing(
    make: Make, repository: Path, change: ChangeOfATest
) -> tuple[TritonHealer, EmbeddedTriton]:
    healer, triton = started(make)
    publish(repository, 2)
    wait_for(healer, lambda: change.started.acquire(blocking=False))
    return healer, triton


def test_a_version_that_was_changed_to_is_served(
    make: Make, repository: Path, change: ChangeOfATest
) -> None:
    healer, _ = changing(make, repository, change)
    change.outcomes.put(None)
    wait_for(healer, lambda: healer.status.release == 2)
    assert healer.status.state == "ready" and healer.status.restarts["triton"] == 0


def test_a_refused_version_is_not_tried_again_until_its_files_change(
    make: Make, repository: Path, change: ChangeOfATest
) -> None:
    healer, _ = changing(make, repository, change)
    change.outcomes.put(VersionError("it misreads"))
    wait_for(healer, lambda: healer.status.refused == {"2": "it misreads"})
    assert healer.status.release == 1 and healer.status.restarts["triton"] == 0
    os.utime(repository / "yolo" / "2" / "model.onnx", (1, 1))
    wait_for(healer, lambda: change.started.acquire(blocking=False))
    assert healer.status.refused == {}


def test_a_version_that_ends_triton_twice_is_refused(
    make: Make, repository: Path, change: ChangeOfATest
) -> None:
    healer, _ = changing(make, repository, change)
    change.outcomes.put(RequestError("Triton gave no answer"))
    wait_for(healer, lambda: healer.status.restarts["triton"] == 1)
    assert healer.status.refused == {}
    wait_for(healer, lambda: change.started.acquire(blocking=False))
    change.outcomes.put(RequestError("Triton gave no answer"))
    wait_for(healer, lambda: "2" in healer.status.refused)
    wait_for(healer, lambda: healer.status.state == "ready")
    assert healer.status.release == 1 and healer.status.restarts["triton"] == 2


def test_a_process_that_dies_during_a_change_is_healed_at_once(
    make: Make, repository: Path, change: ChangeOfATest
) -> None:
    healer, triton = changing(make, repository, change)
    os.kill(triton.pids.stubs[0], signal.SIGKILL)
    wait_for(healer, lambda: healer.status.restarts["plate_recognition"] == 1)
    assert change.outcomes.empty(), "the change has not ended"


def test_processes_are_not_searched_while_the_version_changes(
    make: Make, repository: Path, change: ChangeOfATest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes long where a machine has many."""
    healer, _ = changing(make, repository, change)
    searches, looks = [], []
    search, look = psutil.Process.children, processes.is_zombie
    monkeypatch.setattr(
        psutil.Process, "children", lambda *a, **k: searches.append(1) or search(*a, **k)
    )
    monkeypatch.setattr(processes, "is_zombie", lambda p: looks.append(1) or look(p))
    wait_for(healer, lambda: len(looks) > 10)
    assert searches == []


def test_trouble_is_found_in_silence_and_in_standstill(tmp_path: Path) -> None:
    healer = TritonHealer(EmbeddedTriton(tmp_path), b"photo")
    healer._triton.poll = lambda: None  # type: ignore[method-assign]
    prober, now = healer._prober, time.monotonic()
    cases = [
        (0.0, 0.0, None),
        (healing.SILENCE_S + 1, 0.0, "has answered nothing for 6 s"),
        (0.0, STANDSTILL_S + 1, "has read no plate for 45 s"),
    ]
    for silent_s, idle_s, expected in cases:
        prober.heard_at, prober.read_at = now - silent_s, now - idle_s
        trouble = healer._find_trouble()
        assert (trouble is None) == (expected is None)
        assert expected is None or expected in str(trouble)
        # Loading keeps the machine busy.
        assert healer._find_trouble(changing=True) is None
    prober.heard_at = now - 3 * healing.SILENCE_S - 1
    assert healer._find_trouble(changing=True) is not None
