"""How long after an overload the service is back to normal."""

from collections.abc import Sequence
from dataclasses import dataclass

from plates.benchmarks.load import Outcome
from plates.benchmarks.summary import OK, accepted_latencies, percentile

# Long enough to hold some requests at the normal rate, short against the floor of 5 s.
WINDOW_S = 2.0
_STEP_S = 0.5
# A window's 95th percentile is nearly its slowest request: it varies by itself.
_TOLERANCE = 1.25


@dataclass(frozen=True)
class Recovery:
    """The way back.

    Attributes:
        seconds: From the end of the overload until there were no more refusals and a
            window's p95 was normal; None if that did not happen.
        normal_p95_s: The highest p95 of any window at the normal rate before, and a
            quarter more.
        windows: Start of each window in seconds, and its p95 in seconds.
        refused_at: When those requests were sent that got no 200.
    """

    seconds: float | None
    normal_p95_s: float
    windows: list[tuple[float, float]]
    refused_at: list[float]


def measure_recovery(before: Sequence[Outcome], after: Sequence[Outcome]) -> Recovery:
    """Compare the normal load after an overload with the same load before it.

    Args:
        before: At the normal rate.
        after: At the normal rate, at once after the overload; zero is its end.

    Returns:
        How long it took, to the length of a step between windows.
    """
    normal = max((p95 for _, p95 in windowed_p95(before)), default=0.0) * _TOLERANCE
    windows = windowed_p95(after)
    refused = [outcome.intended_s for outcome in after if outcome.status != OK]
    usual = [start for start, p95 in windows if p95 <= normal]
    last_refusal = max(refused, default=0.0)
    end = max((outcome.intended_s for outcome in after), default=0.0)
    recovered = bool(usual) and last_refusal <= end - WINDOW_S
    seconds = max(usual[0], last_refusal) if recovered else None
    return Recovery(seconds, normal, windows, refused)


def windowed_p95(outcomes: Sequence[Outcome]) -> list[tuple[float, float]]:
    """The 95th percentile of latency over sliding windows of the time of sending.

    Args:
        outcomes: Of one stretch of load; only those answered with 200 count.

    Returns:
        Start of each window and its p95, in seconds; windows without an answer are left out.
    """
    end = max((outcome.intended_s for outcome in outcomes), default=0.0)
    found = []
    for index in range(int(max(end - WINDOW_S, 0.0) / _STEP_S) + 1):
        start = index * _STEP_S
        inside = [o for o in outcomes if start <= o.intended_s < start + WINDOW_S]
        p95 = percentile(accepted_latencies(inside), 95)
        if p95 is not None:
            found.append((start, p95))
    return found
