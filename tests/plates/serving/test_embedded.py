"""The embedded Triton and its healer: starts, faults, new versions, stops, ends by signals.

Its model is a dummy that loads at once. `plates bench faults` measures what clients see of faults
with the real models; for their new versions see test_real_models_live.py.
"""

import logging
import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import psutil
import pytest
from serving_support import BROKEN, MODEL, SLOW, TEXT, make_repository, publish, ticked_until
from support import embedded_triton, is_alive, running_triton, wait_until, write_files

from plates.serving import client, healing, supervisor, triton, versions
from plates.serving.errors import GaveUp, StartError
from plates.serving.healing import TritonHealer, is_zombie

pytestmark = [pytest.mark.live, pytest.mark.control]

HANGING = MODEL.replace("        texts", "        import time; time.sleep(600)\n        texts", 1)
CODE = "plate_recognition/1/model.py"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(versions, "SEARCH_EVERY_S", 0.1)
    monkeypatch.setattr(healing, "_POLL_S", 0.05)
    monkeypatch.setattr(triton, "EXIT_TIMEOUT_S", 0)


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "models")


@pytest.fixture
def server(repository):
    return embedded_triton(repository)


@pytest.fixture
def healer(server):
    """A healer, which is stopped after the test."""
    healer = TritonHealer(server)
    yield healer
    healer.stop()


def start(healer):
    healer.start()
    ticked_until(healer, lambda: healer.status.state == "ready")


def all_dead(pids):
    return not any(map(is_alive, pids))


def family_of(server):  # process ids of Triton and its stubs
    return [server._server.pid, *(stub.pid for stub in server.stubs)]


def test_two_servers_run_side_by_side_and_leave_nothing(repository, tmp_path, monkeypatch):
    # Triton imports nothing from the working folder; relative paths are resolved against it.
    write_files(tmp_path, dict.fromkeys(("colorsys.py", "queue.py", "numpy.py"), b"raise OSError"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    with (
        running_triton(Path(repository.name), tmp_path) as one,
        running_triton(repository) as other,
    ):
        assert len({one.grpc_url, one.http_url, other.grpc_url, other.http_url}) == 4
        families = family_of(one) + family_of(other)
        assert len(set(families)) == 4
        assert triton.shared_memory(one.shm_prefix) and triton.shared_memory(other.shm_prefix)
        listening = psutil.Process(one._server.pid).net_connections()
        hosts = [c.laddr.ip for c in listening if c.status == psutil.CONN_LISTEN]
        assert len(hosts) == 3 and all(host.endswith("127.0.0.1") for host in hosts)
        folder = one._folder
        assert folder.parent == tmp_path
        one.stop()
        assert other.http.is_ready() and other.http.plates(b"photo", 10)
        assert one.poll() is not None and other.poll() is None
    assert all_dead(families)
    assert not triton.shared_memory(one.shm_prefix) + triton.shared_memory(other.shm_prefix)
    assert folder is not None and not folder.exists()


def test_the_server_dies_with_its_killed_owner(repository, tmp_path):
    code = (
        "import sys, time; from api.settings import Settings\n"
        "from plates.serving.triton import EmbeddedTriton\n"
        "s = EmbeddedTriton(Settings(model_repository=sys.argv[1])); s.start()\n"
        "print(s.shm_prefix, s._server.pid, *(stub.pid for stub in s.stubs), flush=True)\n"
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(repository)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # the killed owner leaves its folder
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
        prefix, *family = owner.stdout.readline().split()
        owner.kill()
    assert len(family) == 2
    wait_until(lambda: all_dead([int(pid) for pid in family]))
    wait_until(lambda: not triton.shared_memory(prefix))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_stop_leaves_no_process_and_no_shared_memory(repository, number, monkeypatch):
    monkeypatch.setattr(triton, "STOP_S", 1.0)
    with running_triton(repository) as server:
        family = family_of(server)
        for pid in family if number == signal.SIGSTOP else family[:1]:
            os.kill(pid, number)
        if number == signal.SIGKILL:
            wait_until(lambda: server.poll() is not None)
            assert server.stubs == []
    assert all_dead(family)
    assert not triton.shared_memory(server.shm_prefix)


def test_a_model_never_ready_is_a_start_error_with_a_reason(repository, server, monkeypatch):
    (repository / CODE).write_text(SLOW)
    monkeypatch.setattr(triton, "READY_S", 2.0)
    with pytest.raises(StartError, match=r"not ready after 2 s:\n(.|\n)*loading: plate_recognit"):
        server.start()
    assert server.poll() == 1
    assert not triton.shared_memory(server.shm_prefix)


def test_a_server_restarts_on_its_ports_until_it_fails_too_often(
    repository, server, healer, monkeypatch
):
    monkeypatch.setattr(supervisor, "MAX_IN_A_ROW", 3)  # the sixth restart may still hang

    def restarts():
        return sum(healer.status.restarts.values())

    start(healer)
    addresses = (server.grpc_url, server.http_url, server.metrics_url)
    faults = product(("server", "stub"), (signal.SIGKILL, signal.SIGSTOP))  # last: reads no plate
    for count, (name, number) in enumerate(faults, 1):
        before, key, prefix = family_of(server), server.http.key, server.shm_prefix
        os.kill(before[1 if name == "stub" else 0], number)
        with monkeypatch.context() as patch:  # not longer, as a busy machine takes 2 s to start
            patch.setattr(healing, "STANDSTILL_S", 2 if count == 4 else healing.STANDSTILL_S)
            ticked_until(healer, lambda count=count: restarts() == count)
        ticked_until(healer, lambda: healer.status.state == "ready")
        assert (server.grpc_url, server.http_url, server.metrics_url) == addresses
        assert server.http.key == key  # The cameras' processes got the key at their start.
        assert all_dead(before)
        assert not triton.shared_memory(prefix)
    assert healer.status.restarts == {"triton": 3, "plate_recognition": 1}
    (repository / CODE).write_text(HANGING)
    monkeypatch.setattr(versions, "_READ_S", 5)
    server._server.kill()
    ticked_until(healer, lambda: restarts() == 6)
    (repository / CODE).write_text(BROKEN)
    with pytest.raises(GaveUp, match=r"Triton can't be healed(.|\n)*no such luck"):
        ticked_until(healer, lambda: False)
    healer.stop()
    assert not triton.shared_memory(server.shm_prefix)


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


def test_a_version_changed_in_place_is_given_up(repository, server, healer, monkeypatch):
    monkeypatch.setattr(supervisor, "MAX_IN_A_ROW", 2)
    start(healer)
    (repository / "plate_recognition" / "1" / "weights.bin").write_text("edited")
    server._server.kill()
    with pytest.raises(GaveUp, match=r"(?s)can't be healed.*1/weights\.bin is not what was"):
        ticked_until(healer, lambda: False)
    assert healer.status.restarts["triton"] == 2


def test_a_slow_start_does_not_block_the_supervisor_and_can_be_stopped(healer, server, repository):
    start(healer)
    (repository / "plate_recognition" / "1" / "model.py").write_text(SLOW)
    server._server.kill()
    ticked_until(healer, lambda: healer.status.restarts["triton"] and server.poll() is None)
    healer.tick()
    assert healer.status.state == "healing"
    healer.stop()
    healer._thread.join(30)
    assert not healer._thread.is_alive()
    assert server.poll() == 1 and server._folder is None
    assert healer.status.refused == {}
    with pytest.raises(StartError, match="stopped while it started"):
        server.start()


def test_a_supervisor_that_was_frozen_together_with_triton_restarts_nothing(healer, monkeypatch):
    start(healer)
    clock, read = time.monotonic, client.TritonHttp.plates
    monkeypatch.setattr(client.TritonHttp, "plates", lambda *a: time.sleep(0.5) or read(*a))
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 100)
    until = clock() + 2
    ticked_until(healer, lambda: clock() > until)
    assert healer.status.state == "ready" and healer.status.restarts["triton"] == 0


def test_a_refused_version_is_retried_when_its_files_change(healer, server, repository):
    start(healer)
    publish(repository, 2, MODEL.replace(TEXT, "X999XX99"))
    ticked_until(healer, lambda: "read X999XX99" in healer.status.refused.get("2", ""))
    assert healer.status.release == 1
    assert sum(not is_zombie(stub) for stub in server.stubs) == 1, "the stub of the trial has ended"
    publish(repository, 2)
    ticked_until(healer, lambda: healer.status.release == 2)
    assert healer.status.state == "ready" and healer.status.restarts["triton"] == 0
    assert healer.status.refused == {}
    (stub,) = (stub for stub in server.stubs if not is_zombie(stub))
    stub.kill()
    ticked_until(healer, lambda: healer.status.restarts["plate_recognition"] == 1)


def test_a_version_that_ends_triton_is_refused(healer, server, repository, monkeypatch, caplog):
    start(healer)
    publish(repository, 2, SLOW)
    ticked_until(healer, lambda: len(server.stubs) == 2)  # version 2 is being loaded
    monkeypatch.setattr(client, "_LOAD_S", 0.5)
    server._server.kill()
    ticked_until(healer, lambda: healer.status.restarts["triton"] == 1)
    publish(repository, 3, SLOW)
    ticked_until(healer, lambda: healer.status.restarts["triton"] == 2)
    ticked_until(healer, lambda: healer.status.state == "ready")
    reasons = [healer.status.refused[number] for number in ("2", "3")]
    assert "it has ended by itself" in reasons[0] and "gave no answer to POST" in reasons[1]
    assert healer.status.release == 1
    monkeypatch.setattr(triton, "READY_S", 0)
    server._server.kill()
    ticked_until(healer, lambda: healer.status.restarts["triton"] == 4)
    assert "Model version 1 is refused" not in caplog.text, "it was served: it is not the cause"
