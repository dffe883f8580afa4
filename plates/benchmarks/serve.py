"""How fast the service answers, and what a photo costs.

Photos are posted in closed loops, so many at once; all are the same 1920x1080 JPEG with two
plates unless --photo names another. Memory (PSS, in which shared pages count once) is
measured after the loads. Of a service that runs already (--url) it comes with --pid.

On request another service, or the published pipeline's shape, is measured in turns with it: that
squeezes the photo to 1920x1080, runs YOLOv5s at 1280 in eager float32 with random weights, and
reads the service's boxes one by one with the published STN and LPRNet.

Floors: ready within 10 s; at most 700 MB; every photo is read.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from plates.benchmarks.load import OK, LoadClient, Request, add_photo, summarise
from plates.benchmarks.report import Report, Rows, Verdict, at_most
from plates.benchmarks.service import add_service, service, total_by_part
from plates.cli import CommandError
from plates.cli.options import add_number

CONCURRENCIES = (1, 2, 4, 8, 16)
READY_S, MEMORY_MB = 10.0, 700.0
_TIMEOUT_S, _WARM_UP_S, _WARM_UPS = 60.0, 1.0, 3
_SHOWN = ("at once", "goodput/s", "p50 ms", "p95 ms", "p99 ms", "requests", "client CPU ms")
Reader = Callable[[], Any]


def configure(parser: argparse.ArgumentParser) -> None:
    add_service(parser)
    add_number(parser, "--seconds", 5.0, "of each load", least=0.01)
    add_number(parser, "--rounds", 4, "times --seconds for each that is compared", least=1)
    add_photo(parser)
    shape = "also measure the published pipeline's shape; DIR holds stn.pt and lprnet.pt"
    parser.add_argument("--published", type=Path, metavar="DIR", help=shape)
    parser.add_argument("--beside", metavar="http://HOST:PORT", help="also measure this service")


def run(arguments: argparse.Namespace) -> Report:
    if arguments.published and not (arguments.published / "lprnet.pt").is_file():
        raise CommandError(f"{arguments.published}: expected stn.pt and lprnet.pt in it")
    photo = arguments.photo.read_bytes()
    beside = service(arguments.beside) if arguments.beside else contextlib.nullcontext()
    with beside, service(arguments.url, arguments.pid) as serving:
        load = (serving.url, serving.pid, photo, arguments.seconds)
        rows = [_apart(measure, *load, at_once) for at_once in CONCURRENCIES]
        held = total_by_part(serving.pid, "pss_bytes")
        memory = {part: round(count / 1e6) for part, count in held.items()}
        others = filter(None, (arguments.published, arguments.beside))
        turns = (photo, arguments.rounds * arguments.seconds)
        comparisons = [_apart(compare, serving.url, other, *turns) for other in others]
    loads = [{name: row[name] for name in _SHOWN} | row["CPU ms"] for row in rows]
    tables = {"Latency; milliseconds of CPU time per photo, by process": loads}
    if memory:
        tables["Memory, PSS in MB"] = [{**memory, "together": sum(memory.values())}]
    for comparison in comparisons:
        tables[f"In turns with {comparison[1]['reader']}, one photo at a time"] = comparison
    style = {"x": "at once", "style": "o-", "ylim": (0, None)}
    latency = (rows, {**style, "y": ["p50 ms", "p95 ms", "p99 ms"], "ylabel": "ms"})
    throughput = (rows, {**style, "y": "goodput/s", "ylabel": "photos/s"})
    figures = {"loads": rows, "pss_mb": memory, "comparisons": comparisons}
    found = verdicts(serving.ready_s, memory, rows)
    return Report(tables, found, {"ready_s": serving.ready_s, **figures}, [latency, throughput])


def _apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it in a process of its own, which shares no memory with the service."""
    ignore_ctrl_c = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(1, get_context("spawn"), signal.signal, ignore_ctrl_c) as process:
        return process.submit(function, *arguments).result()


def measure(url: str, pid: int | None, photo: bytes, seconds: float, at_once: int) -> Any:
    """Post a photo in a closed loop, after a warm-up: a row of the table."""
    client = LoadClient(url, [Request(photo)], _TIMEOUT_S)
    asyncio.run(client.closed_loop(at_once, min(_WARM_UP_S, seconds)))
    before = total_by_part(pid, "cpu_s")
    row = summarise([asyncio.run(client.closed_loop(at_once, seconds))], _TIMEOUT_S)
    used = {part: spent - before[part] for part, spent in total_by_part(pid, "cpu_s").items()}
    per_photo = {part: round(1000 * spent / row["requests"], 1) for part, spent in used.items()}
    print(f"{at_once} at once: done", file=sys.stderr, flush=True)
    return {"at once": at_once, **row, "CPU ms": per_photo}


def compare(url: str, other: str | Path, photo: bytes, seconds: float) -> Rows:
    """Measure a service and another reader of a photo in turns, `seconds` for each: two rows."""
    from plate_models.training.figures import median_ratio

    times: tuple[list[float], list[float]] = ([], [])
    options: Any = {"trust_env": False, "headers": {"Content-Type": "image/jpeg"}}
    with httpx.Client(timeout=_TIMEOUT_S, **options) as client:
        ours = _service(client, url, photo)
        if isinstance(other, Path):
            readers = (ours, _published(other, ours(), photo))
        else:
            readers = (ours, _service(client, other, photo))
        for read in readers * _WARM_UPS:
            read()
        end = time.perf_counter() + 2 * seconds
        while not times[0] or time.perf_counter() < end:
            # Every second time backwards: both find the caches that the other left.
            for index in (0, 1) if len(times[0]) % 2 else (1, 0):
                began = time.perf_counter()
                readers[index]()
                times[index].append(time.perf_counter() - began)
    ratio, (low, high) = median_ratio(*times)
    compared = {"ratio of p50s": round(ratio, 4), "95 %": f"{low:.4f} to {high:.4f}"}
    return [
        {"reader": str(name), "photos": len(took), "p50 ms": round(1000 * median(took), 1), **more}
        for name, took, more in ((url, times[0], compared), (other, times[1], {}))
    ]


def _service(client: httpx.Client, url: str, photo: bytes) -> Reader:
    def read() -> Any:
        try:
            answer = client.post(f"{url}/v1/plates", content=photo).raise_for_status()
        except httpx.HTTPError as error:
            raise CommandError(f"{url} does not read the photo: {error}") from error
        return answer.json()["plates"]

    return read


def _published(folder: Path, plates: Rows, photo: bytes) -> Reader:
    # OpenMP's threads spin by default: on a machine that does nothing else, the published
    # pipeline is a quarter faster so.
    os.environ.pop("GOMP_SPINCOUNT", None)
    import torch

    from plate_models.cores import usable_cores
    from plate_models.images import decode
    from plate_models.training.published import PublishedShape

    torch.set_num_threads(usable_cores())
    shape, boxes = PublishedShape(folder), [plate["box"] for plate in plates]
    return lambda: shape.read(decode(photo), boxes)


def verdicts(ready_s: float | None, memory: dict[str, int], rows: Rows) -> list[Verdict]:
    """Judge what was measured; a service elsewhere has neither start nor memory."""
    sent = sum(row["requests"] for row in rows)
    failed = sent - sum(row["statuses"].get(OK, 0) for row in rows)
    found = [Verdict("photos that were not read", f"{failed} of {sent}", "0", not failed)]
    if ready_s is not None:
        found.append(at_most("from `plates serve` to ready", ready_s, READY_S, " s"))
    if held := sum(memory.values()):
        found.append(at_most("memory of all processes (PSS)", held, MEMORY_MB, " MB"))
    return found
