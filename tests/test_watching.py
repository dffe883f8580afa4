"""What the supervisor watches: stubs, shared memory, and whether photos are being read."""

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import wait_until

from plates.serving import EmbeddedTriton, processes
from plates.serving.client import TritonHttp
from plates.serving.errors import RequestError
from plates.serving.healing import TritonHealer
from plates.serving.prober import BUSY_STANDSTILL_S, STANDSTILL_S, Prober
from plates.serving.stubs import StubWatch

# --- stubs ---


@pytest.fixture
def make_stub(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts children of this process that look like Triton's stubs."""
    program = tmp_path / "triton_python_backend_stub"
    program.symlink_to(sys.executable)
    started = []

    def make(model: str, segment: str) -> "subprocess.Popen[bytes]":
        file = tmp_path / "models" / model / "1" / "model.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("import time; time.sleep(600)")
        child = subprocess.Popen([program, file, segment, "1048576"])
        started.append(child)
        wait_until(lambda: Path(f"/proc/{child.pid}/cmdline").read_bytes().startswith(b"/"))
        return child

    yield make
    for child in started:
        child.kill()
        child.wait()


def test_a_dead_stub_is_noticed_and_forgotten_once_replaced(
    make_stub: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    names = [f"plates_test_{os.getpid()}_{number}" for number in range(3)]
    segments = [processes.SHARED_MEMORY / name for name in names]
    one, two, stn = (make_stub(*p) for p in zip(("yolo", "yolo", "stn"), names, strict=True))
    watch = StubWatch(os.getpid())
    assert watch.models == {"yolo", "stn"} and watch.server_lives and watch.dead() == []
    for segment in segments:
        segment.write_bytes(b"")
    try:
        one.kill()
        wait_until(watch.dead)
        assert [(stub.pid, stub.model) for stub in watch.dead()] == [(one.pid, "yolo")]
        again = make_stub("yolo", "plates_test_again")
        watch.replaced(["yolo"])
        # The other one of the model that was unloaded is about to end; both stay zombies.
        two.kill()
        wait_until(lambda: not processes.is_alive(two.pid))
        watch.look()
        assert watch.dead() == [] and watch.models == {"yolo", "stn"}
        assert [segment.exists() for segment in segments] == [False, False, True]
    finally:
        segments[2].unlink()
    again.kill()
    stn.kill()
    wait_until(lambda: len(watch.dead()) == 2)
    assert {stub.model for stub in watch.dead()} == {"yolo", "stn"}


def test_stubs_that_triton_has_ended_itself_have_not_died(
    make_stub: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    ended, killed = make_stub("yolo", "plates_test_1"), make_stub("stn", "plates_test_2")
    watch = StubWatch(os.getpid())
    for stub in (ended, killed):
        stub.kill()
    ended.wait()
    wait_until(watch.dead)
    assert [stub.pid for stub in watch.dead()] == [killed.pid]
    make_stub("lprnet", "plates_test_3")
    watch.settle()
    assert watch.models == {"stn", "lprnet"}


def test_former_stubs_that_live_on_are_ended(
    make_stub: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    """Triton keeps them where a request to the dead one still holds their model."""
    first, second = make_stub("yolo", "plates_test_1"), make_stub("yolo", "plates_test_2")
    watch = StubWatch(os.getpid())
    first.kill()
    wait_until(watch.dead)
    again = make_stub("yolo", "plates_test_3")
    watch.replaced(["yolo"])
    assert processes.is_alive(second.pid)
    watch.end_former()
    wait_until(lambda: not processes.is_alive(second.pid))
    assert processes.is_alive(again.pid) and watch.dead() == []


def test_a_stub_that_died_unseen_has_no_name(
    make_stub: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    child = make_stub("yolo", "plates_test")
    child.kill()
    wait_until(lambda: not processes.is_alive(child.pid))
    (dead,) = StubWatch(os.getpid()).dead()
    assert dead.model == ""


def test_only_memory_that_nobody_maps_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = f"plates_sweep_{os.getpid()}_"
    used, unused, new = (processes.SHARED_MEMORY / f"{prefix}{n}" for n in ("used", "un", "new"))
    for path in (used, unused):
        path.write_bytes(bytes(4096))
    code = (
        "import mmap, sys, time; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0);"
        "print('mapped', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(used)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None and child.stdout.readline()
            assert processes.sweep_unmapped(prefix, min_age_s=60) == []
            new.write_bytes(b"")
            monkeypatch.setattr(processes, "_age_s", lambda path: 0.0 if path == new else 61.0)
            assert processes.sweep_unmapped(prefix, min_age_s=60) == [unused]
            assert used.exists() and new.exists()
        finally:
            child.kill()
            processes.sweep(prefix)


# --- the prober ---


BOXES = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


class FakeServer(http.server.ThreadingHTTPServer):
    """Statistics as the test sets them; photos are read unless it says otherwise."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), FakeHandler)
        self.counts = {"yolo": 5, "lprnet": 5}
        self.beside: dict[str, int] = {}
        self.photo_status = 200
        self.photos: list[bytes] = []


class FakeHandler(http.server.BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        stats = [
            {"name": name, "inference_stats": {"success": {"count": count}}}
            for name, count in (*self.server.counts.items(), *self.server.beside.items())
        ]
        self._answer(200, {"model_stats": stats})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.photos.append(body[int(self.headers["Inference-Header-Content-Length"]) :])
        outputs = [{"name": "texts", "data": ["A1", ""]}, {"name": "coordinates", "data": BOXES}]
        problem = {"error": "Stub process is not healthy."}
        status = self.server.photo_status
        self._answer(status, {"outputs": outputs} if status == 200 else problem)

    def _answer(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


Faked = tuple[TritonHttp, FakeServer]


@pytest.fixture
def faked() -> Iterator[Faked]:
    with FakeServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield TritonHttp(f"127.0.0.1:{server.server_address[1]}"), server
        server.shutdown()
        thread.join()


def test_photos_of_others_are_proof_only_if_every_model_answered(faked: Faked) -> None:
    client, server = faked
    prober = Prober(lambda: client, b"photo")
    prober.listen()
    assert prober.heard_at > 0 and prober.read_at < 0
    server.counts = {"yolo": 9, "lprnet": 5}
    prober.listen()
    assert prober.read_at < 0, "no plate was read"
    server.counts = {"yolo": 10, "lprnet": 6}
    prober.listen()
    assert prober.read_at == prober.heard_at
    prober.read()
    assert server.photos == [], "ours was not needed"


def test_counts_of_another_server_are_no_proof(faked: Faked) -> None:
    client, server = faked
    prober = Prober(lambda: client, b"photo")
    prober.listen()
    server.counts = {"yolo": 1, "lprnet": 1}
    prober.listen()
    server.counts = {"yolo": 2, "lprnet": 1}
    prober.listen()
    assert prober.read_at < 0
    server.counts = {"yolo": 2, "lprnet": 2}
    prober.listen()
    assert prober.read_at > 0
    prober.forget()
    server.counts = {"yolo": 7, "lprnet": 7}
    prober.listen()
    assert prober.read_at < 0


def test_photos_without_plates_are_answers_but_no_proof(faked: Faked) -> None:
    """Large ones keep ours waiting; they must not have the server restarted."""
    client, server = faked
    prober = Prober(lambda: client, b"photo")
    server.counts = {"plate_recognition": 3, "lprnet": 1}
    prober.listen()
    server.counts = {"plate_recognition": 4, "lprnet": 1}
    prober.listen()
    assert prober.read_at < 0 < prober.answered_at == prober.heard_at
    before = prober.answered_at
    prober.listen()
    assert prober.answered_at == before
    prober.forget()
    assert prober.answered_at < 0


def test_a_server_that_answers_is_given_more_patience(tmp_path: Path) -> None:
    healer = TritonHealer(EmbeddedTriton(tmp_path), b"photo")
    now = 1000.0
    assert healer._patience_s(now) == STANDSTILL_S
    healer._prober.answered_at = now - 1
    assert healer._patience_s(now) == BUSY_STANDSTILL_S > STANDSTILL_S


def test_our_photo_is_read_when_none_came(faked: Faked) -> None:
    client, server = faked
    prober = Prober(lambda: client, b"photo")
    assert client.plates(b"photo", 5) == [("A1", BOXES[:4]), ("", BOXES[4:])]
    server.photos.clear()
    prober.read()
    assert server.photos == [b"photo"] and prober.read_at > 0
    prober.read()
    assert len(server.photos) == 1, "not at once again"
    prober.forget()
    server.photo_status = 503
    prober.read()
    assert prober.read_at < 0 < prober.heard_at


def test_versions_of_a_model_are_counted_together(faked: Faked) -> None:
    client, server = faked
    server.beside = {"yolo": 3}
    assert client.successes(5) == {"yolo": 8, "lprnet": 5}


def test_a_silent_triton_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plates.serving.prober._LISTEN_TIMEOUT_S", 0.1)
    monkeypatch.setattr("plates.serving.prober._READ_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = TritonHttp(f"127.0.0.1:{silent.getsockname()[1]}")
        prober = Prober(lambda: client, b"photo")
        prober.listen()
        prober.read()
    prober.listen()
    assert prober.heard_at < 0 and prober.read_at < 0


def test_an_error_says_what_was_asked_and_what_came(faked: Faked) -> None:
    client, server = faked
    server.photo_status = 503
    with pytest.raises(RequestError, match=r"POST .*/infer: Stub process") as raised:
        client.read(b"photo", 5)
    assert raised.value.status == 503
    with pytest.raises(RequestError, match=r"gave no answer to GET") as raised:
        TritonHttp("127.0.0.1:1").successes(5)
    assert raised.value.status is None
