"""Figures of stretches of load: rates, goodput, percentiles, counts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plates.benchmarks.load import Load, Outcome

OK = 200


@dataclass(frozen=True)
class Summary:
    """One row of a table of loads; times in seconds, rates per second.

    Attributes:
        requests: How many were to be sent.
        offered_rate: How many per second.
        goodput: Answered with 200 within the deadline, per second. What was answered
            after the last request was sent doesn't count: a queue that is worked off
            then would make the service look faster than it is.
        p50_s, p95_s, p99_s: Latency of those answered with 200; None without any.
        late: Answered with 200, but after the deadline.
        statuses: How many answers of each status; 0 stands for none.
        dropped: How many of each reason for no answer.
        resent: Sent once more; see `Load`.
        without_retry_after: Answers 429 and 503 that don't say when to come back.
        generator_cpu_ms: CPU time that the generator took per request.
        generator_late_p99_s: 99 of 100 requests were sent no later than so much after
            they were meant to.
    """

    requests: int
    offered_rate: float
    goodput: float
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    late: int
    statuses: dict[int, int]
    dropped: dict[str, int]
    resent: int
    without_retry_after: int
    generator_cpu_ms: float
    generator_late_p99_s: float | None

    @property
    def refused(self) -> int:
        """Answers 429."""
        return self.statuses.get(429, 0)

    @property
    def server_errors(self) -> int:
        """Answers 5xx."""
        return sum(count for status, count in self.statuses.items() if status >= 500)


def summarise(loads: Sequence[Load], deadline_s: float) -> Summary:
    """Work out the figures of stretches of the same load.

    Args:
        loads: As a `Generator` returned them, one or more.
        deadline_s: Until which an answer is of use.
    """
    outcomes = [outcome for load in loads for outcome in load.outcomes]
    accepted = accepted_latencies(outcomes)
    in_time = sum(latency <= deadline_s for latency in accepted)
    seconds = max(sum(load.seconds for load in loads), 1e-9)
    good = sum(_is_good(one, deadline_s, load.seconds) for load in loads for one in load.outcomes)
    cpu_s = sum(load.cpu_s for load in loads)
    refusals = [outcome for outcome in outcomes if outcome.status in (429, 503)]
    return Summary(
        requests=len(outcomes),
        offered_rate=len(outcomes) / seconds,
        goodput=good / seconds,
        p50_s=percentile(accepted, 50),
        p95_s=percentile(accepted, 95),
        p99_s=percentile(accepted, 99),
        late=len(accepted) - in_time,
        statuses=dict(sorted(Counter(outcome.status for outcome in outcomes).items())),
        dropped=dict(Counter(outcome.dropped for outcome in outcomes if outcome.dropped)),
        resent=sum(load.resent for load in loads),
        without_retry_after=sum(outcome.retry_after_s is None for outcome in refusals),
        generator_cpu_ms=cpu_s / max(len(outcomes), 1) * 1000,
        generator_late_p99_s=percentile([outcome.late_s for outcome in outcomes], 99),
    )


def _is_good(outcome: Outcome, deadline_s: float, seconds: float) -> bool:
    in_time = outcome.status == OK and outcome.latency_s <= deadline_s
    return in_time and outcome.intended_s + outcome.latency_s <= seconds


def accepted_latencies(outcomes: Iterable[Outcome]) -> list[float]:
    """Latencies, in seconds, of the requests answered with 200."""
    return [outcome.latency_s for outcome in outcomes if outcome.status == OK]


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that so many percent do not exceed (nearest rank).

    Args:
        values: In any order.
        percent: Above 0, up to 100.

    Returns:
        One of the values, never one between two; None where there are none.
    """
    if not values:
        return None
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(int(rank), 1) - 1]
