"""How fast the service answers, and what a photo costs.

Photos are posted in closed loops, so many at once; all are the same 1920x1080 JPEG with two
plates unless --photo names another. Memory (PSS, in which shared pages count once) is
measured after the loads, when the load client's process has ended. CPU times are those of the
service's processes per photo, and of the client, which shares their cores. Of a service that
runs already (--url) they come with --pid, which says that it runs on this machine.

On request another service, or the published pipeline's shape, is measured in turns with it.

Floors: ready within 10 s; at most 700 MB; every photo is read.
"""

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from plates.benchmarks import report
from plates.benchmarks.compare import TIMEOUT_S, compare
from plates.benchmarks.load import OK, post_for, process_of_its_own, summarise
from plates.benchmarks.photos import photo_or_standard
from plates.benchmarks.report import Verdict
from plates.benchmarks.service import Service, add_service, cpu_by_part, footprints, service
from plates.cli import CommandError

CONCURRENCIES = (1, 2, 4, 8, 16)
READY_S = 10.0
MEMORY_MB = 700.0
_WARM_UP_S = 1.0
_SHOWN = ("at once", "goodput/s", "p50 ms", "p95 ms", "p99 ms", "requests", "client CPU ms")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_service(parser)
    report.add_outputs(parser, "serve")
    report.add_number(parser, "--seconds", 5.0, "of each load")
    report.add_number(parser, "--rounds", 4, "of turns with what is compared", least=1)
    parser.add_argument("--photo", type=Path, metavar="FILE", help="default: the standard photo")
    parser.add_argument(
        "--published",
        type=Path,
        metavar="DIR",
        help="also measure the published pipeline's shape; DIR holds stn.pt and lprnet.pt",
    )
    parser.add_argument("--beside", metavar="http://HOST:PORT", help="also measure this service")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and draw; 0 if every floor holds, else 1."""
    report.make_folders(arguments)
    if arguments.published and not (arguments.published / "lprnet.pt").is_file():
        raise CommandError(f"{arguments.published}: expected stn.pt and lprnet.pt in it")
    with contextlib.ExitStack() as stack:
        if arguments.beside:
            stack.enter_context(service(arguments.beside))
        serving = stack.enter_context(service(arguments.url, arguments.pid))
        with process_of_its_own() as client:
            photo = client.submit(photo_or_standard, arguments.photo).result()
            rows = list(_loads(client, serving, photo, arguments.seconds))
        memory = _memory_by_part(serving)
        comparisons = []
        for other in filter(None, (arguments.published, arguments.beside)):
            with process_of_its_own() as client:
                call = (serving.url, other, photo, arguments.rounds, arguments.seconds)
                comparisons.append(client.submit(compare, *call).result())
    print(f"{report.describe_machine()}\n\nLatency; CPU time per photo, by process")
    report.print_table({name: row[name] for name in _SHOWN} | row["CPU ms"] for row in rows)
    if memory:
        print("\nMemory, PSS in MB")
        report.print_table([{**memory, "together": sum(memory.values())}])
    for comparison in comparisons:
        print("\nIn turns, one photo at a time")
        report.print_table(comparison)
    status = report.print_verdicts(verdicts(serving.ready_s, memory, rows))
    figures = {"loads": rows, "pss_mb": memory, "comparisons": comparisons}
    report.write(arguments, {"ready_s": serving.ready_s, **figures}, lambda f: _plot(f, rows))
    return status


def _loads(
    client: ProcessPoolExecutor, serving: Service, photo: bytes, seconds: float
) -> Iterator[dict[str, Any]]:
    for at_once in CONCURRENCIES:
        warm_up_s = min(_WARM_UP_S, seconds)
        client.submit(post_for, serving.url, photo, at_once, warm_up_s, TIMEOUT_S).result()
        before = cpu_by_part(serving.pid)
        load = client.submit(post_for, serving.url, photo, at_once, seconds, TIMEOUT_S).result()
        used = {
            part: cpu_s - before.get(part, 0) for part, cpu_s in cpu_by_part(serving.pid).items()
        }
        row = client.submit(summarise, [load], TIMEOUT_S).result()
        per_photo = {part: round(1000 * s / row["requests"], 1) for part, s in used.items()}
        print(f"{at_once} at once: done", file=sys.stderr, flush=True)
        yield {"at once": at_once, **row, "CPU ms": per_photo}


def _memory_by_part(serving: Service) -> dict[str, int]:
    found: dict[str, int] = Counter()
    for one in footprints(serving.pid):
        found[one.part] += round(one.pss_bytes / 1e6)
    return dict(found)


def verdicts(
    ready_s: float | None, memory: dict[str, int], rows: list[dict[str, Any]]
) -> list[Verdict]:
    """Judge what was measured; a service elsewhere has neither start nor memory."""
    found = []
    if ready_s is not None:
        came, floor = f"{ready_s:.1f} s", f"<= {READY_S:g} s"
        found.append(Verdict("from `plates serve` to ready", came, floor, ready_s <= READY_S))
    if memory:
        came, floor = f"{sum(memory.values())} MB", f"<= {MEMORY_MB:g} MB"
        holds = sum(memory.values()) <= MEMORY_MB
        found.append(Verdict("memory of all processes (PSS)", came, floor, holds))
    sent = sum(row["requests"] for row in rows)
    failed = sent - sum(row["statuses"].get(OK, 0) for row in rows)
    found.append(Verdict("photos that were not read", f"{failed} of {sent}", "0", not failed))
    return found


def _plot(figure: Any, rows: list[dict[str, Any]]) -> None:
    import pandas

    table, (latency, throughput) = pandas.DataFrame(rows), figure.subplots(1, 2)
    percentiles = ["p50 ms", "p95 ms", "p99 ms"]
    table.plot(x="at once", y=percentiles, ax=latency, style="o-", ylabel="ms", grid=True)
    table.plot(x="at once", y="goodput/s", ax=throughput, style="o-", ylim=(0, None), grid=True)
