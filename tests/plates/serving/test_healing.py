"""The supervisor's part that is Triton, over a server without models: starts, restarts, changes.

What it does with a real Triton is in test_embedded.py and test_versions_live.py.
"""

import http.server
import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fake_tritonserver import BOX, Handler
from serving_support import install_fake, make_repository, publish, ticked_until

from plates.serving import EmbeddedTriton, healing, processes, supervisor, versions
from plates.serving.client import TritonHttp
from plates.serving.errors import PreflightError, RequestError, StartError, VersionError
from plates.serving.healing import Prober, TritonHealer


@pytest.fixture(autouse=True)
def fake_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_fake(tmp_path / "tritonserver", monkeypatch)
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(versions, "LOOK_PAUSE_S", 0.1)
    monkeypatch.setattr(healing, "_ASK_PAUSE_S", 0.05)
    monkeypatch.setattr(healing, "_REAPED_S", 0.3)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "models")


@pytest.fixture
def triton(repository: Path) -> EmbeddedTriton:
    return EmbeddedTriton(repository)


@pytest.fixture
def healer(triton: EmbeddedTriton) -> Iterator[TritonHealer]:
    """It is stopped in the end."""
    healer = TritonHealer(triton, b"photo")
    yield healer
    healer.stop()


def start(healer: TritonHealer) -> None:
    healer.start()
    ticked_until(healer, lambda: healer.status.state == "ready")


# --- the first start ---


def test_versions_of_which_none_starts_are_tried_once_each(
    repository: Path, healer: TritonHealer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in (1, 2):
        publish(repository, number, code="raise ImportError")
    with pytest.raises(StartError, match=r"(?s)- 2: .*no such luck.*\n- 1: .*no such luck"):
        healer.start()
    assert caplog.text.count("Starting model version") == 2


@pytest.mark.parametrize("spoilt", ["it ends", "it misreads", "a file is damaged"])
def test_a_start_goes_on_with_the_next_version(
    repository: Path, healer: TritonHealer, spoilt: str
) -> None:
    code = "raise ImportError" if spoilt == "it ends" else "pass"
    publish(repository, 2, code, text="X999XX99" if spoilt == "it misreads" else "A123BC77")
    if spoilt == "a file is damaged":
        (repository / "yolo" / "2" / "model.onnx").write_text("cut off")
    start(healer)
    assert healer.status.release == 1
    expected = {"it ends": "no such luck", "it misreads": "read X999XX99"}
    assert expected.get(spoilt, "is not what was exported") in healer.status.refused["2"]


def test_a_port_in_use_is_no_fault_of_the_version(repository: Path) -> None:
    publish(repository, 2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        healer = TritonHealer(EmbeddedTriton(repository, http_port=port), b"photo")
        with pytest.raises(PreflightError, match="PLATES_TRITON_HTTP_PORT"):
            healer.start()
    # Another process takes it while Triton starts.
    server = Path(repository.parent, "tritonserver", "bin", "tritonserver")
    server.write_text("#!/bin/sh\necho 'failed to bind: Address already in use'; exit 1\n")
    with pytest.raises(PreflightError, match="already in use"):
        healer.start()
    assert healer.status.refused == {}


# --- restarts ---


def test_what_dies_ends_or_hangs_is_counted_and_triton_restarted_on_the_same_ports(
    healer: TritonHealer, triton: EmbeddedTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(healing, "SILENCE_S", 1.0)
    monkeypatch.setattr(healing, "_LISTEN_TIMEOUT_S", 0.3)
    start(healer)
    expected = {"triton": 0, "plate_recognition": 0}
    for part, number in (
        ("plate_recognition", signal.SIGKILL),
        ("triton", signal.SIGKILL),
        ("triton", signal.SIGSTOP),
    ):
        assert healer.status.restarts == expected
        before, prefix, ports = triton.pids, triton.shm_prefix, (triton.http_url, triton.grpc_url)
        os.kill(before.server if part == "triton" else before.stubs[0], number)
        expected[part] += 1
        ticked_until(healer, lambda: healer.status.restarts == expected)
        ticked_until(healer, lambda: healer.status.state == "ready")
        assert (triton.http_url, triton.grpc_url) == ports
        assert not any(map(processes.is_alive, (before.guardian, before.server, *before.stubs)))
        assert not processes.leftovers(prefix)


def test_a_slow_start_keeps_no_other_part_waiting_and_a_stop_then_leaves_nothing(
    healer: TritonHealer, triton: EmbeddedTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    """Stands for `change_version`: it takes until the test says how it ends.

    Attributes:
        started: Released whenever one begins.
        outcomes: Each error with which one ends; None for success.
    """

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.outcomes: queue.Queue[Exception | None] = queue.Queue()

    def __call__(self, *_: object) -> None:
        self.started.release()
        if outcome := self.outcomes.get():
            raise outcome


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Iterator[Change]:
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
    healer: TritonHealer, repository: Path, change: Change
) -> None:
    start_change(healer, repository, change)
    change.outcomes.put(VersionError("it misreads"))
    ticked_until(healer, lambda: healer.status.refused == {"2": "it misreads"})
    assert healer.status.release == 1
    os.utime(repository / "yolo" / "2" / "model.onnx", (1, 1))
    ticked_until(healer, lambda: change.started.acquire(blocking=False))
    assert healer.status.refused == {}
    change.outcomes.put(None)
    ticked_until(healer, lambda: healer.status.release == 2)
    assert healer.status.state == "ready" and healer.status.restarts["triton"] == 0


def test_a_version_that_ends_triton_twice_is_refused(
    healer: TritonHealer, triton: EmbeddedTriton, repository: Path, change: Change
) -> None:
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


# --- whether photos are read ---


def test_trouble_is_found_in_silence_and_in_standstill(tmp_path: Path) -> None:
    healer = TritonHealer(EmbeddedTriton(tmp_path), b"photo")
    healer._triton.poll = lambda: None  # type: ignore[method-assign]
    prober, now = healer._prober, time.monotonic()
    # Loading keeps the machine busy: silence may last thrice as long then.
    for silent_s, idle_s, changing, expected in (
        (0.0, 0.0, False, "None"),
        (7.0, 0.0, False, "has answered nothing for 6 s"),
        (0.0, 46.0, False, "has read no plate for 45 s"),
        (7.0, 46.0, True, "None"),
        (19.0, 0.0, True, "has answered nothing for 18 s"),
    ):
        prober.heard_at, prober.read_at = now - silent_s, now - idle_s
        healer._change = object() if changing else None  # type: ignore[assignment]
        assert expected in str(healer._find_trouble())


def test_photos_of_others_are_proof_only_if_every_model_answered() -> None:
    triton = Mock(spec=TritonHttp)
    prober = Prober(lambda: triton, b"photo", threading.Event())
    # Less than before: they are another server's.
    for counts in ((5, 5), (9, 5), (1, 1), (2, 1), (2, 1)):
        triton.successes.return_value = dict(zip(("yolo", "lprnet"), counts, strict=True))
        prober.listen()
        assert prober.read_at < 0 < prober.heard_at
    triton.successes.return_value = {"yolo": 2, "lprnet": 2}
    prober.listen()
    assert prober.read_at == prober.heard_at
    prober.read()
    assert not triton.plates.called, "ours was not needed"
    prober.forget()
    triton.successes.return_value = {"yolo": 7, "lprnet": 7}
    prober.listen()
    assert prober.read_at < 0
    # Triton is restarted while it is asked.
    triton.successes.side_effect = lambda _: prober.forget() or {"yolo": 9, "lprnet": 9}
    prober.listen()
    assert prober.read_at < 0
    prober.read()
    prober.read()
    triton.plates.assert_called_once_with(b"photo", healing._READ_TIMEOUT_S)
    assert prober.read_at > 0
    for status, is_heard in ((503, True), (None, False)):
        prober.forget()
        prober.heard_at = float("-inf")
        triton.successes.side_effect = triton.plates.side_effect = RequestError("dead", status)
        prober.read()
        prober.listen()
        assert prober.read_at < 0 and (prober.heard_at > 0) == is_heard


def test_the_client_of_tritons_http(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            client = TritonHttp(f"127.0.0.1:{server.server_address[1]}")
            # While the version changes, a model has an entry for each of two.
            assert client.successes(5) == {"plate_recognition": 2}
            assert client.plates(b"photo", 5) == [("A123BC77", BOX)]
            with pytest.raises(RequestError, match=r"refused POST .*/load: .*no such") as raised:
                client.load("yolo")
            assert raised.value.status == 400
        finally:
            server.shutdown()
    with pytest.raises(RequestError, match=r"gave no answer to GET") as raised:
        TritonHttp("127.0.0.1:1").successes(5)
    assert raised.value.status is None
    assert caplog.text == "", "there is one request every second"
