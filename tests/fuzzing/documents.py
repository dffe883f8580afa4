"""Requests generated from the service's OpenAPI document, valid and invalid ones."""

import random

import hypothesis
import schemathesis
from photo_files import GOOD
from requests import RequestException
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import Failure, FailureGroup

from fuzzing.exchange import ANSWER_S, Answer, Attempt, violation
from fuzzing.kinds import hostile_file

load_all_checks()
_CHECKS = CHECKS.get_by_names(
    ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)


def send_documented(url, seed, count, note):
    """Send `count` generated requests; call `note(status, seconds, violation)` for each answer."""
    files = [*GOOD.values(), *(hostile_file(random.Random(f"{seed} {i}")) for i in range(50))]
    photos = hypothesis.strategies.sampled_from(files) | hypothesis.strategies.binary(max_size=200)
    schemathesis.openapi.format("binary", photos)
    schemathesis.openapi.media_type("image/*", photos)
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    cases = [
        # An operation without a body has no invalid requests.
        operation.as_strategy(generation_mode=mode)
        for operation in (result.ok() for result in schema.get_all_operations())
        for mode in schemathesis.GenerationMode
        if operation.body or mode == schemathesis.GenerationMode.POSITIVE
    ]

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=hypothesis.strategies.one_of(cases))
    def send(case):
        where = f"{case.method} {case.path}"
        try:
            response = case.call(timeout=ANSWER_S)
        except RequestException as error:
            note(None, ANSWER_S, f"{where}: {type(error).__name__} {error}")
            return
        # A request with a deadline may time out before its photo is read.
        hurried = "x-request-timeout" in {name.lower() for name in case.headers or {}}
        attempt = Attempt(case.path, (case.method.encode() + b" ",), may_time_out=hurried)
        headers = {name.lower(): values[0] for name, values in response.headers.items()}
        wrong = violation(attempt, Answer(response.status_code, headers, response.content))
        try:
            # These refuse a head before its route is known: no route documents them.
            if response.status_code not in (414, 431):
                case.validate_response(response, checks=_CHECKS)
        except (Failure, FailureGroup) as failure:
            wrong = f"{wrong or ''} {failure} {getattr(failure, 'exceptions', '')}"
        replay = f"{where}: {wrong} (replay: {case.as_curl_command()})" if wrong else None
        note(response.status_code, response.elapsed, replay)

    send()
