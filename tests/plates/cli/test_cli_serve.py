"""`plates serve`: settings that are wrong, signals, and parts that die."""

import os
import re
import shutil
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest
from support import SCENE, SCENE_TEXT, plates, serving, wait_until

from api.settings import Settings
from api.status import read_status
from plates.cli import serve
from plates.cli.main import main
from plates.serving import processes
from plates.serving.running import running_service


def test_serve_says_which_setting_is_wrong() -> None:
    done = plates("serve", PLATES_PORT="eighty")
    assert done.returncode == 1
    assert "PLATES_PORT" in done.stderr
    assert "Traceback" not in done.stderr


def test_serve_says_that_its_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = plates("serve", PLATES_PORT=port, PLATES_TRITON_URL="127.0.0.1:1")
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "PLATES_PORT" in done.stderr


def test_host_and_port_may_be_options(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # Were the variables taken, it would listen elsewhere and serve.
        environment = {"PLATES_HOST": "127.0.0.2", "PLATES_PORT": "0", "PLATES_TRITON_URL": "x:1"}
        done = plates("serve", "--host", "127.0.0.1", "--port", str(port), **environment)
    assert done.returncode == 1 and f"127.0.0.1:{port}" in done.stderr
    done = plates("serve", "--port", "70000", PLATES_TRITON_URL="x:1")
    assert done.returncode == 1 and "PLATES_PORT" in done.stderr
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    assert "instead of PLATES_HOST" in shown and "instead of PLATES_PORT" in shown


OPEN = "may send photos: no tokens are set"


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"PLATES_HOST": "0.0.0.0"}, 1),  # noqa: S104
        ({"PLATES_HOST": "0.0.0.0", "PLATES_TOKENS": "secret-of-the-gate"}, 0),  # noqa: S104
        ({"PLATES_HOST": "localhost"}, 0),
        ({"PLATES_HOST": "::1"}, 0),
    ],
    ids=["open", "with a token", "by name", "loopback"],
)
def test_a_service_that_everyone_may_use_says_so(
    settings: dict[str, str], warned: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with running_service({"PLATES_TRITON_URL": "127.0.0.1:1", **settings}, log):
        pass
    assert log.read_text().count(OPEN) == warned


def test_with_a_certificate_it_is_https_that_is_announced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(triton_url="x:1", port=0).model_copy(update={"tls_certificate": Path("c")})
    monkeypatch.setattr(serve, "read_settings", lambda **_: settings)
    monkeypatch.setattr(serve, "supervise", lambda *words: words[-1]() or 0)
    assert main(["serve"]) == 0
    (line,) = [w for w in capsys.readouterr().out.splitlines() if w.startswith(serve.LISTENING)]
    assert re.match(r"Serving on https://127\.0\.0\.1:\d+ ", line)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_serve_stops_cleanly_on_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # even if the tests run under nohup
    try:
        with (
            running_service({"PLATES_TRITON_URL": "127.0.0.1:1"}, log) as service,
            # A connection that is kept open must not hold up the stop.
            httpx.Client(base_url=service.url) as client,
        ):
            assert client.get("/healthz").status_code == 200
            service.process.send_signal(number)
            out, _ = service.process.communicate(timeout=9)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert service.process.returncode == 0
    assert "Stopped." in out
    assert "Traceback" not in log.read_text()


def test_serve_outlives_its_terminal_under_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with serving(tmp_path / "log", PLATES_TRITON_URL="127.0.0.1:1") as (url, pid):
            os.kill(pid, signal.SIGHUP)
            for _ in range(5):
                time.sleep(0.05)
                assert httpx.get(f"{url}/healthz").status_code == 200
    finally:
        signal.signal(signal.SIGHUP, before)


def worker_of(pid: int) -> int | None:
    """The gateway's worker among a supervisor's children."""
    for process in processes.mentioning("plates.serving.gateway_process"):
        if process.ppid() == pid:
            return process.pid
    return None


def test_a_killed_worker_is_replaced_while_callers_wait(tmp_path: Path) -> None:
    status_file = tmp_path / "status.json"
    environment = {"PLATES_TRITON_URL": "127.0.0.1:1", "PLATES_STATUS_FILE": str(status_file)}
    with serving(tmp_path / "log", **environment) as (url, pid):
        first = worker_of(pid)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        # Nobody is refused meanwhile: the socket stays open, and callers wait in its queue.
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
        assert worker_of(pid) != first
        status = read_status(status_file)
        assert status is not None and status.restarts == {"gateway": 1}
    assert "Restarting the gateway" in (tmp_path / "log").read_text()


def test_a_killed_supervisor_takes_the_worker_with_it() -> None:
    with running_service({"PLATES_TRITON_URL": "127.0.0.1:1"}) as service:
        worker = worker_of(service.process.pid)
        assert worker is not None
        service.process.kill()
    wait_until(lambda: not processes.is_alive(worker))
    host, _, port = service.url.removeprefix("http://").rpartition(":")
    socket.create_server((host, int(port))).close()


def test_ctrl_c_in_a_terminal_shows_no_traceback(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running_service({"PLATES_TRITON_URL": "127.0.0.1:1"}, log) as service:
        # A terminal sends it to every process of the foreground, impatient people twice.
        for _ in range(2):
            os.killpg(service.process.pid, signal.SIGINT)
            time.sleep(0.05)
        service.process.communicate(timeout=9)
    assert service.process.returncode == 0
    assert "Traceback" not in log.read_text()


@pytest.mark.live
@pytest.mark.control
def test_serve_gives_up_aloud_when_triton_can_not_be_healed(
    repository: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "models"
    shutil.copytree(repository, copy)
    status_file, log = tmp_path / "status.json", tmp_path / "log"
    environment = {
        "PLATES_MODEL_REPOSITORY": str(copy),
        "PLATES_STATUS_FILE": str(status_file),
    }
    with running_service(environment, log) as service:
        process = service.process
        (copy / "yolo" / "1" / "model.onnx").unlink()
        (guardian,) = [
            p.pid for p in processes.mentioning("--shm-prefix") if p.ppid() == process.pid
        ]
        (server,) = [p.pid for p in processes.children(guardian)]
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: httpx.get(f"{service.url}/readyz", timeout=30).status_code == 503)
        assert process.wait(60) == 1
    assert "plates serve: Triton can't be healed" in log.read_text()
    assert "yolo has no model.onnx: run `make export`" in log.read_text()
    assert "Traceback" not in log.read_text()
    status = read_status(status_file)
    assert status is not None and status.state == "failed" and status.restarts["triton"] == 5
    assert not list(Path("/dev/shm").glob(f"plates_{process.pid}_*"))  # noqa: S108


@pytest.mark.live
@pytest.mark.control
def test_serve_with_its_own_triton(repository: Path, tmp_path: Path) -> None:
    """Started, ready, and after SIGTERM everything is gone."""
    log = tmp_path / "log"
    with serving(log, PLATES_MODEL_REPOSITORY=str(repository)) as (url, pid):
        wait_until(lambda: httpx.get(f"{url}/readyz", timeout=30).status_code == 200)
        answer = httpx.post(
            f"{url}/v1/plates", content=SCENE.read_bytes(), headers={"content-type": "image/jpeg"}
        )
        assert SCENE_TEXT in [plate["text"] for plate in answer.json()["plates"]]
        assert list(Path("/dev/shm").glob(f"plates_{pid}_*"))  # noqa: S108
    assert "Traceback" not in log.read_text()
    # Other servers may run at the same time: segments carry their owner's process id.
    assert not list(Path("/dev/shm").glob(f"plates_{pid}_*"))  # noqa: S108
