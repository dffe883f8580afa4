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


class SmallServer(NamedTuple):
    url: str
    requests: list[bytes]


OK = Reply()
REFUSAL = Reply(status=429, retry_after="3")


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: object, address: object) -> None:
        """Clients that leave are meant to."""


def always(answer: Reply | None) -> Callable[[str, bytes], Reply | None]:
    return lambda *_: answer


@contextlib.contextmanager
def small_server(reply: Callable[[str, bytes], Reply | None]) -> Iterator[SmallServer]:
    """Call `reply` with each request's path and body; None closes without an answer."""
    requests: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            requests.append(body)
            answer = reply(self.path, body)
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

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield SmallServer(f"http://127.0.0.1:{server.server_port}", requests)
        finally:
            server.shutdown()
            thread.join()
