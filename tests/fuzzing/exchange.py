"""One request as bytes on a connection, so that any of it can be sent again."""

import http.client
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

# Longer than any deadline of the service: what takes longer takes for ever.
ANSWER_S = 45.0
_MAX_ANSWER_BYTES = 64 * 2**20

PLATES, BATCH = "/v1/plates", "/v1/plates/batch"
READER, ALPR = "/v1/plate-reader/", "/v1/vision/alpr"
# Each with the field that a photo has there.
SINGLE = {
    PLATES: b"image",
    READER: b"upload",
    "/v1/plate-reader": b"upload",
    ALPR: b"upload",
    "/v1/image/alpr": b"upload",
}
PHOTO_FIELDS = SINGLE | {BATCH: b"image"}
BOUNDARY = b"x-limit"
FORM = b"multipart/form-data; boundary=" + BOUNDARY

Header = tuple[bytes, bytes]


def head(method: bytes, target: bytes, *headers: Header) -> bytes:
    """A request's head, its connection not kept."""
    fields = ((b"Host", b"localhost"), (b"Connection", b"close"), *headers)
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in fields)
    return method + b" " + target + b" HTTP/1.1\r\n" + lines + b"\r\n"


def post(path: str, kind: bytes, body: bytes, *headers: Header, query: bytes = b"") -> bytes:
    described = ((b"Content-Type", kind), (b"Content-Length", b"%d" % len(body)))
    return head(b"POST", path.encode() + query, *described, *headers) + body


def raw_photo(path: str, photo: bytes, *headers: Header, query: bytes = b"") -> bytes:
    return post(path, b"image/jpeg", photo, *headers, query=query)


def part(name: bytes, content: bytes, filename: bytes | None = None, *lines: bytes) -> bytes:
    """One part of a form, without the boundary before it."""
    disposition = b'Content-Disposition: form-data; name="' + name + b'"'
    if filename is not None:
        disposition += b'; filename="' + filename + b'"'
    return b"\r\n".join((disposition, *lines, b"", content))


def form(*parts: bytes, boundary: bytes = BOUNDARY) -> bytes:
    opened = b"".join(b"--" + boundary + b"\r\n" + each + b"\r\n" for each in parts)
    return opened + b"--" + boundary + b"--\r\n"


@dataclass(frozen=True)
class Attempt:
    """What is sent on one connection, and which answers are right."""

    path: str  # decides the form of errors
    pieces: tuple[bytes, ...]
    pause_s: float = 0.0  # between the pieces
    hangs_up: bool = False  # closed without waiting for an answer
    may_stay_silent: bool = False  # the connection may end without an answer
    may_time_out: bool = False  # 408 and 504 are right answers
    statuses: frozenset[int] | None = None  # the only right ones; None leaves it to the rules

    def save(self, path: Path) -> Path:
        """Write the bytes for `nc HOST PORT < FILE`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(self.pieces))
        return path


@dataclass(frozen=True)
class Answer:
    """What came back: no status if the connection ended without an answer."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""
    failure: str = ""  # what went wrong instead


def send(attempt: Attempt, url: str) -> Answer:
    """Send an attempt on a connection of its own and wait for its answer."""
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname, address.port), ANSWER_S) as connection:
            _send_pieces(attempt, connection)
            return Answer() if attempt.hangs_up else _answer_on(connection, attempt)
    except TimeoutError:
        return Answer(failure=f"no answer within {ANSWER_S:g} s: it hangs")
    except ConnectionRefusedError:
        return Answer(failure="the service does not listen any more")
    except OSError as error:  # http.client's RemoteDisconnected is one
        return Answer(failure="" if attempt.may_stay_silent else f"no answer: {error}")
    except (http.client.HTTPException, ValueError) as error:
        return Answer(failure=f"the answer is not HTTP: {type(error).__name__} {error}")


def _send_pieces(attempt: Attempt, connection: socket.socket) -> None:
    for number, piece in enumerate(attempt.pieces):
        time.sleep(attempt.pause_s if number else 0)
        try:
            connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return  # The service has had enough; its answer may be there already.


def _answer_on(connection: socket.socket, attempt: Attempt) -> Answer:
    method = attempt.pieces[0].partition(b" ")[0].decode("latin-1")
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    body = response.read(_MAX_ANSWER_BYTES)
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, body)
