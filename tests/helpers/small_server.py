"""Small HTTP servers that are slow, refuse, or do not answer; and a way to run `plates bench`."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from plates.cli import main as command


def bench(folder, *words):
    """Run a tool of `plates bench`; return its exit status and its figures."""
    figures = folder / "new" / "all.json"
    status = command.main(["bench", *words, "--json", str(figures)])
    found = json.loads(figures.read_text())
    assert "core" in found["machine"]
    return status, found


class Reply(NamedTuple):
    body: bytes = b'{"plates": []}'
    status: int = 200
    retry_after: str = ""


REFUSAL = Reply(status=429, retry_after="3")


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Log nothing."""

    def begin(self, status=200, **headers):
        """Send the head of an answer; in names of headers "_" stands for "-"."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()


class SmallServer(ThreadingHTTPServer):
    """An HTTP server in a thread; it serves until its context ends."""

    request_queue_size = 128

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def speak_tls(self, certificate, key):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = self.url.replace("http:", "https:")

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, address):
        """Ignore the error: the tests' clients disconnect on purpose."""


def small_server(reply):
    """Answer with `reply`, or with `reply(path)`; None closes the connection without an answer."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            answer = reply(self.path) if callable(reply) else reply
            if answer is None:
                self.close_connection = True
                return
            length = len(answer.body)
            self.begin(answer.status, retry_after=answer.retry_after, content_length=length)
            self.wfile.write(answer.body)

        do_POST = do_GET  # noqa: N815 - http.server's name

    return SmallServer(Handler)
