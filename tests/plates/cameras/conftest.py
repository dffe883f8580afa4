"""What tests of cameras share: a database, and a receiver of webhooks."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from camera_events import store_of


class Receiver(ThreadingHTTPServer):
    """Answers as `statuses` says, then with `status`, and an endless body each time."""

    daemon_threads = True
    status = 200

    def __init__(self) -> None:
        self.requests, self.statuses, self.open = [], [], threading.Event()
        self.open.set()
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.open.wait(20)
        status = self.server.statuses.pop(0) if self.server.statuses else self.server.status
        request = SimpleNamespace(path=self.path, headers=self.headers, body=body, status=status)
        self.server.requests.append(request)
        self.send_response(status)
        self.send_header("location", self.server.url + "elsewhere")
        self.send_header("connection", "close")
        self.end_headers()
        try:
            while self.server.open.is_set():
                self.wfile.write(b"x" * 65536)
        except OSError:
            pass

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    server = Receiver()
    yield server
    server.open.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def store(tmp_path):
    store = store_of(tmp_path)
    yield store
    store.close()
