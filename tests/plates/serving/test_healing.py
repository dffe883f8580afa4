"""The supervisor's part that is Triton, over a model without weights: starts and changes.

Restarts, and changes of a real Triton, are in test_embedded.py and test_versions_live.py.
"""

import logging
import os
import queue
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from serving_support import MODEL, TEXT, make_image, make_repository, publish, ticked_until

from api.status import read_status
from plates.serving import healing, supervisor, versions
from plates.serving.errors import GaveUp, PreflightError, RequestError, StartError, VersionError
from plates.serving.healing import TritonHealer
from plates.serving.supervisor import Supervisor
from plates.serving.triton import EmbeddedTriton

pytestmark = [pytest.mark.live, pytest.mark.control]

BROKEN = "raise ImportError('no such luck')"


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(versions, "LOOK_PAUSE_S", 0.1)
    monkeypatch.setattr(healing, "_ASK_PAUSE_S", 0.05)
    monkeypatch.setattr(healing, "_REAPED_S", 0.3)
    monkeypatch.setattr("plates.serving.triton.EXIT_TIMEOUT_S", 0)


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "models")


@pytest.fixture
def triton(repository):
    return EmbeddedTriton(repository)


@pytest.fixture
def healer(triton):
    """It is stopped in the end."""
    healer = TritonHealer(triton, b"photo")
    yield healer
    healer.stop()


def start(healer: TritonHealer) -> None:
    healer.start()
    ticked_until(healer, lambda: healer.status.state == "ready")


# --- starts ---


def test_versions_of_which_none_starts_are_tried_once_each(repository, caplog):
    caplog.set_level(logging.INFO)
    for number in (1, 2):
        publish(repository, number, code=BROKEN)
    # Ports that were given stay the same: that they are tried again is no reason to go on for ever.
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    healer = TritonHealer(EmbeddedTriton(repository, http_port=port), b"photo")
    with pytest.raises(StartError, match=r"(?s)- 2: .*no such luck.*\n- 1: .*no such luck"):
        healer.start()
    assert caplog.text.count("Starting model version") == 2
    assert "HTTP Request" not in caplog.text, "there is one every second"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ({"code": BROKEN}, "no such luck"),
        ({"code": MODEL.replace(TEXT, "X999XX99")}, "read X999XX99"),
        ({}, "2/weights.bin is not what was exported"),
    ],
)
def test_a_start_goes_on_with_the_next_version(repository, healer, spoil, reason):
    publish(repository, 2, **spoil)
    if not spoil:
        (repository / "plate_recognition" / "2" / "weights.bin").write_text("cut off")
    start(healer)
    assert healer.status.release == 1 and reason in healer.status.refused["2"]


def test_a_port_in_use_is_no_fault_of_the_version(repository, tmp_path, monkeypatch):
    """Another process takes it while Triton starts; one that is taken before: test_installation."""
    publish(repository, 2)
    healer = TritonHealer(EmbeddedTriton(repository), b"photo")
    image = make_image(tmp_path / "opt", "echo 'failed to bind: Address already in use'; exit 1")
    monkeypatch.setattr("plates.serving.triton.find_installation", lambda: image)
    with pytest.raises(PreflightError, match="already in use"):
        healer.start()
    assert healer.status.refused == {}


def test_a_version_that_was_changed_in_place_ends_with_a_status(
    repository, triton, healer, monkeypatch
):
    monkeypatch.setattr(supervisor, "MAX_IN_A_ROW", 2)
    path = repository.with_name("status.json")
    parts = Supervisor([healer], path)
    parts.start()
    (repository / "plate_recognition" / "1" / "weights.bin").write_text("edited")
    os.kill(triton.pids.server, signal.SIGKILL)
    with pytest.raises(GaveUp, match=r"(?s)can't be healed.*1/weights\.bin is not what was"):
        parts.run()
    status = read_status(path)
    assert (status.state, status.restarts["triton"]) == ("failed", 2)


def test_a_slow_start_keeps_no_other_part_waiting_and_a_stop_then_leaves_nothing(
    healer, triton, monkeypatch
):
    start(healer)
    starting, go_on = threading.Semaphore(0), threading.Semaphore(0)
    real_start = triton.start

    def slow(*arguments: Any) -> EmbeddedTriton:
        starting.release()
        go_on.acquire(timeout=60)
        return real_start(*arguments)

    monkeypatch.setattr(triton, "start", slow)
    os.kill(triton.pids.server, signal.SIGKILL)
    ticked_until(healer, lambda: starting.acquire(blocking=False))
    healer.tick()
    assert healer.status.state == "healing"
    threading.Timer(0.1, go_on.release).start()
    healer.stop()
    healer._thread.join(30)
    assert not healer._thread.is_alive()
    assert triton.poll() == 1 and triton._folder is None
    assert healer.status.refused == {}


# --- changes of the model version ---


class Change:
    """Stands for `change_version`: it takes until the test gives an error, or None for success."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.outcomes: queue.Queue[Exception | None] = queue.Queue()

    def __call__(self, *_: object) -> None:
        self.started.release()
        if outcome := self.outcomes.get():
            raise outcome


@pytest.fixture
def change(monkeypatch):
    change = Change()
    monkeypatch.setattr(healing, "change_version", change)
    yield change
    for _ in range(10):  # one for each that was begun
        change.outcomes.put(None)


def start_change(healer: TritonHealer, repository: Path, change: Change) -> None:
    start(healer)
    publish(repository, 2)
    ticked_until(healer, lambda: change.started.acquire(blocking=False))


def test_a_refused_version_is_tried_again_when_its_files_change_and_then_served(
    healer, repository, change
):
    start_change(healer, repository, change)
    change.outcomes.put(VersionError("it misreads"))
    ticked_until(healer, lambda: healer.status.refused == {"2": "it misreads"})
    assert healer.status.release == 1
    os.utime(repository / "plate_recognition" / "2" / "weights.bin", (1, 1))
    ticked_until(healer, lambda: change.started.acquire(blocking=False))
    assert healer.status.refused == {}
    change.outcomes.put(None)
    ticked_until(healer, lambda: healer.status.release == 2)
    assert healer.status.state == "ready" and healer.status.restarts["triton"] == 0


def test_a_version_that_ends_triton_twice_is_refused(healer, triton, repository, change):
    start_change(healer, repository, change)
    os.kill(triton.pids.stubs[0], signal.SIGKILL)
    ticked_until(healer, lambda: healer.status.restarts["plate_recognition"] == 1)
    assert change.outcomes.empty(), "it was healed at once: the change has not ended"
    assert healer.status.refused == {}
    change.outcomes.put(None)
    ticked_until(healer, lambda: change.started.acquire(blocking=False))
    change.outcomes.put(RequestError("Triton gave no answer"))
    ticked_until(healer, lambda: healer.status.refused == {"2": "Triton gave no answer"})
    ticked_until(healer, lambda: healer.status.state == "ready")
    assert healer.status.release == 1 and healer.status.restarts["triton"] == 1
