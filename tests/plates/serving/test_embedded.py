"""The embedded Triton's life: start, two at once, stop, and every other end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import wait_until
from tritonclient import grpc as triton_grpc

from api.edge import protocol
from plates.serving import (
    EmbeddedTriton,
    PreflightError,
    StartError,
    gateway,
    guardian,
    processes,
    supervisor,
    triton,
)
from plates.serving.triton import GRACE_S, ORPHANS_S, STOP_S

pytestmark = [pytest.mark.live, pytest.mark.control]

# A model that needs no weights and loads at once.
ECHO_CONFIG = """
backend: "python"
input [ { name: "in" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "out" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
ECHO_MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(r, "in").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("out", t)]) for t in tensors]
"""


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "echo"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(ECHO_CONFIG)
    (folder / "1" / "model.py").write_text(ECHO_MODEL)
    return folder.parent


def is_ready(server: EmbeddedTriton) -> bool:
    with contextlib.closing(triton_grpc.InferenceServerClient(server.grpc_url)) as client:
        return bool(client.is_server_ready(client_timeout=5))


def all_dead(pids: list[int]) -> bool:
    return not any(map(processes.is_alive, pids))


def family_of(server: EmbeddedTriton) -> list[int]:
    pids = server.pids
    return [pids.guardian, pids.server, *pids.stubs]


def test_two_servers_live_side_by_side_and_leave_nothing(echo: Path) -> None:
    with EmbeddedTriton(echo) as one, EmbeddedTriton(echo) as other:
        assert is_ready(one) and is_ready(other)
        assert len({one.grpc_url, one.http_url, other.grpc_url, other.http_url}) == 4
        families = family_of(one) + family_of(other)
        assert len(set(families)) == 6
        assert processes.leftovers(one.shm_prefix) and processes.leftovers(other.shm_prefix)
        folder = one._folder
        one.stop()
        assert is_ready(other)
        assert one.poll() is not None and other.poll() is None
    assert all_dead(families)
    assert not processes.leftovers(one.shm_prefix) + processes.leftovers(other.shm_prefix)
    assert folder is not None and not folder.exists()


@contextlib.contextmanager
def owner(repository: Path) -> Iterator[tuple[subprocess.Popen[str], list[int], str]]:
    """Another process with a server of its own: the process, all pids, the shm prefix."""
    code = (
        "import sys, time; from pathlib import Path; from plates.serving import EmbeddedTriton\n"
        "s = EmbeddedTriton(Path(sys.argv[1])).start(); p = s.pids\n"
        "print(s.shm_prefix, p.guardian, p.server, *p.stubs, flush=True)\n"
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(repository)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            prefix, *pids = process.stdout.readline().split()
            yield process, [int(pid) for pid in pids], prefix
        finally:
            process.kill()


def test_the_server_dies_with_its_killed_owner(echo: Path) -> None:
    with owner(echo) as (process, family, prefix):
        assert len(family) == 3
        process.kill()
        wait_until(lambda: all_dead(family))
        wait_until(lambda: not processes.leftovers(prefix))


@pytest.mark.parametrize("killed", [["guardian"], ["guardian", "server"], ["server"]])
def test_nothing_survives_a_kill(echo: Path, killed: list[str]) -> None:
    with EmbeddedTriton(echo) as server:
        family, prefix, pids = family_of(server), server.shm_prefix, server.pids
        for name in killed:
            os.kill(getattr(pids, name), signal.SIGKILL)
        wait_until(lambda: server.poll() is not None)
        if len(killed) == 1:  # nothing more is needed for that
            wait_until(lambda: all_dead(family))
        if killed == ["guardian"]:
            assert server.poll() == -signal.SIGKILL
        if killed == ["server"]:
            assert not processes.leftovers(prefix)
        with pytest.raises(StartError, match="not running"):
            _ = server.pids
    assert all_dead(family)
    assert not processes.leftovers(prefix)


def test_a_dead_stub_is_seen_and_does_not_hold_up_the_stop(echo: Path) -> None:
    with EmbeddedTriton(echo) as server:
        (stub,) = server.pids.stubs
        os.kill(stub, signal.SIGKILL)
        wait_until(lambda: server.pids.stubs == ())
        assert server.poll() is None
        family, prefix = family_of(server), server.shm_prefix
    assert all_dead(family)
    assert not processes.leftovers(prefix)


@pytest.mark.parametrize("frozen", ["stub", "server", "guardian", "all"])
def test_a_frozen_family_is_stopped_all_the_same(echo: Path, frozen: str) -> None:
    with EmbeddedTriton(echo) as server:
        family, prefix, pids = family_of(server), server.shm_prefix, server.pids
        keeper = server._guardian
        assert keeper is not None
        stopped = {"stub": pids.stubs, "server": [pids.server], "guardian": [pids.guardian]}
        for pid in stopped.get(frozen, family):
            os.kill(pid, signal.SIGSTOP)
    assert all_dead(family)
    assert not processes.leftovers(prefix)
    # Unless it is frozen itself, the guardian needs nobody to kill it: its time suffices.
    assert (keeper.returncode == -signal.SIGKILL) == (frozen in ("guardian", "all"))


def test_the_times_for_stopping_fit_into_each_other() -> None:
    assert triton.EXIT_TIMEOUT_S < GRACE_S
    assert guardian.POLL_S + GRACE_S + guardian.ORPHANS_S < STOP_S
    assert protocol._SHUTDOWN_S < gateway.STOP_S
    assert supervisor.TICK_S + gateway.STOP_S + STOP_S + ORPHANS_S < 10


def test_a_fixed_port_is_taken_and_a_taken_one_is_named(echo: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PreflightError, match=rf"Port {port} .*PLATES_TRITON_GRPC_PORT"):
            EmbeddedTriton(echo, grpc_port=port).start()
    with EmbeddedTriton(echo, grpc_port=port) as server:
        assert server.grpc_url == f"127.0.0.1:{port}"
        assert is_ready(server)


SLOW = ECHO_MODEL + "    def initialize(self, args):\n        import time; time.sleep(300)\n"


@pytest.mark.parametrize(
    ("code", "timeout_s", "reason"),
    [
        ("raise ImportError('no such luck')", 180, "no such luck"),
        (SLOW, 3, r"not ready after 3 s:\n(.|\n)*loading: echo"),
    ],
    ids=["it can't load", "it is never ready"],
)
def test_a_failed_start_is_an_error_with_its_reason(
    echo: Path, code: str, timeout_s: float, reason: str
) -> None:
    (echo / "echo" / "1" / "model.py").write_text(code)
    server = EmbeddedTriton(echo, ready_timeout=timeout_s)
    with pytest.raises(StartError, match=reason):
        server.start()
    assert server.poll() == 1
    assert not processes.leftovers(server.shm_prefix)


def test_what_the_server_is_started_with(
    echo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This environment, nothing of the folder we were started from, loopback alone."""
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    (echo / "echo" / "1" / "model.py").write_text(
        f"import colorsys, queue\n{ECHO_MODEL}"
        "    def initialize(self, args):\n"
        "        import os, sys, plate_models\n"
        "        print('PREFIX', sys.prefix, os.environ.get('GOMP_SPINCOUNT'), flush=True)\n"
    )
    for name in ("colorsys", "queue", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('poisoned')")
    monkeypatch.chdir(tmp_path)
    # A relative path is meant from here all the same.
    with EmbeddedTriton(Path("models")) as server:
        assert is_ready(server)
        assert f"PREFIX {sys.prefix} 0\n" in server.log_tail(1000)
        listening = listening_addresses(server.pids.server)
    assert len(listening) == 3
    assert all("0100007F:" in address for address in listening), listening


def listening_addresses(pid: int) -> list[str]:
    """Where a process listens, as /proc/net writes it."""
    files = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in files]
