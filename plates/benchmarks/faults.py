"""Break the service under load, one process after the other, and time how it comes back.

Each process is killed (kill -9), and Triton is frozen (SIGSTOP) besides, while a few clients
go on posting photos and asking /readyz.

Floors: clients get 200, 429 and 503 with Retry-After, and after a frozen Triton 504 by their
deadline; only photos in flight in a killed gateway are lost; photos are read right again
within 10 s, and /readyz says so; every process is there again; no memory in /dev/shm is left.
"""

import argparse
import asyncio
import contextlib
import math
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.status import Status, read_status
from plates.benchmarks import report
from plates.benchmarks.load import OK, LoadClient, Request
from plates.benchmarks.photos import samples
from plates.benchmarks.report import Verdict
from plates.benchmarks.service import Service, footprints, service
from plates.cli import CommandError

HEALED_WITHIN_S = 10.0
DEADLINE_S = 5.0
# By then even a slow machine has healed what it can heal.
_PATIENCE_S = 120.0
_QUIET_S, _SETTLE_S, _POLL_S = 1.0, 1.5, 0.05

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Fault:
    """A signal to a part of the service, and the supervisor's count of restarts it adds to."""

    name: str
    part: str
    restarts: str
    number: signal.Signals = signal.SIGKILL


FAULTS = (
    *(Fault(f"kill {name}", f"stub {name}", name) for name in ("yolo", "stn", "lprnet")),
    Fault("kill plate_recognition", "stub plate_recognition", "plate_recognition"),
    Fault("kill Triton", "tritonserver", "triton"),
    Fault("kill the guardian", "guardian", "triton"),
    Fault("kill the gateway", "gateway", "gateway"),
    Fault("freeze Triton", "tritonserver", "triton", signal.SIGSTOP),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    names = [fault.name for fault in FAULTS]
    report.add_outputs(parser, "faults")
    report.add_number(parser, "--clients", 3, "that post photos at the same time", least=1)
    some = f"some of the faults: {', '.join(map(repr, names))}"
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help=some)


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and draw; 0 if every floor holds, else 1."""
    report.make_folders(arguments)
    chosen = [fault for fault in FAULTS if fault.name in (arguments.only or [fault.name])]
    rows = measure(chosen, arguments.clients)
    print(report.describe_machine())
    report.print_table({**row, "problems": len(row["problems"])} for row in rows)
    status = report.print_verdicts(verdicts(rows))
    report.write(arguments, {"faults": rows}, lambda figure: _plot(figure, rows))
    return status


def _plot(figure: Any, rows: Rows) -> None:
    axes = figure.subplots()
    axes.barh([row["fault"] for row in rows], [row["healed s"] for row in rows])
    axes.set(xlabel="s until all was well again")


def verdicts(rows: Rows) -> list[Verdict]:
    """Judge the faults."""
    slowest = max(row["healed s"] for row in rows)
    problems = "; ".join(f"{row['fault']}: {what}" for row in rows for what in row["problems"])
    came, floor = f"{slowest:.1f} s", f"<= {HEALED_WITHIN_S:g} s"
    return [
        Verdict("slowest to be healed", came, floor, slowest <= HEALED_WITHIN_S),
        Verdict("other problems", problems or "none", "none", not problems),
    ]


def measure(faults: Sequence[Fault], clients: int) -> Rows:
    """Start a service, let every fault happen once, stop the service; a row for each fault.

    Raises:
        CommandError: The service doesn't start, doesn't stop, or leaves shared memory.
    """
    with tempfile.TemporaryDirectory(prefix="plates-faults-") as folder:
        status_file = Path(folder) / "status.json"
        with service(None, settings={"PLATES_STATUS_FILE": str(status_file)}) as serving:
            return asyncio.run(_under_load(faults, serving, clients, status_file))


async def _under_load(
    faults: Sequence[Fault], serving: Service, clients: int, status_file: Path
) -> Rows:
    headers = {"Content-Type": "image/jpeg", "X-Request-Timeout": f"{DEADLINE_S:g}"}
    posts = [
        Request(path.read_bytes(), headers=headers, texts=texts)
        for path, texts in samples().items()
    ]
    # Longer than the deadline: an answer that comes after it is seen to be late.
    async with (
        LoadClient(serving.url, posts, 2 * DEADLINE_S) as photos,
        LoadClient(serving.url, [Request(path="/readyz")], 2 * DEADLINE_S) as readiness,
    ):
        polling = readiness.closed_loop(1, math.inf, pause_s=0.2)
        load = asyncio.gather(photos.closed_loop(clients, math.inf), polling)
        try:
            return [
                await _break(fault, serving, photos, readiness, status_file) for fault in faults
            ]
        finally:
            load.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await load


async def _break(
    fault: Fault, serving: Service, photos: LoadClient, readiness: LoadClient, status_file: Path
) -> dict[str, Any]:
    """Let a fault happen and wait until the service is well again; a row of the table."""

    def now() -> float:
        return time.perf_counter() - photos.began_s

    def since(moment: float) -> list[Rows]:
        streams = photos.rows, readiness.rows
        return [[row for row in rows if row["ended_s"] >= moment] for rows in streams]

    def status() -> Status:
        return read_status(status_file) or Status("starting")

    def is_quiet() -> bool:
        recent = since(now() - _QUIET_S)
        return all(recent) and all(row["right"] for rows in recent for row in rows)

    if not await _until(is_quiet):
        raise CommandError(f"the service did not read photos right within {_PATIENCE_S:g} s")
    before = footprints(serving.pid)
    restarts = status().restarts.get(fault.restarts, 0)
    victims = [process.pid for process in before if process.part == fault.part]
    if not victims:
        raise CommandError(f"{fault.name}: the service has no process {fault.part}")
    broken_s = now()
    os.kill(victims[0], fault.number)
    counted = await _until(lambda: status().restarts.get(fault.restarts, 0) > restarts)
    await _until(lambda: status().state == "ready")
    ready_s = now()
    await _until(
        lambda: any(one["intended_s"] > ready_s and one["right"] for one in photos.rows[-9:])
    )
    await asyncio.sleep(_SETTLE_S)
    row = judge(fault, broken_s, *since(broken_s))
    if not counted:
        row["problems"].append(f"not counted as a restart of {fault.restarts}")
    parts = [sorted(one.part for one in found) for found in (before, footprints(serving.pid))]
    if parts[0] != parts[1]:
        row["problems"].append(f"processes before: {parts[0]}, after: {parts[1]}")
    return row


async def _until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while not (holds := condition()) and time.monotonic() < deadline:
        await asyncio.sleep(_POLL_S)
    return holds


def judge(fault: Fault, broken_s: float, photos: Rows, readiness: Rows) -> dict[str, Any]:
    """Sum up what clients got from a fault on: a row of the table, with its problems.

    Args:
        fault: What happened.
        broken_s: When, in seconds since the load began, as in the rows.
        photos: Rows of photos; see `load.Load`.
        readiness: Rows of /readyz.
    """
    counts = Counter(row["status"] for row in photos)
    in_flight = [row for row in photos if row["intended_s"] <= broken_s + _POLL_S]
    allowed = {0, OK, 429, 503} | ({504} if fault.number == signal.SIGSTOP else set())
    refused = [row for row in photos if row["status"] in (429, 503)]
    found = {
        f"other statuses than {sorted(allowed)}": set(counts) - allowed,
        "refusals without Retry-After": not all(row["retry_after"] for row in refused),
        "photos lost": counts[0] > (len(in_flight) if fault.part == "gateway" else 0),
        "wrong readings": any(row["status"] == OK and not row["right"] for row in photos),
        "late answers": any(r["ended_s"] - r["intended_s"] > DEADLINE_S + 1 for r in photos),
    }
    healed_s = max(_healed_s(broken_s, photos), _healed_s(broken_s, readiness))
    statuses = {str(status): counts[status] for status in (OK, 429, 503, 504)}
    problems = [what for what, came in found.items() if came]
    return {"fault": fault.name, "healed s": round(healed_s, 1), **statuses, "lost": counts[0]} | {
        "problems": problems
    }


def _healed_s(broken_s: float, rows: Rows) -> float:
    """Seconds until all went well for good; infinite if that never happened."""
    bad = [row["ended_s"] for row in rows if not row["right"] and row["status"] != 429]
    good = [row["ended_s"] for row in rows if row["right"] and row["intended_s"] >= broken_s]
    last_bad = max(bad, default=broken_s)
    return min((end for end in good if end > last_bad), default=math.inf) - broken_s
