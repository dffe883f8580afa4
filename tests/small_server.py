"""A tiny HTTP server that answers as a test wants: slowly, with refusals, or not at all."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Reply(NamedTuple):
    body: bytes = b'{"plates": []}'
    status: int = 200
    retry_after: str | None = None


OK = Reply()
REFUSAL = Reply(status=429, retry_after="3")


class SmallServer(ThreadingHTTPServer):
    """Calls `reply` with the path and the body of each request; None closes without an answer."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, reply: Callable[[str, bytes], Reply | None]) -> None:
        self.reply, self.requests = reply, list[bytes]()
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, address: object) -> None:
        """Clients that leave are meant to."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SmallServer

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.requests.append(body)
        answer = self.server.reply(self.path, body)
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer.status)
        if answer.retry_after:
            self.send_header("Retry-After", answer.retry_after)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_POST = do_GET  # noqa: N815 - http.server's name

    def log_message(self, *_: object) -> None:
        pass


def always(answer: Reply | None) -> Callable[[str, bytes], Reply | None]:
    return lambda *_: answer


@contextlib.contextmanager
def small_server(reply: Callable[[str, bytes], Reply | None]) -> Iterator[SmallServer]:
    """Serve on a free loopback port."""
    with SmallServer(reply) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
