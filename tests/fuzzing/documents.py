"""Requests that the service's own OpenAPI document asks for, and some that it forbids."""

import random
from collections import Counter
from dataclasses import dataclass, field

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase, strategies
from photo_files import GOOD
from requests import RequestException
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import Failure, FailureGroup

from fuzzing.attempts import ANSWER_S
from fuzzing.files import hostile_file

load_all_checks()
_CHECKS = CHECKS.get_by_names(
    ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)
# Shorter waits may end before the answer.
_HURRIED_S = 5.0
_MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)


@dataclass
class Documented:
    """What came of the document's operations."""

    sent: int = 0
    slowest_s: float = 0.0
    statuses: Counter[int | None] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


def _photos(seed: int) -> strategies.SearchStrategy[bytes]:
    files = [*GOOD.values(), *(hostile_file(random.Random(f"{seed} {i}")) for i in range(50))]
    return strategies.sampled_from(files) | strategies.binary(max_size=200)


def send_documented(url: str, seed: int, count: int) -> Documented:
    """Send generated requests to every operation of the document.

    Args:
        url: Of the service.
        seed: Makes the same requests of the same document.
        count: Of all of them together.
    """
    photos = _photos(seed)
    schemathesis.openapi.format("binary", photos)
    schemathesis.openapi.media_type("image/*", photos)
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    # Those that take something are worth more than those that don't.
    weights = [10 if operation.body else 2 if operation.query else 1 for operation in operations]
    found = Documented()
    for operation, weight in zip(operations, weights, strict=True):
        share = max(2, round(count * weight / sum(weights)))
        for mode in _MODES:
            _send_operation(operation, mode, seed, share // 2, found)
    return found


def _send_operation(
    operation: schemathesis.APIOperation,
    mode: schemathesis.GenerationMode,
    seed: int,
    count: int,
    found: Documented,
) -> None:
    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    @hypothesis.seed(seed)
    @settings
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        _send_case(case, found)

    try:
        send()
    except hypothesis.errors.Unsatisfiable:
        return  # There is no wrong request to an operation that takes nothing.


def _send_case(case: schemathesis.Case, found: Documented) -> None:
    try:
        response = case.call(timeout=ANSWER_S)
    except RequestException as error:
        found.violations.append(f"{case.method} {case.path}: {type(error).__name__} {error}")
        return
    found.sent += 1
    found.statuses[response.status_code] += 1
    found.slowest_s = max(found.slowest_s, response.elapsed)
    told = "retry-after" in {name.lower() for name in response.headers}
    wrong: list[str] = []
    right = (response.status_code == 503 and told) or (
        response.status_code == 504 and _is_hurried(case)
    )
    if response.status_code >= 500 and not right:
        wrong.append(f"status {response.status_code}")
    try:
        case.validate_response(response, checks=_CHECKS)
    except FailureGroup as group:
        wrong += [f"{failure.title}: {failure.message}" for failure in group.exceptions]
    except Failure as failure:
        wrong.append(f"{failure.title}: {failure.message}")
    for reason in wrong:
        found.violations.append(f"{case.method} {case.path}: {reason[:400]}")
        found.commands.append(case.as_curl_command())


def _is_hurried(case: schemathesis.Case) -> bool:
    """Whether the request asks for its answer sooner than photos are surely read."""
    try:
        return float((case.headers or {}).get("X-Request-Timeout", ANSWER_S)) < _HURRIED_S
    except ValueError:
        return False
