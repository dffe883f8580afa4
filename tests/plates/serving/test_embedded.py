"""The embedded Triton: its start, two at once, restarts, its stop, and its end by signals.

Its model is a dummy that loads at once; `plates bench faults` measures what clients see of faults
with the real models.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from serving_support import BROKEN, MODEL, SLOW, make_repository, ticked_until
from support import embedded_triton, is_alive, running_triton, wait_until, write_files

from plates.serving import healing, supervisor, triton
from plates.serving.errors import GaveUp, StartError

pytestmark = [pytest.mark.live, pytest.mark.control]

HANGING = MODEL.replace("        texts", "        import time; time.sleep(600)\n        texts", 1)
CODE = "plate_recognition/1/model.py"


@pytest.fixture
def models(tmp_path):
    nothing_to_check = {"plate_recognition/1/exported.json": b'{"artifacts": {}}'}
    return write_files(make_repository(tmp_path / "models"), nothing_to_check)


def all_dead(pids):
    return not any(map(is_alive, pids))


def family_of(server):  # process ids of Triton and its stubs
    return [server._server.pid, *(stub.pid for stub in server.stubs)]


def test_two_servers_run_side_by_side_and_leave_nothing(models, tmp_path, monkeypatch):
    # Triton imports nothing from the working folder; relative paths are resolved against it.
    write_files(tmp_path, dict.fromkeys(("colorsys.py", "queue.py", "numpy.py"), b"raise OSError"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    with running_triton(Path(models.name), tmp_path) as one, running_triton(models) as other:
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


def test_the_server_dies_with_its_killed_owner(models, tmp_path):
    code = (
        "import sys, time; from api.settings import Settings\n"
        "from plates.serving.triton import EmbeddedTriton\n"
        "s = EmbeddedTriton(Settings(model_repository=sys.argv[1])); s.start()\n"
        "print(s.shm_prefix, s._server.pid, *(stub.pid for stub in s.stubs), flush=True)\n"
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(models)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # the killed owner leaves its folder
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
        prefix, *family = owner.stdout.readline().split()
        owner.kill()
    assert len(family) == 2
    wait_until(lambda: all_dead([int(pid) for pid in family]))
    wait_until(lambda: not triton.shared_memory(prefix))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_stop_leaves_no_process_and_no_shared_memory(models, number, monkeypatch):
    monkeypatch.setattr(triton, "STOP_S", 1.0)
    with running_triton(models) as server:
        family = family_of(server)
        for pid in family if number == signal.SIGSTOP else family[:1]:
            os.kill(pid, number)
        if number == signal.SIGKILL:
            wait_until(lambda: server.poll() is not None)
            assert server.stubs == []
    assert all_dead(family)
    assert not triton.shared_memory(server.shm_prefix)


def test_a_model_that_is_never_ready_is_a_start_error_with_a_reason(models, monkeypatch):
    (models / CODE).write_text(SLOW)
    monkeypatch.setattr(triton, "READY_S", 2.0)
    server = embedded_triton(models)
    with pytest.raises(StartError, match=r"not ready after 2 s:\n(.|\n)*loading: plate_recognit"):
        server.start()
    assert server.poll() == 1
    assert not triton.shared_memory(server.shm_prefix)


def test_a_server_restarts_on_the_same_ports_until_it_fails_too_often(models, monkeypatch):
    waits = {"STANDSTILL_S": 2, "SILENCE_S": 3, "_READ_TIMEOUT_S": 1, "_LISTEN_TIMEOUT_S": 1}
    for name, seconds in waits.items():
        monkeypatch.setattr(healing, name, seconds)
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(supervisor, "MAX_IN_A_ROW", 3)  # the fifth restart may still hang
    server = embedded_triton(models)
    healer = healing.TritonHealer(server)

    def restarts():
        return sum(healer.status.restarts.values())

    try:
        healer.start()
        ticked_until(healer, lambda: healer.status.state == "ready")
        addresses = (server.grpc_url, server.http_url, server.metrics_url)
        faults = ("stub", signal.SIGKILL), ("server", signal.SIGKILL), ("server", signal.SIGSTOP)
        for count, (name, number) in enumerate(faults, 1):
            before, key, prefix = family_of(server), server.http.key, server.shm_prefix
            os.kill(before[1 if name == "stub" else 0], number)
            ticked_until(healer, lambda count=count: restarts() == count)
            ticked_until(healer, lambda: healer.status.state == "ready")
            assert (server.grpc_url, server.http_url, server.metrics_url) == addresses
            assert server.http.key == key  # The cameras' processes got the key at their start.
            assert all_dead(before)
            assert not triton.shared_memory(prefix)
        assert healer.status.restarts == {"triton": 2, "plate_recognition": 1}
        (models / CODE).write_text(HANGING)
        server._server.kill()
        ticked_until(healer, lambda: restarts() == 5, 60)
        (models / CODE).write_text(BROKEN)
        with pytest.raises(GaveUp, match=r"Triton can't be healed(.|\n)*no such luck"):
            ticked_until(healer, lambda: False)
    finally:
        healer.stop()
    assert not triton.shared_memory(server.shm_prefix)
