"""`plates serve`: settings and address, stop signals, killed processes; `plates health`."""

import fcntl
import os
import re
import signal
import socket
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import httpx
import psutil
import pytest
from small_server import Reply, small_server
from support import PHOTO, is_alive, make_certificate, wait_until

from api.settings import Settings
from api.status import Status, read_status
from plates.cli import Stopped, serve, stop_signals_raise
from plates.serving.errors import GaveUp
from plates.serving.running import running_service

ANY_HOST = "0.0.0.0"  # noqa: S104


@pytest.fixture
def run_unsupervised(run, monkeypatch):
    """Run `plates serve` with an external Triton; it ends instead of starting the gateway."""
    monkeypatch.setattr(serve.Supervisor, "run", lambda _, announce: announce())
    monkeypatch.setattr(serve.Supervisor, "stop", lambda _: None)
    monkeypatch.setattr("api.observing.logs.configure", lambda _: None)
    monkeypatch.setenv("PLATES_TRITON_URL", "127.0.0.1:1")
    monkeypatch.setenv("PLATES_PORT", "0")
    return run


def test_host_and_port_come_from_options_and_settings(run_unsupervised, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        from_options = run_unsupervised("serve", "--host", "127.0.0.1", "--port", port)
        monkeypatch.setenv("PLATES_PORT", str(port))
        for done in (from_options, run_unsupervised("serve")):
            assert done.returncode == 1 and "PLATES_PORT" in done.stderr
            assert f"can't listen on 127.0.0.1:{port}: Address already in use" in done.stderr
        # An option takes precedence over its variable.
        assert run_unsupervised("serve", "--port", 0).returncode == 0
    empty = run_unsupervised("serve", "--host", "")  # An empty host would mean every address.
    assert "serve: error: unrecognized or empty: ''" in empty.stderr


@pytest.mark.parametrize(
    ("command", "variable", "value"),
    [("serve", "TOKENS_FILE", "/dev/null"), ("triton", "TRITON_HOST", "everywhere")],
)
def test_invalid_settings_are_refused(command, variable, value, run_unsupervised, monkeypatch):
    monkeypatch.setenv(f"PLATES_{variable}", value)
    done = run_unsupervised(command)
    assert done.returncode == 1
    assert done.stderr.startswith(f"plates {command}: PLATES_{variable}: ")


def test_a_stop_signal_hides_no_earlier_error(run_unsupervised, monkeypatch, tmp_path):
    stopped = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("PLATES_TRITON_URL")
    monkeypatch.setattr(serve, "EmbeddedTriton", triton := Mock())

    def stop(supervisor):
        [folder] = tmp_path.iterdir()
        assert triton.call_args.args[1] == folder
        with pytest.raises(BlockingIOError):  # locked against programs that clean /tmp
            fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        signal.raise_signal(signal.SIGTERM)
        stopped.append(supervisor)

    monkeypatch.setattr(serve.Supervisor, "run", Mock(side_effect=GaveUp("it is broken")))
    monkeypatch.setattr(serve.Supervisor, "stop", stop)
    done = run_unsupervised("serve")
    assert (done.returncode, done.stderr) == (1, "plates serve: it is broken\n")
    assert len(stopped) == 1


def test_the_address_and_a_lack_of_tokens_are_announced(run_unsupervised, monkeypatch, caplog):
    for host, tokens, warnings, url in (
        (ANY_HOST, "", 1, "http://0.0.0.0"),
        (ANY_HOST, "secret-of-the-gate", 0, "http://0.0.0.0"),
        ("localhost", "", 0, "http://127.0.0.1"),
        ("::1", "", 0, "http://[::1]"),
    ):
        caplog.clear()
        monkeypatch.setenv("PLATES_TOKENS", tokens)
        done = run_unsupervised("serve", "--host", host)
        assert re.search(rf"^Serving on {re.escape(url)}:\d+ ", done.stdout, re.MULTILINE)
        assert caplog.text.count("may send photos: no tokens are set") == warnings
    settings = Settings().model_copy(update={"tls_certificate": Path("c")})
    monkeypatch.setattr(serve, "read_settings", lambda **_: settings)
    assert re.search(r"Serving on https://127\.0\.0\.1:\d+ ", run_unsupervised("serve").stdout)


def test_the_first_stop_signal_raises_unless_nohup_ignores_it():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with pytest.raises(Stopped) as stopped, stop_signals_raise():
            with pytest.raises(Stopped):  # lost, like an exception in a hook of a fork
                signal.raise_signal(signal.SIGTERM)
            try:
                signal.raise_signal(number)
            finally:  # A second signal does not interrupt the stop.
                signal.raise_signal(signal.SIGINT)
        assert stopped.value.number == number
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_signals_raise():
        signal.raise_signal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, before)


def gateway_of(pid):
    """The process id of the gateway, the only child of a supervisor with an external Triton."""
    (gateway,) = psutil.Process(pid).children()
    return gateway.pid


def test_a_killed_gateway_is_restarted_and_ctrl_c_stops_the_service(tmp_path):
    status_file, log = tmp_path / "status.json", tmp_path / "log"
    environment = {"PLATES_TRITON_URL": "127.0.0.1:1", "PLATES_STATUS_FILE": str(status_file)}
    environment["PLATES_CONCURENCY"] = "2"
    with (
        running_service(environment, log) as (process, url),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        pid = process.pid
        first = gateway_of(pid)
        most_files = psutil.Process(pid).rlimit(psutil.RLIMIT_NOFILE)[1]
        psutil.Process(pid).rlimit(psutil.RLIMIT_NOFILE, (256, most_files))
        os.kill(first, signal.SIGKILL)
        # Meanwhile no client is refused: the socket stays open, connections wait in its backlog.
        assert client.get("/healthz").status_code == 200
        assert gateway_of(pid) != first
        assert psutil.Process(gateway_of(pid)).rlimit(psutil.RLIMIT_NOFILE)[0] == most_files
        # A terminal sends Ctrl-C to all foreground processes, and users may press it twice. The
        # client's connection, which is kept alive, must not delay the stop.
        for _ in range(2):
            os.killpg(pid, signal.SIGINT)
            time.sleep(0.05)
        out, _ = process.communicate(timeout=9)
    assert process.returncode == 0 and "Stopped." in out
    assert read_status(status_file) == Status("stopped", {"gateway": 1})
    lines = log.read_text()
    assert "Restarting the gateway" in lines and "Traceback" not in lines
    assert '"answered"' in lines, "the gateway's own log"
    assert "PLATES_CONCURENCY: there is no such setting (is PLATES_CONCURRENCY meant?)" in lines


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no socket for IPv4 and IPv6")
def test_with_ipv4_and_ipv6_each_client_has_its_own_rate_limit(tmp_path):
    limits = {"PLATES_RATE_LIMIT": "0.01", "PLATES_RATE_BURST": "1"}
    environment = {"PLATES_TRITON_URL": "127.0.0.1:1", "PLATES_HOST": "::"} | limits

    def status(address):
        transport = httpx.HTTPTransport(local_address=address)
        with httpx.Client(transport=transport, timeout=60) as client:
            photos = f"http://127.0.0.1:{url.rpartition(':')[2]}/v1/plates"
            return client.post(photos, files={"image": PHOTO}).status_code

    with running_service(environment, tmp_path / "log") as (_, url):
        sent = [status(address) for address in ("127.0.0.1", "127.0.0.1", "127.0.0.2")]
    assert sent == [503, 429, 503]


def test_the_gateway_ends_when_its_supervisor_is_killed(tmp_path):
    with running_service({"PLATES_TRITON_URL": "127.0.0.1:1"}, tmp_path / "log") as (process, url):
        worker = gateway_of(process.pid)
        assert is_alive(worker)
        process.kill()
    wait_until(lambda: not is_alive(worker))
    host, _, port = url.removeprefix("http://").rpartition(":")
    socket.create_server((host, int(port))).close()


def answer(path):
    return Reply(b"no photo is read", int(path.strip("/")))


def test_a_service_is_healthy_if_it_answers_200_and_its_supervisor_is_ready(run, tmp_path):
    file = tmp_path / "status.json"
    with small_server(answer) as server:
        for words, status in {"200": 0, "503": 1, "429": 1, "429 --or-busy": 0}.items():
            done = run("health", *f"{server.url}/{words}".split())
            assert done.returncode == status
            assert status == 0 or f"{words} no photo is read" in done.stderr
        for url in ("http://a..b/", "http://xn--ü/"):
            done = run("health", url)
            assert done.returncode == 1 and done.stderr.startswith(f"plates health: {url}: ")
        status = '{"state": "%s", "restarts": {}}'
        reasons = {status % state: f"says: {state}" for state in ("healing", "failed", "stopped")}
        reasons |= dict.fromkeys(("", "[]", status % "well"), "there is no status")
        for content, reason in {status % "ready": "", **reasons}.items():
            file.write_text(content)
            done = run("health", f"{server.url}/200", "--status", file)
            assert done.returncode == bool(reason) and reason in done.stderr


def test_an_untrusted_certificate_is_refused(run, tmp_path):
    certificate, key = make_certificate(tmp_path, "DNS:localhost,IP:127.0.0.1")
    with small_server(answer) as server:
        server.speak_tls(certificate, key)
        for options in (["--ca-file", certificate], ["--insecure"]):
            assert run("health", f"{server.url}/200", *options).returncode == 0
            assert run("health", f"{server.url}/503", *options).returncode == 1
        done = run("health", f"{server.url}/200")
    assert done.returncode == 1 and "CERTIFICATE_VERIFY_FAILED" in done.stderr
