"""What the fuzzer calls wrong, and that its requests depend on the seed alone."""

import copy
import json
import random
import socket
import threading
from typing import Any

import pytest

from api.answers import EXAMPLE
from fuzzing.attempts import Answer, Attempt, save, send
from fuzzing.campaign import KINDS, LARGEST
from fuzzing.verdicts import violation

GET = Attempt("any", "/v1/plates", (b"GET /v1/plates HTTP/1.1\r\n\r\n",))
SNAPSHOT = Attempt("any", "/v1/plate-reader/", (b"POST /v1/plate-reader/ HTTP/1.1\r\n\r\n",))
ALPR = Attempt("any", "/v1/vision/alpr", (b"POST /v1/vision/alpr HTTP/1.1\r\n\r\n",))
PROBLEM = {"type": "/problems/a", "title": "A", "status": 422, "detail": "a.", "instance": "/b"}


def answer(status: int, document: Any, kind: str = "application/json", **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    told = {"content-type": kind, "x-request-id": "1", **names}
    return Answer(status, told, json.dumps(document).encode())


def problem(status: int, **headers: str) -> Answer:
    return answer(status, PROBLEM | {"status": status}, "application/problem+json", **headers)


def test_sound_answers_are_left_alone() -> None:
    assert violation(GET, answer(200, EXAMPLE)) is None
    assert violation(GET, problem(422)) is None
    assert violation(GET, problem(429, retry_after="3")) is None
    assert violation(GET, problem(503, retry_after="3")) is None
    assert violation(SNAPSHOT, answer(400, {"detail": "a."})) is None
    assert violation(SNAPSHOT, answer(413, {"error": "a."})) is None
    assert violation(ALPR, answer(415, {"success": False, "error": "a.", "code": 415})) is None


@pytest.mark.parametrize(
    ("attempt", "given"),
    [
        (GET, Answer(None, failure="it hangs")),
        (GET, problem(500)),
        (GET, problem(502)),
        (GET, problem(504)),
        (GET, problem(408)),
        (GET, problem(429)),
        (GET, problem(503)),
        (GET, problem(503, retry_after="soon")),
        (GET, problem(422, x_request_id="")),
        (GET, answer(422, PROBLEM)),
        (GET, answer(422, {"detail": "a."})),
        (GET, answer(404, PROBLEM, "application/problem+json")),
        (GET, answer(422, PROBLEM | {"detail": None}, "application/problem+json")),
        (GET, Answer(400, {"x-request-id": "1"}, b"Invalid HTTP request received.")),
        (SNAPSHOT, answer(413, {"detail": "a."})),
        (ALPR, answer(415, {"success": True, "error": "a.", "code": 415})),
    ],
)
def test_unsound_refusals_are_found(attempt: Attempt, given: Answer) -> None:
    assert violation(attempt, given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("box", [-0.1, 0, 10, 10]),
        ("box", [0, 0, 1920.1, 10]),
        ("box", [10, 0, 10, 10]),
        ("box", [10, 20, 9, 30]),
        ("score", 1.01),
        ("score", float("nan")),
        ("detection_score", -0.01),
        ("characters", [{"char": "A", "score": 2}]),
        ("quad", [[0, float("inf")]] * 4),
        ("readable", False),
    ],
)
def test_unsound_plates_are_found(name: str, value: object) -> None:
    document = copy.deepcopy(EXAMPLE)
    document["plates"][0][name] = value
    assert violation(GET, answer(200, document))
    assert violation(GET, answer(200, {"results": [{"answer": document}]}))


def test_only_the_statuses_expected_are_right() -> None:
    expecting = Attempt("any", "/v1/plates", GET.pieces, statuses=frozenset({200}))
    assert violation(expecting, problem(422))
    hurried = Attempt("any", "/v1/plates", GET.pieces, may_time_out=True)
    assert violation(hurried, problem(504)) is None


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {LARGEST}))
def test_the_seed_alone_decides(kind: str) -> None:
    make = KINDS[kind][0]
    first = [make(random.Random(f"1 {number}")) for number in range(20)]
    again = [make(random.Random(f"1 {number}")) for number in range(20)]
    other = [make(random.Random(f"2 {number}")) for number in range(20)]
    assert first == again
    assert first != other


def test_what_failed_can_be_sent_again(tmp_path: Any) -> None:
    path = save(Attempt("odd things", "/", (b"GET / ", b"HTTP/1.1\r\n\r\n")), tmp_path, 7)
    assert path.name == "00007-odd-things.http"
    assert path.read_bytes() == b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "silent", "failure"),
    [(b"", False, "closed"), (b"", True, ""), (b"nonsense\r\n\r\n", True, "not HTTP")],
)
def test_connections_that_end_oddly(said: bytes, silent: bool, failure: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            connection.recv(1000)
            connection.sendall(said)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        attempt = Attempt("any", "/", GET.pieces, may_stay_silent=silent)
        seen = send(attempt, *server.getsockname())
        thread.join(10)
    assert seen.status is None
    assert failure in seen.failure
    assert bool(seen.failure) == bool(failure)
