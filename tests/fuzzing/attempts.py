"""One hostile request as bytes on a connection, so that any of it can be sent again."""

import http.client
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

# Longer than any deadline of the service: whoever waits longer than that waits for ever.
ANSWER_S = 45.0
_MAX_ANSWER_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Attempt:
    """What is sent on one connection.

    Attributes:
        kind: Row of the table it belongs to.
        path: Route it is meant for; tells the form of errors.
        pieces: Bytes, sent one after another.
        pause_s: Between the pieces.
        hangs_up: Closed without waiting for an answer.
        may_stay_silent: Whether the connection may end without an answer.
        may_time_out: Whether 408 and 504 are right answers.
        statuses: The only statuses that are right; None leaves it to the rules.
    """

    kind: str
    path: str
    pieces: tuple[bytes, ...]
    pause_s: float = 0.0
    hangs_up: bool = False
    may_stay_silent: bool = False
    may_time_out: bool = False
    statuses: frozenset[int] | None = None


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        status: HTTP status; None if the connection ended without an answer.
        headers: Names in lower case.
        body: All of it.
        seconds: Until it was complete.
        failure: What went wrong instead, as a sentence; "" if nothing.
    """

    status: int | None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0
    failure: str = ""


def send(attempt: Attempt, host: str, port: int) -> Answer:
    """Send an attempt on a connection of its own and wait for its answer."""
    start = time.monotonic()
    try:
        with socket.create_connection((host, port), timeout=ANSWER_S) as connection:
            _send_pieces(attempt, connection)
            if attempt.hangs_up:
                return Answer(None, seconds=time.monotonic() - start)
            return _answer_on(connection, attempt, start)
    except TimeoutError:
        return Answer(None, failure=f"no answer within {ANSWER_S:g} s: it hangs")
    except ConnectionRefusedError:
        return Answer(None, failure="the service does not listen any more")
    except OSError as error:
        silent = "" if attempt.may_stay_silent else f"no answer: {error}"
        return Answer(None, seconds=time.monotonic() - start, failure=silent)


def _send_pieces(attempt: Attempt, connection: socket.socket) -> None:
    for number, piece in enumerate(attempt.pieces):
        if number:
            time.sleep(attempt.pause_s)
        try:
            connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return  # The service has had enough; its answer may be there already.


def _answer_on(connection: socket.socket, attempt: Attempt, start: float) -> Answer:
    method = attempt.pieces[0].partition(b" ")[0].decode("latin-1")
    response = http.client.HTTPResponse(connection, method=method)
    try:
        response.begin()
        body = response.read(_MAX_ANSWER_BYTES)
    except http.client.RemoteDisconnected:
        silent = "" if attempt.may_stay_silent else "the connection was closed without an answer"
        return Answer(None, seconds=time.monotonic() - start, failure=silent)
    except (http.client.HTTPException, ValueError) as error:
        failure = f"the answer is not HTTP: {type(error).__name__} {error}"
        return Answer(None, seconds=time.monotonic() - start, failure=failure)
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, body, time.monotonic() - start)


def save(attempt: Attempt, folder: Path, number: int) -> Path:
    """Write an attempt's bytes for `nc HOST PORT < FILE`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:05d}-{attempt.kind.replace(' ', '-')}.http"
    path.write_bytes(b"".join(attempt.pieces))
    return path
