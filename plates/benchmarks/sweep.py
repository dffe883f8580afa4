"""A sweep of offered rates, from little to far too much, and the way back."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plates.benchmarks import report
from plates.benchmarks.footprint import cpu_by_part
from plates.benchmarks.load import Generator, Load, arrivals
from plates.benchmarks.machine import describe_machine
from plates.benchmarks.recovery import Recovery, measure_recovery
from plates.benchmarks.summary import Summary, summarise
from plates.cli import CommandError

GOODPUT_FLOOR = 0.9
RECOVERY_FLOOR_S = 5.0
_WARM_UP_S = 2.0


@dataclass(frozen=True)
class Plan:
    """What is offered.

    Attributes:
        factors: Rates in multiples of the capacity, rising; the first is the normal one.
        seconds: For each, in each round.
        rounds: How often all of them, in turns: whatever slows the machine for a while
            then slows every rate.
        recovery_s: Of the normal rate at the end, at once after the highest.
        deadline_s: Until which an answer is of use.
        seed: Of the arrivals.
    """

    factors: Sequence[float]
    seconds: float
    rounds: int
    recovery_s: float
    deadline_s: float
    seed: int

    def steps(self) -> Iterator[tuple[float, int]]:
        """All rates of one round, then all of the next: factor, and the number of the round."""
        return ((factor, index) for index in range(self.rounds) for factor in self.factors)

    def is_last(self, factor: float, index: int) -> bool:
        """Whether the normal rate follows at once: after the highest of the last round."""
        return factor == self.factors[-1] and index == self.rounds - 1

    def schedule(self, factor: float, index: int, capacity: float) -> list[float]:
        """Moments of sending for one rate in one round; the last goes on at the normal rate."""
        moments = arrivals(factor * capacity, self.seconds, self.seed + index)
        if self.is_last(factor, index):
            normal = arrivals(self.factors[0] * capacity, self.recovery_s, self.seed)
            moments += [self.seconds + moment for moment in normal]
        return moments


@dataclass(frozen=True)
class Phase:
    """One offered rate.

    Attributes:
        factor: Of the capacity.
        summary: What came of it.
        cpu_s: CPU time of each part of the service, of the way back, too; empty where it
            runs elsewhere.
    """

    factor: float
    summary: Summary
    cpu_s: dict[str, float]


@dataclass(frozen=True)
class Overload:
    """What came out; times in seconds, rates per second."""

    machine: str
    deadline_s: float
    capacity: float
    phases: list[Phase]
    recovery: Recovery

    @property
    def peak(self) -> float:
        """The highest goodput at any rate."""
        return max(phase.summary.goodput for phase in self.phases)

    def _server_errors(self) -> str:
        """Which statuses came how often, such as "504: 2"; "" if none did."""
        counts: Counter[int] = Counter()
        for phase in self.phases:
            counts.update(phase.summary.statuses)
        return ", ".join(f"{status}: {n}" for status, n in sorted(counts.items()) if status >= 500)

    def verdicts(self) -> list[report.Verdict]:
        """The floors of this benchmark."""
        worst = self.phases[-1].summary
        ratio = worst.goodput / self.peak if self.peak else 0.0
        slowest = max((p.summary.p99_s or 0.0) for p in self.phases)
        errors = self._server_errors()
        unanswered = sum(sum(phase.summary.dropped.values()) for phase in self.phases)
        back = self.recovery.seconds
        return [
            report.Verdict(
                f"goodput at {self.phases[-1].factor:g} times the capacity, of the peak",
                f"{ratio:.2f}",
                f">= {GOODPUT_FLOOR:.2f}",
                ratio >= GOODPUT_FLOOR,
            ),
            report.Verdict(
                "p99 of accepted requests, at the worst rate",
                f"{slowest:.2f} s",
                f"<= {self.deadline_s:g} s",
                0 < slowest <= self.deadline_s,
            ),
            report.Verdict("answers 5xx", errors or "0", "0", not errors),
            report.Verdict("requests without an answer", str(unanswered), "0", unanswered == 0),
            report.Verdict(
                "back to normal after the overload",
                "not at all" if back is None else f"{back:.1f} s",
                f"<= {RECOVERY_FLOOR_S:g} s",
                back is not None and back <= RECOVERY_FLOOR_S,
            ),
        ]


async def sweep(generator: Generator, pid: int | None, capacity: float, plan: Plan) -> Overload:
    """Offer each rate in turn.

    Args:
        generator: With the requests.
        pid: The service's first process; None where it runs elsewhere.
        capacity: From `measure_capacity`.
        plan: What is offered.
    """
    loads: dict[float, list[Load]] = {factor: [] for factor in plan.factors}
    cpu_s: dict[float, dict[str, float]] = {factor: defaultdict(float) for factor in plan.factors}
    after = Load()
    for factor, index in plan.steps():
        before = cpu_by_part(pid)
        load = await generator.open_loop(plan.schedule(factor, index, capacity))
        for part, used in cpu_by_part(pid).items():
            cpu_s[factor][part] += used - before.get(part, 0.0)
        if plan.is_last(factor, index):
            load, after = load.split(plan.seconds)
        loads[factor].append(load)
        print(f"{factor:g} times the capacity: done", file=sys.stderr, flush=True)
    recovery = measure_recovery(loads[plan.factors[0]][0].outcomes, after.outcomes)
    phases = [
        Phase(factor, summarise(loads[factor], plan.deadline_s), dict(cpu_s[factor]))
        for factor in plan.factors
    ]
    return Overload(describe_machine(), plan.deadline_s, capacity, phases, recovery)


async def measure_capacity(
    generator: Generator, concurrency: int, seconds: float, deadline_s: float
) -> float:
    """Ask as fast as the service answers.

    Args:
        generator: With the requests.
        concurrency: How many at a time.
        seconds: How long, after a short warm-up.
        deadline_s: Until which an answer is of use.

    Returns:
        Photos read per second.

    Raises:
        CommandError: None was read in time.
    """
    await generator.closed_loop(concurrency, _WARM_UP_S)
    summary = summarise([await generator.closed_loop(concurrency, seconds)], deadline_s)
    if not summary.goodput:
        raise CommandError(
            f"no photo was read within the deadline of {deadline_s:g} s at concurrency "
            f"{concurrency}: {summary.statuses} {summary.dropped}. Is --deadline too short?"
        )
    return summary.goodput


def print_phases(phases: Sequence[Phase]) -> None:
    """Print one row per offered rate."""
    headings = "load offered/s goodput/s p50ms p95ms p99ms 429 5xx other none late gen.ms/req"
    report.print_table(headings.split(), [_row(phase) for phase in phases])


def _row(phase: Phase) -> list[str]:
    found = phase.summary
    plain = found.statuses.get(200, 0) + found.refused + found.server_errors
    none = found.statuses.get(0, 0)
    times = (found.p50_s, found.p95_s, found.p99_s)
    counts = (found.refused, found.server_errors, found.requests - plain - none, none, found.late)
    return [
        f"{phase.factor:g}x",
        f"{found.offered_rate:.1f}",
        f"{found.goodput:.1f}",
        *map(report.milliseconds, times),
        *map(str, counts),
        f"{found.generator_cpu_ms:.2f}",
    ]
