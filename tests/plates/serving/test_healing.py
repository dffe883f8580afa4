"""The supervisor's part for Triton, with a model without weights: starts and new versions.

For restarts see test_embedded.py, for new versions of the real models test_versions_live.py.
"""

import logging
import time

import pytest
from serving_support import BROKEN, MODEL, SLOW, TEXT, make_repository, publish, ticked_until
from support import embedded_triton

from plates.serving import client, healing, supervisor, versions
from plates.serving.errors import GaveUp, StartError
from plates.serving.healing import TritonHealer, is_zombie

pytestmark = [pytest.mark.live, pytest.mark.control]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(versions, "SEARCH_EVERY_S", 0.1)
    monkeypatch.setattr(healing, "_POLL_S", 0.05)
    monkeypatch.setattr("plates.serving.triton.EXIT_TIMEOUT_S", 0)


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "models")


@pytest.fixture
def triton(repository):
    return embedded_triton(repository)


@pytest.fixture
def healer(triton):
    """A healer, which is stopped after the test."""
    healer = TritonHealer(triton)
    yield healer
    healer.stop()


def start(healer):
    healer.start()
    ticked_until(healer, lambda: healer.status.state == "ready")


def test_a_start_tries_each_version_once_if_none_starts(repository, healer, caplog):
    caplog.set_level(logging.INFO)
    for number in (1, 2):
        publish(repository, number, code=BROKEN)
    dies = "import os; os.write(1, b'no room'); os._exit(1)\n        texts ="  # only in its log
    publish(repository, 3, MODEL.replace("texts =", dies))
    with pytest.raises(StartError, match=r"(?s)- 3: .*no room.*- 2: .*(no such luck).*- 1: .*\1"):
        healer.start()
    assert caplog.text.count("Starting model version") == 3
    assert "HTTP Request" not in caplog.text, "httpx would log one every second"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ({"code": MODEL.replace(TEXT, "X999XX99")}, "read X999XX99"),
        ({}, "2/weights.bin is not what was exported"),
    ],
)
def test_a_start_continues_with_the_next_older_version(repository, healer, spoil, reason, caplog):
    publish(repository, 2, **spoil)
    if not spoil:
        (repository / "plate_recognition" / "2" / "weights.bin").write_text("cut off")
    start(healer)
    assert healer.status.release == 1 and reason in healer.status.refused["2"]
    assert "Model version 2 is refused: " in caplog.text


def test_a_version_changed_in_place_is_given_up(repository, triton, healer, monkeypatch):
    monkeypatch.setattr(supervisor, "MAX_IN_A_ROW", 2)
    start(healer)
    (repository / "plate_recognition" / "1" / "weights.bin").write_text("edited")
    triton._server.kill()
    with pytest.raises(GaveUp, match=r"(?s)can't be healed.*1/weights\.bin is not what was"):
        ticked_until(healer, lambda: False)
    assert healer.status.restarts["triton"] == 2


def test_a_slow_start_does_not_block_the_supervisor_and_can_be_stopped(healer, triton, repository):
    start(healer)
    (repository / "plate_recognition" / "1" / "model.py").write_text(SLOW)
    triton._server.kill()
    ticked_until(healer, lambda: healer.status.restarts["triton"] and triton.poll() is None)
    healer.tick()
    assert healer.status.state == "healing"
    healer.stop()
    healer._thread.join(30)
    assert not healer._thread.is_alive()
    assert triton.poll() == 1 and triton._folder is None
    assert healer.status.refused == {}
    with pytest.raises(StartError, match="stopped while it started"):
        triton.start()


def test_a_supervisor_that_was_frozen_together_with_triton_restarts_nothing(healer, monkeypatch):
    start(healer)
    clock, read = time.monotonic, client.TritonHttp.plates
    monkeypatch.setattr(client.TritonHttp, "plates", lambda *a: time.sleep(0.5) or read(*a))
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 100)
    until = clock() + 2
    ticked_until(healer, lambda: clock() > until)
    assert healer.status.state == "ready" and healer.status.restarts["triton"] == 0


def test_a_refused_version_is_retried_when_its_files_change(healer, triton, repository):
    start(healer)
    publish(repository, 2, MODEL.replace(TEXT, "X999XX99"))
    ticked_until(healer, lambda: "read X999XX99" in healer.status.refused.get("2", ""))
    assert healer.status.release == 1
    assert sum(not is_zombie(stub) for stub in triton.stubs) == 1, "the stub of the trial has ended"
    publish(repository, 2)
    ticked_until(healer, lambda: healer.status.release == 2)
    assert healer.status.state == "ready" and healer.status.restarts["triton"] == 0
    assert healer.status.refused == {}
    (stub,) = (stub for stub in triton.stubs if not is_zombie(stub))
    stub.kill()
    ticked_until(healer, lambda: healer.status.restarts["plate_recognition"] == 1)


def test_a_version_that_ends_triton_is_refused(healer, triton, repository, monkeypatch, caplog):
    start(healer)
    publish(repository, 2, SLOW)
    ticked_until(healer, lambda: len(triton.stubs) == 2)  # version 2 is being loaded
    monkeypatch.setattr(client, "_LOAD_S", 0.5)
    triton._server.kill()
    ticked_until(healer, lambda: healer.status.restarts["triton"] == 1)
    publish(repository, 3, SLOW)
    ticked_until(healer, lambda: healer.status.restarts["triton"] == 2)
    ticked_until(healer, lambda: healer.status.state == "ready")
    reasons = [healer.status.refused[number] for number in ("2", "3")]
    assert "it has ended by itself" in reasons[0] and "gave no answer to POST" in reasons[1]
    assert healer.status.release == 1
    monkeypatch.setattr("plates.serving.triton.READY_S", 0)
    triton._server.kill()
    ticked_until(healer, lambda: healer.status.restarts["triton"] == 4)
    assert "Model version 1 is refused" not in caplog.text, "it was served: it is not the cause"
