"""One request as bytes on a connection, so that any of it can be sent again."""

import http.client
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gateway_support import ALPR, BATCH, READER

# Longer than any deadline of the service: what takes longer takes for ever.
ANSWER_S = 45.0
_MAX_ANSWER_BYTES = 64 * 2**20

PLATES = "/v1/plates"
# Each with the field that a photo has there.
SINGLE = {
    PLATES: "image",
    READER: "upload",
    "/v1/plate-reader": "upload",
    ALPR: "upload",
    "/v1/image/alpr": "upload",
}
PHOTO_FIELDS = SINGLE | {BATCH: "image"}


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


@dataclass(frozen=True)
class Answer:
    """What came back: no status if the connection ended without an answer."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""
    failure: str = ""  # what went wrong instead


def send(attempt, url):
    """Send an attempt on a connection of its own and wait for its answer."""
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname, address.port), ANSWER_S) as connection:
            # The service may have had enough; its answer may be there already.
            with suppress(BrokenPipeError, ConnectionResetError):
                for number, piece in enumerate(attempt.pieces):
                    time.sleep(attempt.pause_s if number else 0)
                    connection.sendall(piece)
            if attempt.hangs_up:
                return Answer()
            method = attempt.pieces[0].partition(b" ")[0].decode("latin-1")
            response = http.client.HTTPResponse(connection, method=method)
            response.begin()
            body = response.read(_MAX_ANSWER_BYTES)
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, body)
    except TimeoutError:
        return Answer(failure=f"no answer within {ANSWER_S:g} s: it hangs")
    except ConnectionRefusedError:
        return Answer(failure="the service does not listen any more")
    except OSError as error:  # http.client's RemoteDisconnected is one
        return Answer(failure="" if attempt.may_stay_silent else f"no answer: {error}")
    except (http.client.HTTPException, ValueError) as error:
        return Answer(failure=f"the answer is not HTTP: {type(error).__name__} {error}")
