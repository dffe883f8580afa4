"""Break the service under load, one process after the other, and see how it comes back.

Each process is killed (kill -9), and Triton is frozen (SIGSTOP) besides, while a few
senders go on sending photos and asking /readyz. Nobody helps.

Floors: senders see 200, 429 and 503 with Retry-After, and after a frozen Triton 504 by
their deadline; only the gateway's own end drops connections; photos are read right again
within 15 s; /readyz never says ready while no photo is read; no memory in /dev/shm and no
process is left over.
"""

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from api.status import Status, read_status
from plates.benchmarks import report
from plates.benchmarks.aftermath import Leftovers, Seen, leftovers_of, seen_of
from plates.benchmarks.footprint import part_of
from plates.benchmarks.machine import describe_machine
from plates.benchmarks.service import Service, service
from plates.benchmarks.steady_load import DEADLINE_S, SteadyLoad
from plates.cli import CommandError
from plates.serving import processes

HEALTHY_WITHIN_S = 15.0
# By then even a slow machine has healed what it can heal.
_PATIENCE_S = 120.0
_QUIET_S = 1.0
_SETTLE_S = 1.5
_POLL_S = 0.05


@dataclass(frozen=True)
class Fault:
    """Something that breaks.

    Attributes:
        name: For the table.
        part: Of the service, as `plates.benchmarks.footprint.part_of` names it.
        restarts: Which count of the supervisor's it must add to.
        number: Of the signal that the process gets.
    """

    name: str
    part: str
    restarts: str
    number: signal.Signals = signal.SIGKILL


FAULTS = (
    *(Fault(f"kill {model}", f"stub {model}", model) for model in ("yolo", "stn", "lprnet")),
    Fault("kill plate_recognition", "stub plate_recognition", "plate_recognition"),
    Fault("kill Triton", "tritonserver", "triton"),
    Fault("kill the guardian", "guardian", "triton"),
    Fault("kill the gateway", "worker", "gateway"),
    Fault("freeze Triton", "tritonserver", "triton", signal.SIGSTOP),
)


@dataclass(frozen=True)
class Outcome:
    """What one fault brought.

    Attributes:
        fault: Its name.
        seen: What the senders saw.
        healthy_s: From the fault until photos were read right and /readyz said so, for
            good; None if that did not happen.
        restarts: What the supervisor counted: part to number.
        leftovers: What it left on the machine, when it was healed.
    """

    fault: str
    seen: Seen
    healthy_s: float | None
    restarts: dict[str, int]
    leftovers: Leftovers

    def problems(self, fault: Fault) -> list[str]:
        """Say which floors are missed, without the one for the time.

        Args:
            fault: The one it came from.
        """
        allowed = {200, 429, 503} | ({504} if fault.number == signal.SIGSTOP else set())
        found = {
            f"other statuses than {sorted(allowed)}": set(self.seen.statuses) - allowed,
            "refusals without Retry-After": self.seen.without_retry_after,
            "dropped connections": fault.part != "worker" and self.seen.dropped,
            "wrong readings": self.seen.wrong,
            "answers after the deadline": self.seen.late,
            "untrue answers of /readyz": self.seen.lies,
            "never healthy": self.healthy_s is None,
            f"not counted as a restart of {fault.restarts}": not self.restarts.get(fault.restarts),
            "shared memory left": self.leftovers.segments,
            "processes left": self.leftovers.orphans,
        }
        return [f"{fault.name}: {what}" for what, came in found.items() if came]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all figures as JSON")
    parser.add_argument(
        "--senders", type=int, metavar="N", default=3, help="at the same time (default: 3)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        choices=[fault.name for fault in FAULTS],
        help="some of the faults: " + ", ".join(f"'{fault.name}'" for fault in FAULTS),
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure and print.

    Returns:
        0 if every floor holds, else 1.

    Raises:
        CommandError: The service doesn't start or stop.
    """
    chosen = [fault for fault in FAULTS if fault.name in (arguments.only or [fault.name])]
    print(describe_machine(), flush=True)
    outcomes = measure(chosen, arguments.senders)
    print_outcomes(outcomes)
    if arguments.json:
        report.write_json(arguments.json, {"faults": [asdict(outcome) for outcome in outcomes]})
    return report.print_verdicts(_verdicts(chosen, outcomes))


def measure(faults: Sequence[Fault], senders: int) -> list[Outcome]:
    """Start a service, let every fault happen once, stop the service.

    Args:
        faults: One after the other, each when the one before it is healed.
        senders: Photos under way at the same time.

    Raises:
        CommandError: The service doesn't start, doesn't stop, or leaves something behind.
    """
    with tempfile.TemporaryDirectory(prefix="plates-faults-") as folder:
        status_file = Path(folder) / "status.json"
        settings = {"PLATES_STATUS_FILE": str(status_file)}
        with (
            service(None, settings=settings) as serving,
            SteadyLoad(serving.target, senders) as load,
        ):
            outcomes = [_break(fault, serving, load, status_file) for fault in faults]
    rest = leftovers_of(serving.pid or 0)
    if rest.segments or rest.orphans:
        raise CommandError(f"the service has stopped and left {rest}")
    return outcomes


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Print one row per fault."""
    headings = ("fault", "healthy s", "200", "429", "503", "504", "dropped", "false ready", "left")
    rows = []
    for outcome in outcomes:
        seen, left = outcome.seen, outcome.leftovers
        healthy = "never" if outcome.healthy_s is None else f"{outcome.healthy_s:.1f}"
        counts = [str(seen.statuses.get(status, 0)) for status in (200, 429, 503, 504)]
        numbers = [seen.dropped, seen.lies, left.segments + left.orphans]
        rows.append((outcome.fault, healthy, *counts, *map(str, numbers)))
    report.print_table(headings, rows)


def _break(fault: Fault, serving: Service, load: SteadyLoad, status_file: Path) -> Outcome:
    """Let one fault happen, and wait until the service is well again."""
    _wait_for_quiet(load)
    before = _restarts(status_file)
    broken_at = time.monotonic()
    os.kill(_process_of(fault, serving), fault.number)
    _wait_until_healed(fault, before, broken_at, load, status_file)
    time.sleep(_SETTLE_S)
    seen = seen_of(load, broken_at, DEADLINE_S)
    restarts = Counter(_restarts(status_file))
    restarts.subtract(before)
    counted = {part: count for part, count in restarts.items() if count}
    left = leftovers_of(serving.pid or 0)
    return Outcome(fault.name, seen, seen.healthy_s, counted, left)


def _wait_for_quiet(load: SteadyLoad) -> None:
    """Wait until nothing but right answers has come for a while."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        since = time.monotonic() - _QUIET_S
        recent = [attempt for attempt in load.photos if attempt.ended_s > since]
        ready = [attempt for attempt in load.readiness if attempt.ended_s > since]
        if recent and ready and all(attempt.right for attempt in recent + ready):
            return
        time.sleep(_POLL_S)
    raise CommandError(f"the service did not read photos right within {_PATIENCE_S:g} s")


def _process_of(fault: Fault, serving: Service) -> int:
    for process in processes.descendants(serving.pid or 0):
        if not process.dead and part_of(process.command, False) == fault.part:
            return process.pid
    raise CommandError(f"{fault.name}: the service has no process {fault.part}")


def _wait_until_healed(
    fault: Fault, before: dict[str, int], broken_at: float, load: SteadyLoad, status_file: Path
) -> None:
    """Wait until the supervisor has restarted the part, and a photo was read after that."""
    deadline = broken_at + _PATIENCE_S
    while time.monotonic() < deadline:
        status = read_status(status_file) or Status("starting")
        counted = status.restarts.get(fault.restarts, 0) > before.get(fault.restarts, 0)
        if counted and status.state == "ready":
            break
        time.sleep(_POLL_S)
    healed_at = time.monotonic()
    while time.monotonic() < deadline:
        if any(attempt.right and attempt.began_s > healed_at for attempt in load.photos[-20:]):
            return
        time.sleep(_POLL_S)


def _restarts(status_file: Path) -> dict[str, int]:
    status = read_status(status_file)
    return dict(status.restarts) if status else {}


def _verdicts(faults: Sequence[Fault], outcomes: Sequence[Outcome]) -> list[report.Verdict]:
    slowest = max((o.healthy_s if o.healthy_s is not None else _PATIENCE_S) for o in outcomes)
    pairs = zip(outcomes, faults, strict=True)
    problems = [problem for outcome, fault in pairs for problem in outcome.problems(fault)]
    return [
        report.Verdict(
            "slowest to be healthy",
            f"{slowest:.1f} s",
            f"{HEALTHY_WITHIN_S:g} s",
            slowest <= HEALTHY_WITHIN_S,
        ),
        report.Verdict("other problems", "; ".join(problems) or "none", "none", not problems),
    ]
