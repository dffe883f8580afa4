"""Break the service's processes under load, one after the other, and time the recovery.

Each process is killed (kill -9), and Triton is also frozen (SIGSTOP), while a few clients keep
posting photos.

Floors: clients get only 200, 429 and 503 with Retry-After, and 504 if Triton is frozen, at most 1 s
after their deadline; only photos in flight in a killed gateway are lost; photos are read correctly
again within 10 s; every process runs again; no memory in /dev/shm is left.
"""

import argparse
import asyncio
import math
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from api.status import Status, read_status
from plates.benchmarks.load import OK, LoadClient, sample_requests
from plates.benchmarks.report import Report, Rows, at_most, none_of
from plates.benchmarks.service import Service, footprints, service
from plates.cli import CommandError

HEALED_WITHIN_S = 10.0
DEADLINE_S = 5.0
LATE_S = 1.0
# Even a slow machine has recovered by then, if it can.
_PATIENCE_S = 120.0
_QUIET_S, _POLL_S = 1.5, 0.05
_CLIENTS = 3
# Each fault, and the part of the service that it hits.
FREEZE = "freeze Triton"
FAULTS = {
    "kill yolo": "stub yolo",
    "kill stn": "stub stn",
    "kill lprnet": "stub lprnet",
    "kill plate_recognition": "stub plate_recognition",
    "kill Triton": "tritonserver",
    "kill the gateway": "gateway",
    FREEZE: "tritonserver",
}


def configure(_: argparse.ArgumentParser) -> None:
    """Declare no options: all faults hit a service that is started for them."""


def run(_: argparse.Namespace) -> Report:
    with service(None) as serving:
        rows = asyncio.run(measure(serving))
    slowest_s, latest_s = (max(row[figure] for row in rows) for figure in ("healed s", "late s"))
    problems = (f"{row['fault']}: {what}" for row in rows for what in row["problems"])
    verdicts = [
        at_most("slowest to be healed", slowest_s, HEALED_WITHIN_S, " s"),
        at_most("latest answer after its deadline", latest_s, LATE_S, " s"),
        none_of("other problems", problems),
    ]
    return Report({"faults": rows}, verdicts)


async def measure(serving: Service) -> Rows:
    """Inject every fault once while clients post photos; returns a row for each fault."""
    # Longer than the deadline, so that late answers are measured.
    client = LoadClient(serving.url, sample_requests(DEADLINE_S), 2 * DEADLINE_S)
    load = asyncio.create_task(client.closed_loop(_CLIENTS, math.inf))
    try:
        return [await _break(fault, client, serving) for fault in FAULTS]
    finally:
        load.cancel()
        await asyncio.wait([load])


async def _break(fault: str, client: LoadClient, serving: Service) -> dict[str, Any]:
    """Inject a fault and wait until the service has recovered; returns a row of the table."""

    def status() -> Status:
        found = read_status(serving.status_file) if serving.status_file else None
        return found or Status("starting")

    def is_well() -> bool:
        """Whether all answers were right for a while, and the service is ready."""
        begin = client.now() - _QUIET_S
        recent = [row["right"] for row in client.rows if row["ended_s"] >= begin]
        return bool(recent) and all(recent) and status().state == "ready"

    if not await _until(is_well):
        raise CommandError(f"the service did not read photos right within {_PATIENCE_S:g} s")
    # In a thread: clients that are blocked meanwhile would count it as latency.
    before, restarts = await asyncio.to_thread(footprints, serving.pid), status().restarts
    broken_s = client.now()
    # One process of the part: beside a GPU plate_recognition has several.
    victim = int(before.groupby("part")["pid"].first()[FAULTS[fault]])
    os.kill(victim, signal.SIGSTOP if fault == FREEZE else signal.SIGKILL)
    counted = await _until(lambda: status().restarts != restarts)
    await _until(is_well)
    row = judge(fault, broken_s, [row for row in client.rows if row["ended_s"] >= broken_s])
    if not counted:
        row["problems"].append("not counted as a restart")
    after = await asyncio.to_thread(footprints, serving.pid)
    parts = [sorted(found["part"]) for found in (before, after)]
    if parts[0] != parts[1]:
        row["problems"].append(f"processes before: {parts[0]}, after: {parts[1]}")
    return row


async def _until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while not (holds := condition()) and time.monotonic() < deadline:
        await asyncio.sleep(_POLL_S)
    return holds


def judge(fault: str, broken_s: float, rows: Rows) -> dict[str, Any]:
    """Summarise the answers since a fault at `broken_s`, on the clock of `load.Load`'s rows."""
    counts = Counter(row["status"] for row in rows)
    in_flight = [row for row in rows if row["intended_s"] <= broken_s + _POLL_S]
    allowed = {0, OK, 429, 503} | ({504} if fault == FREEZE else set())
    refused = [row for row in rows if row["status"] in (429, 503)]
    found = {
        f"other statuses than {sorted(allowed)}": set(counts) - allowed,
        "refusals without Retry-After": not all(row["retry_after"] for row in refused),
        "photos lost": counts[0] > (len(in_flight) if FAULTS[fault] == "gateway" else 0),
        "wrong readings": any(row["status"] == OK and not row["right"] for row in rows),
    }
    bad = [row["ended_s"] for row in rows if not row["right"] and row["status"] != 429]
    good = [row["ended_s"] for row in rows if row["right"] and row["intended_s"] >= broken_s]
    last_bad = max(bad, default=broken_s)
    # Up to the first right answer after the last bad one; infinite if there is none.
    healed_s = min((end for end in good if end > last_bad), default=math.inf) - broken_s
    longest_s = max((row["ended_s"] - row["intended_s"] for row in rows), default=0.0)
    return {
        "fault": fault,
        "healed s": round(healed_s, 1),
        "late s": round(max(0.0, longest_s - DEADLINE_S), 1),
        **{str(status): counts[status] for status in (OK, 429, 503, 504)},
        "lost": counts[0],
        "problems": [what for what, came in found.items() if came],
    }
