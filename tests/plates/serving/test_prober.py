"""Whether photos are being read: the prober, and the client of Triton's HTTP endpoint."""

import http.server
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from plates.serving import prober as probing
from plates.serving.client import TritonHttp
from plates.serving.errors import RequestError
from plates.serving.prober import Prober

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
    monkeypatch.setattr(probing, "_LISTEN_TIMEOUT_S", 0.1)
    monkeypatch.setattr(probing, "_READ_TIMEOUT_S", 0.1)
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
        client.plates(b"photo", 5)
    assert raised.value.status == 503
    with pytest.raises(RequestError, match=r"gave no answer to GET") as raised:
        TritonHttp("127.0.0.1:1").successes(5)
    assert raised.value.status is None


def test_requests_are_not_logged(faked: Faked, caplog: pytest.LogCaptureFixture) -> None:
    """There is one every second."""
    caplog.set_level(logging.INFO)
    client, _ = faked
    client.successes(5)
    assert caplog.text == ""
