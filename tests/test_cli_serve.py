"""`plates serve`: settings that are wrong, signals, a Triton that dies."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from command_line import PLATES, SCENE, SCENE_TEXT, plates
from gateway_fixtures import serving

from api.commands import serve


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_serve_stops_cleanly_on_a_signal(number: signal.Signals) -> None:
    environment = {"PLATES_PORT": "0", "PLATES_TRITON_URL": "127.0.0.1:1"}
    process = subprocess.Popen(
        [*PLATES, "serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    for line in process.stdout:
        if line.startswith(serve.LISTENING):
            break
    url = line.removeprefix(serve.LISTENING).split()[0]
    # A connection that is kept open must not hold up the stop.
    with httpx.Client(base_url=url) as client:
        assert client.get("/healthz").status_code == 200
        process.send_signal(number)
        out, errors = process.communicate(timeout=9)
    assert process.returncode == 0
    assert "Stopped." in out
    assert "Traceback" not in errors


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


@pytest.mark.live
@pytest.mark.control
def test_serve_with_its_own_triton(repository: Path, tmp_path: Path) -> None:
    """Started, ready, and after SIGTERM everything is gone."""
    log = tmp_path / "log"
    with serving(log, PLATES_MODEL_REPOSITORY=str(repository)) as (url, pid):
        for _ in range(100):
            if httpx.get(f"{url}/readyz", timeout=30).status_code == 200:
                break
            time.sleep(0.1)
        answer = httpx.post(
            f"{url}/v1/plates", content=SCENE.read_bytes(), headers={"content-type": "image/jpeg"}
        )
        assert SCENE_TEXT in [plate["text"] for plate in answer.json()["plates"]]
        assert list(Path("/dev/shm").glob(f"plates_{pid}_*"))  # noqa: S108
    assert "Traceback" not in log.read_text()
    # Other servers may run at the same time: segments carry their owner's process id.
    assert not list(Path("/dev/shm").glob(f"plates_{pid}_*"))  # noqa: S108
