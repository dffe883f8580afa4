"""Requests as bytes on a connection, so that each can be replayed exactly."""

import http.client
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gateway_support import ALPR, BATCH, READER

# Longer than any deadline of the service: a longer answer is a hang.
ANSWER_S = 45.0
_MAX_ANSWER_BYTES = 64 * 2**20

PLATES = "/v1/plates"
_DIALECTS = (READER, "/v1/plate-reader", ALPR, "/v1/image/alpr")
# Route to the form field of the photo.
SINGLE = {PLATES: "image", **dict.fromkeys(_DIALECTS, "upload")}
PHOTO_FIELDS = SINGLE | {BATCH: "image"}


@dataclass(frozen=True)
class Attempt:
    """What is sent on one connection, and which answers are correct."""

    path: str  # decides on the format of errors
    pieces: tuple[bytes, ...]
    pause_s: float = 0.0  # between the pieces
    hangs_up: bool = False  # closed without waiting for an answer
    may_stay_silent: bool = False  # the connection may end without an answer
    may_time_out: bool = False  # 408 and 504 are correct answers
    statuses: frozenset[int] | None = None  # the only correct ones; None: the usual rules


@dataclass(frozen=True)
class Answer:
    """The answer; its status is None if the connection ended without one."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""
    failure: str = ""  # why there is no valid answer


def send(attempt, url):
    """Send an attempt on a connection of its own and wait for its answer."""
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname, address.port), ANSWER_S) as connection:
            # The service may refuse early and close; its answer may still be readable.
            with suppress(BrokenPipeError, ConnectionResetError):
                for number, piece in enumerate(attempt.pieces):
                    time.sleep(attempt.pause_s if number else 0)
                    connection.sendall(piece)
            if attempt.hangs_up:
                return Answer()
            method = attempt.pieces[0].partition(b" ")[0].decode("latin-1")
            with http.client.HTTPResponse(connection, method=method) as response:
                response.begin()
                headers = {name.lower(): value for name, value in response.getheaders()}
                return Answer(response.status, headers, response.read(_MAX_ANSWER_BYTES))
    except TimeoutError:
        return Answer(failure=f"no answer within {ANSWER_S:g} s: it hangs")
    except ConnectionRefusedError:
        return Answer(failure="the service does not listen any more")
    except OSError as error:  # http.client's RemoteDisconnected is one
        return Answer(failure="" if attempt.may_stay_silent else f"no answer: {error}")
    except (http.client.HTTPException, ValueError) as error:
        return Answer(failure=f"the answer is not HTTP: {type(error).__name__} {error}")
