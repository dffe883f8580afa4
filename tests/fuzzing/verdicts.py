"""What no answer of the service may be, whatever was sent."""

import json
import math
import re
from typing import Any

from fuzzing.attempts import Answer, Attempt

_PROBLEM = {"type": str, "title": str, "status": int, "detail": str, "instance": str}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SNAPSHOT, _ALPR = ("/v1/plate-reader", "/info"), ("/v1/vision/alpr", "/v1/image/alpr")
_JPEG_START = b"\xff\xd8\xff"


def violation(attempt: Attempt, answer: Answer) -> str | None:
    """Judge an answer.

    Returns:
        What is wrong with it, as a sentence; None if nothing is.
    """
    if answer.failure:
        return answer.failure
    if answer.status is None:
        return None
    if attempt.statuses is not None and answer.status not in attempt.statuses:
        return f"status {answer.status} instead of one of {sorted(attempt.statuses)}"
    if not _REQUEST_ID.fullmatch(answer.headers.get("x-request-id", "")):
        return f"the request id is {answer.headers.get('x-request-id')!r}"
    if 300 <= answer.status < 400:
        return None
    if answer.status >= 400:
        return _refusal_violation(attempt, answer)
    return _success_violation(attempt, answer)


def _refusal_violation(attempt: Attempt, answer: Answer) -> str | None:
    if answer.status in (429, 503):
        after = answer.headers.get("retry-after", "")
        if not after.isdigit() or int(after) < 1:
            return f"{answer.status} with Retry-After {after!r}"
    elif answer.status in (408, 504):
        if not attempt.may_time_out:
            return f"{answer.status} though nobody was in a hurry: {answer.body[:200]!r}"
    elif answer.status >= 500:
        return f"status {answer.status}: {answer.body[:200]!r}"
    if attempt.pieces[0].startswith(b"HEAD "):
        return None
    try:
        document = json.loads(answer.body)
    except ValueError:
        return f"{answer.status} without a document: {answer.body[:80]!r}"
    return _document_violation(attempt.path.rstrip("/"), answer, document)


def _document_violation(path: str, answer: Answer, document: Any) -> str | None:
    """Whether a refusal has its service's form.

    What is refused before its target is understood, is refused in our own.
    """
    kind = answer.headers.get("content-type", "")
    if kind == "application/problem+json":
        for name, expected in _PROBLEM.items():
            if not isinstance(document.get(name), expected):
                return f"the problem document has {name} {document.get(name)!r}"
        same = document["status"] == answer.status
        return None if same else f"{answer.status} with a document of {document['status']}"
    if kind != "application/json" or path not in _SNAPSHOT + _ALPR:
        return f"{answer.status} as {kind!r}"
    if path in _ALPR:
        told = document.get("success") is False and document.get("code") == answer.status
        return None if told else f"not an error of CodeProject.AI's form: {document}"
    name = "error" if answer.status == 413 else "detail"
    return None if isinstance(document.get(name), str) else f"no {name!r} in {document}"


def _success_violation(attempt: Attempt, answer: Answer) -> str | None:
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if not attempt.path.startswith("/v1/") or attempt.pieces[0].startswith(b"HEAD "):
        return None
    if kind.startswith("image/"):
        fits = kind == "image/jpeg" and answer.body.startswith(_JPEG_START)
        return None if fits or kind == "image/png" else f"the redacted photo is {kind}"
    try:
        # NaN and Infinity are Python's, not JSON's.
        document = json.loads(answer.body, parse_constant=_refuse_constant)
    except ValueError as error:
        return f"the answer is not JSON: {error}"
    if "plates" in document:
        return plates_violation(document)
    for item in document.get("results", []):
        wrong = plates_violation(item["answer"]) if item.get("answer") else None
        if wrong:
            return wrong
    return _compat_violation(document)


def plates_violation(document: dict[str, Any]) -> str | None:
    """Whether an answer's plates lie inside the photo, with scores that are probabilities."""
    width, height = document["image"]["width"], document["image"]["height"]
    for plate in document["plates"]:
        x0, y0, x1, y1 = plate["box"]
        if not (0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height):
            return f"the box {plate['box']} in a photo of {width}x{height}"
        if not all(math.isfinite(side) for corner in plate["quad"] for side in corner):
            return f"the quad {plate['quad']}"
        scored = [plate, *plate["characters"], *plate["candidates"]]
        scores = [plate["detection_score"], *(item["score"] for item in scored)]
        if not all(0 <= score <= 1 for score in scores):
            return f"scores beyond [0, 1]: {scores}"
        if plate["readable"] != bool(plate["text"]):
            return f"readable {plate['readable']} with the text {plate['text']!r}"
    return None


def _compat_violation(document: dict[str, Any]) -> str | None:
    scores = [item.get("score", 0) for item in document.get("results", [])]
    scores += [item.get("confidence", 0) for item in document.get("predictions", [])]
    return None if all(0 <= score <= 1 for score in scores) else f"scores {scores}"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}")
