"""Problems on their way out: noted, logged where the operator should know, and named."""

import logging
from typing import Any

from api.edge.request_ids import INSTANCE_PATH
from api.errors import Problem
from api.observing.metrics import Metrics

log = logging.getLogger("plates.gateway")


def document_of(problem: Problem, request_id: str, metrics: Metrics) -> dict[str, Any]:
    """Take note of a problem and write its document.

    Args:
        problem: What went wrong with a request, or with one photo of it.
        request_id: Of the request.
        metrics: Where it is counted.
    """
    metrics.note_problem(problem)
    if problem.__cause__ is not None and problem.status >= 500:
        log.error("%s: %s", type(problem).__name__, problem.__cause__)
    return identified(problem.document(), request_id)


def identified(document: dict[str, Any], request_id: str) -> dict[str, Any]:
    """Say in a problem document which request it is about, and log it if it is our fault.

    Args:
        document: Whose `instance` is not known yet.
        request_id: Of the request.
    """
    if document["status"] >= 500:
        log.error("%(status)s %(title)s: %(detail)s", document)
    return document | {"instance": INSTANCE_PATH + request_id}
