"""A receiver of webhooks, for several test files."""

import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest
from small_server import QuietHandler, SmallServer


class Handler(QuietHandler):
    """Answer with each of `statuses`, then always with `status`; the body never ends."""

    def do_POST(self):  # noqa: N802 - http.server's name
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.open.wait(20)
        status = self.server.statuses.pop(0) if self.server.statuses else self.server.status
        request = SimpleNamespace(path=self.path, headers=self.headers, body=body, status=status)
        self.server.requests.append(request)
        elsewhere = self.server.url + "elsewhere"
        wait = {429: "2", 420: "3600"}.get(status, "Fri, 31 Dec 1999 23:59:59 GMT")
        self.begin(status, location=elsewhere, connection="close", retry_after=wait)
        with suppress(OSError):
            while self.server.open.is_set():
                self.wfile.write(b"x" * 65536)


@pytest.fixture
def receiver():
    with SmallServer(Handler) as server:
        server.requests, server.statuses, server.status = [], [], 200
        server.open, server.url = threading.Event(), f"{server.url}/"
        server.open.set()
        yield server
        server.open.set()
