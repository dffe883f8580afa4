"""How fast the service answers, and what a photo costs.

Photos are posted in closed loops, so many at once; all are the same 1920x1080 JPEG with two
plates unless --photo names another. Memory (PSS, in which shared pages count once) is
measured after the loads. Of a service that runs already (--url) it comes with --pid.

On request the published pipeline's shape is measured in turns with it, four times as long each:
that squeezes the photo to 1920x1080, runs YOLOv5s at 1280 in eager float32 with random weights, and
reads the service's boxes one by one with the published STN and LPRNet.

Floors: ready within 10 s; at most 700 MB; every photo is read.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from plates.benchmarks.load import OK, STANDARD_PHOTO, LoadClient, Request, summarise
from plates.benchmarks.report import Report, Rows, Verdict, at_most
from plates.benchmarks.service import Service, add_service, service, total_by_part
from plates.cli import CommandError
from plates.cli.options import add_number

CONCURRENCIES = (1, 2, 4, 8, 16)
READY_S, MEMORY_MB = 10.0, 700.0
_TIMEOUT_S, _WARM_UP_S, _WARM_UPS = 60.0, 1.0, 3
_SHOWN = ("at once", "goodput/s", "p50 ms", "p95 ms", "p99 ms", "requests")


def configure(parser: argparse.ArgumentParser) -> None:
    add_service(parser)
    add_number(parser, "--seconds", 5.0, "of each load", least=0.01)
    text = "default: the standard photo"
    parser.add_argument("--photo", type=Path, metavar="FILE", default=STANDARD_PHOTO, help=text)
    shape = "also measure the published pipeline's shape; DIR holds stn.pt and lprnet.pt"
    parser.add_argument("--published", type=Path, metavar="DIR", help=shape)


def run(arguments: argparse.Namespace) -> Report:
    published, seconds = arguments.published, arguments.seconds
    if published and not (published / "lprnet.pt").is_file():
        raise CommandError(f"{published}: expected stn.pt and lprnet.pt in it")
    photo = arguments.photo.read_bytes()
    with service(arguments.url, arguments.pid) as serving:
        rows = [asyncio.run(measure(serving, photo, seconds, count)) for count in CONCURRENCIES]
        held = total_by_part(serving.pid, "pss_bytes")
        memory = {part: round(count / 1e6) for part, count in held.items()}
        compared = compare(serving.url, published, photo, 4 * seconds) if published else []
    loads = [{name: row[name] for name in _SHOWN} | row["CPU ms"] for row in rows]
    tables = {
        "Latency; milliseconds of CPU time per photo, by process": loads,
        "Memory, PSS in MB": [{**memory, "together": sum(memory.values())}] if memory else [],
        "In turns with the published pipeline's shape, one photo at a time": compared,
    }
    figures = {"loads": rows, "pss_mb": memory, "comparison": compared}
    shown = {heading: table for heading, table in tables.items() if table}
    found = verdicts(serving.ready_s, memory, rows)
    return Report(shown, found, {"ready_s": serving.ready_s, **figures})


async def measure(serving: Service, photo: bytes, seconds: float, at_once: int) -> dict[str, Any]:
    """Post a photo in a closed loop, after a warm-up: a row of the table."""
    client = LoadClient(serving.url, [Request(photo)], _TIMEOUT_S)
    await client.closed_loop(at_once, min(_WARM_UP_S, seconds))
    before = total_by_part(serving.pid, "cpu_s")
    row = summarise([await client.closed_loop(at_once, seconds)], _TIMEOUT_S)
    used = total_by_part(serving.pid, "cpu_s") - before
    print(f"{at_once} at once: done", file=sys.stderr, flush=True)
    per_photo = (1000 * used / row["requests"]).round(1).to_dict()
    return {"at once": at_once, **row, "CPU ms": per_photo}


def compare(url: str, published: Path, photo: bytes, seconds: float) -> Rows:
    """Measure a service and the published shape in turns, `seconds` for each: two rows."""
    # OpenMP's threads spin by default: on a machine that does nothing else, the published
    # pipeline is a quarter faster so. Read when torch is loaded.
    os.environ.pop("GOMP_SPINCOUNT", None)
    import torch

    from plate_models.cores import usable_cores
    from plate_models.images import decode
    from plate_models.training.figures import median_ratio
    from plate_models.training.published import PublishedShape

    torch.set_num_threads(usable_cores())
    shape = PublishedShape(published)
    options: Any = {"trust_env": False, "headers": {"Content-Type": "image/jpeg"}}
    with httpx.Client(base_url=url, timeout=_TIMEOUT_S, **options) as client:

        def read() -> Rows:
            try:
                answer = client.post("/v1/plates", content=photo).raise_for_status()
            except httpx.HTTPError as error:
                raise CommandError(f"{url} does not read the photo: {error}") from error
            plates: Rows = answer.json()["plates"]
            return plates

        boxes = [plate["box"] for plate in read()]
        readers = (read, lambda: shape.read(decode(photo), boxes))
        times: tuple[list[float], list[float]] = ([], [])
        for reader in readers * _WARM_UPS:
            reader()
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
        for name, took, more in ((url, times[0], compared), (published, times[1], {}))
    ]


def verdicts(ready_s: float | None, memory: dict[str, int], rows: Rows) -> list[Verdict]:
    """Judge what was measured; a service elsewhere has neither start nor memory."""
    sent = sum(row["requests"] for row in rows)
    failed = sent - sum(row["statuses"].get(OK, 0) for row in rows)
    found = [Verdict("photos that were not read", f"{failed} of {sent}", "0", not failed)]
    if ready_s is not None:
        found.append(at_most("from `plates serve` to ready", ready_s, READY_S, " s"))
    if memory:
        found.append(
            at_most("memory of all processes (PSS)", sum(memory.values()), MEMORY_MB, " MB")
        )
    return found
