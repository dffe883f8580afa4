"""Requests as bytes on a connection, so that each can be replayed, and the rules for answers."""

import http.client
import json
import math
import re
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gateway_support import ALPR, BATCH, READER

from api.answers import BatchAnswer, PlatesAnswer, ProblemDocument
from api.compat.codeproject_ai import AlprAnswer
from api.compat.plate_recognizer import PlateReaderAnswer

# Longer than any deadline of the service: a longer answer is a hang.
ANSWER_S = 45.0
_MAX_ANSWER_BYTES = 64 * 2**20

PLATES = "/v1/plates"
_DIALECTS = (READER, "/v1/plate-reader", ALPR, "/v1/image/alpr")
# Route to the form field of the photo.
SINGLE = {PLATES: "image", **dict.fromkeys(_DIALECTS, "upload")}
PHOTO_FIELDS = SINGLE | {BATCH: "image"}

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_READER_PATHS, _ALPR_PATHS = (READER.rstrip("/"), "/info"), (ALPR, "/v1/image/alpr")
_ANSWERS = {PLATES: PlatesAnswer, BATCH: BatchAnswer}
_ANSWERS |= {READER.rstrip("/"): PlateReaderAnswer} | dict.fromkeys(_ALPR_PATHS, AlprAnswer)
_PROBABILITIES = ("score", "detection_score", "dscore", "confidence")
_STARTS = {"image/jpeg": b"\xff\xd8\xff", "image/png": b"\x89PNG"}


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


def violation(attempt, answer):
    """The rule that an answer violates, as a sentence; None if it is correct."""
    status = answer.status
    if answer.failure or status is None:
        return answer.failure or None
    if attempt.statuses is not None and status not in attempt.statuses:
        return f"status {status} instead of one of {sorted(attempt.statuses)}"
    if not _REQUEST_ID.fullmatch(answer.headers.get("x-request-id", "")):
        return f"the request id is {answer.headers.get('x-request-id')!r}"
    after = answer.headers.get("retry-after", "")
    if status in (429, 503) and not (after.isdigit() and int(after) >= 1):
        return f"{status} with Retry-After {after!r}"
    if status in (408, 504) and not attempt.may_time_out:
        return f"{status} though the request gave no deadline: {answer.body[:200]!r}"
    if status >= 500 and status not in (503, 504):
        return f"status {status}: {answer.body[:200]!r}"
    if 300 <= status < 400 or attempt.pieces[0].startswith(b"HEAD "):
        return None
    try:
        judge = _refusal_violation if status >= 400 else _success_violation
        return judge(attempt.path.rstrip("/"), answer)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return f"{status} without a document of its form: {error}, {answer.body[:200]!r}"


def _refusal_violation(path, answer):
    """Check that a refusal is a problem document, as before routing, or has a dialect's format."""
    kind = answer.headers.get("content-type", "")
    document = json.loads(answer.body)
    if kind == "application/problem+json":
        fits = ProblemDocument.model_validate(document).status == answer.status
    elif kind == "application/json" and path in _ALPR_PATHS:
        fits = (document["success"], document["code"]) == (False, answer.status)
        fits = fits and isinstance(document["error"], str)
    else:
        fits = kind == "application/json" and path in _READER_PATHS
        fits = fits and isinstance(document["error" if answer.status == 413 else "detail"], str)
    return None if fits else f"{answer.status} as {kind!r}: {document}"


def _success_violation(path, answer):
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if path not in _ANSWERS:
        return None
    if kind.startswith("image/"):
        fits = kind in _STARTS and answer.body.startswith(_STARTS[kind])
        return None if fits else f"the redacted photo is {kind} and begins {answer.body[:8]!r}"
    document = json.loads(answer.body)
    _ANSWERS[path].model_validate(document)
    return _unsound(document)


def _unsound(item, size=None):
    """Check that all plates in the item lie inside their photo and scores are probabilities."""
    # Python's parser accepts NaN and Infinity, which JSON does not have.
    if isinstance(item, float) and not math.isfinite(item):
        return f"it holds {item}"
    if isinstance(item, dict):
        size = item.get("image", size)
        for name in _PROBABILITIES:
            if not 0 <= item.get(name, 0) <= 1:
                return f"the {name} {item[name]}"
        if "readable" in item:
            x0, y0, x1, y1 = item["box"]
            if not size or not (0 <= x0 < x1 <= size["width"] and 0 <= y0 < y1 <= size["height"]):
                return f"the box {item['box']} in a photo of {size}"
            if item["readable"] != bool(item["text"]):
                return f"readable {item['readable']} with the text {item['text']!r}"
        item = list(item.values())
    below = item if isinstance(item, list) else []
    return next((wrong for each in below if (wrong := _unsound(each, size))), None)
