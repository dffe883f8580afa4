"""The rules for all answers of the service, and the check of an answer against them."""

import json
import math
import re

from gateway_support import ALPR, BATCH, READER

from api.answers import BatchAnswer, PlatesAnswer, ProblemDocument
from api.compat.codeproject_ai import AlprAnswer
from api.compat.plate_recognizer import PlateReaderAnswer
from fuzzing.exchange import PLATES

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_READER_PATHS, _ALPR_PATHS = (READER.rstrip("/"), "/info"), (ALPR, "/v1/image/alpr")
_ANSWERS = {PLATES: PlatesAnswer, BATCH: BatchAnswer}
_ANSWERS |= {READER.rstrip("/"): PlateReaderAnswer} | dict.fromkeys(_ALPR_PATHS, AlprAnswer)
_PROBABILITIES = ("score", "detection_score", "dscore", "confidence")
_STARTS = {"image/jpeg": b"\xff\xd8\xff", "image/png": b"\x89PNG"}


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
