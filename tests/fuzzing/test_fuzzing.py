"""What the fuzzer calls wrong, and a short campaign."""

import json
from pathlib import Path
from typing import Any

import pytest

from api.answers import EXAMPLE, PROBLEM_EXAMPLE
from fuzzing.campaign import Campaign, service_of_our_own
from fuzzing.exchange import Answer, Attempt
from fuzzing.kinds import KINDS
from fuzzing.verdicts import violation

REQUESTS = 200
PIECES = (b"GET / ", b"HTTP/1.1\r\n\r\n")
OURS, READER = Attempt("/v1/plates", PIECES), Attempt("/v1/plate-reader/", PIECES)
ALPR, BATCH = Attempt("/v1/vision/alpr", PIECES), Attempt("/v1/plates/batch", PIECES)


def answer(status: int, document: Any, kind: str = "application/json", **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    headers = {"content-type": kind, "x-request-id": "1", **names}
    return Answer(status, headers, json.dumps(document).encode())


def problem(status: int, changes: dict | None = None, **headers: str) -> Answer:
    document = PROBLEM_EXAMPLE | {"status": status} | (changes or {})
    return answer(status, document, "application/problem+json", **headers)


UNSOUND = (
    (OURS, Answer(failure="it hangs")),
    *((OURS, problem(status)) for status in (500, 502, 504, 408, 429, 503)),
    (OURS, problem(503, retry_after="soon")),
    (OURS, problem(422, x_request_id="")),
    (OURS, problem(422, {"status": 400})),
    (OURS, problem(422, {"detail": None})),
    (OURS, answer(422, PROBLEM_EXAMPLE)),
    (OURS, Answer(400, {"x-request-id": "1"}, b"Invalid HTTP request received.")),
    (READER, answer(413, {"detail": "a."})),
    (ALPR, answer(415, {"success": True, "error": "a.", "code": 415})),
    (ALPR, answer(200, {})),
    (READER, answer(201, {"results": [{"score": 2}]})),
    (OURS, answer(200, "no photo", "image/png")),
    (Attempt("/v1/plates", PIECES, statuses=frozenset({200})), problem(422)),
)


UNSOUND_PLATES: tuple[dict[str, Any], ...] = (
    *({"box": box} for box in ([-1, 0, 9, 9], [0, 0, 1921, 9], [9, 0, 9, 9], [9, 20, 8, 30])),
    *({"score": score} for score in (1.01, float("nan"))),
    {"detection_score": -0.01},
    {"characters": [{"char": "A", "score": 2}]},
    {"quad": [[0, float("inf")]] * 4},
    {"readable": False},
)


def test_verdicts() -> None:
    assert violation(OURS, answer(200, EXAMPLE)) is None
    for attempt, given in UNSOUND:
        assert violation(attempt, given), (attempt, given)
    for changes in UNSOUND_PLATES:
        document = EXAMPLE | {"plates": [EXAMPLE["plates"][0] | changes]}
        result = {"filename": None, "status": 200, "answer": document}
        assert violation(OURS, answer(200, document)), changes
        assert violation(BATCH, answer(200, {"results": [result]})), changes


@pytest.mark.live
@pytest.mark.control
def test_hostile_requests_do_no_harm(tmp_path: Path) -> None:
    with service_of_our_own(tmp_path) as service:
        # To make the largest pictures takes longer than all the rest: one is enough. So few
        # requests don't fill the pools before the rest is measured.
        campaign = Campaign(service, 4, REQUESTS, tmp_path, least=1, growth_mb=500)
        campaign.run()
    assert not campaign.violations, campaign.table()
    assert KINDS.keys() < {kind for kind, *_ in campaign.sent}
    assert len(campaign.sent) >= REQUESTS
    assert sum(status == "200" for _, status, *_ in campaign.sent) > REQUESTS / 20
