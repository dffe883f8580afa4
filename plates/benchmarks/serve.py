"""Measure how fast the service answers, and the CPU time and memory that photos cost.

Clients post photos in closed loops, several at a time: the same 1920x1080 JPEG with two plates,
unless --photo names another. The times of the stages are those of the service's /metrics; "rest" is
all between the nets. Memory (PSS, which counts shared pages once) is measured after the loads.
A service that runs already (--url) needs --pid for memory and CPU time.

With --published a pipeline of the published shape is measured in turns with the service, each four
times as long. It squeezes the photo to 1920x1080, runs YOLOv5s at 1280 in eager float32 with random
weights, and reads the service's boxes one by one with the published STN and LPRNet.

Floors: ready within 10 s; at most 650 MB; every photo is read.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from time import perf_counter
from timeit import timeit
from typing import Any

import httpx
import pandas
from prometheus_client.parser import text_string_to_metric_families

from plates.benchmarks.load import OK, STANDARD_PHOTO, LoadClient, Request, summarise
from plates.benchmarks.report import Report, Rows, at_most
from plates.benchmarks.service import Service, add_service, service, total_by_part
from plates.cli import CommandError
from plates.cli.options import add_number

CONCURRENCIES = (1, 2, 4, 8, 16)
READY_S, MEMORY_MB = 10.0, 650.0
_TIMEOUT_S, _WARM_UP_S = 60.0, 1.0
_WARM_UPS, _LEAST_TURNS = 2, 3
_SHOWN = ("goodput/s", "p50 ms", "p95 ms", "p99 ms", "requests", "statuses", "errors")


def configure(parser: argparse.ArgumentParser) -> None:
    add_service(parser)
    add_number(parser, "--seconds", 5.0, "seconds of each load", least=0.01)
    text = "photo to post (default: the standard photo)"
    parser.add_argument("--photo", type=Path, metavar="FILE", default=STANDARD_PHOTO, help=text)
    shape = "also measure a pipeline of the published shape; DIR has stn.pt and lprnet.pt"
    parser.add_argument("--published", type=Path, metavar="DIR", help=shape)


def run(arguments: argparse.Namespace) -> Report:
    published, seconds = arguments.published, arguments.seconds
    if published and not (published / "lprnet.pt").is_file():
        raise CommandError(f"{published}: expected stn.pt and lprnet.pt in it")
    photo = arguments.photo.read_bytes()
    with service(arguments.url, arguments.pid) as serving:
        loads = [asyncio.run(measure(serving, photo, seconds, count)) for count in CONCURRENCIES]
        memory = total_by_part(serving.pid, "pss_bytes") / 1e6
        compared = compare(serving.url, published, photo, 4 * seconds) if published else []
    together = float(memory.sum())
    verdicts = [at_most("photos that were not read", sum(row["not read"] for row in loads), 0)]
    if serving.ready_s is not None:
        verdicts.append(at_most("from `plates serve` to ready", serving.ready_s, READY_S, " s"))
    if together:
        verdicts.append(at_most("memory of all processes (PSS)", together, MEMORY_MB, " MB"))
    held = [{**memory.round(), "together": together}] if together else []
    tables = {"loads": loads, "memory, PSS in MB": held, "comparison": compared}
    return Report(tables, verdicts, {"ready_s": serving.ready_s})


async def measure(serving: Service, photo: bytes, seconds: float, at_once: int) -> dict[str, Any]:
    """Post a photo in a closed loop, after a warm-up; returns a row of the table."""
    client = LoadClient(serving.url, [Request(photo)], _TIMEOUT_S)
    await client.closed_loop(at_once, min(_WARM_UP_S, seconds))
    before = spent_s(serving)
    found = summarise([await client.closed_loop(at_once, seconds)], _TIMEOUT_S)
    spent_ms = 1000 * (spent_s(serving) - before) / found["requests"]
    print(f"{at_once} at once: done", file=sys.stderr, flush=True)
    return {
        "at once": at_once,
        **{name: found[name] for name in _SHOWN},
        "not read": found["requests"] - found["statuses"].get(OK, 0),
        **spent_ms.round(1),
    }


def spent_s(serving: Service) -> "pandas.Series[float]":
    """The total seconds so far, of each stage, and of each part's CPU time."""
    text = httpx.get(f"{serving.url}/metrics", timeout=_TIMEOUT_S, trust_env=False).text
    stages = {
        f"{sample.labels['stage']} ms": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "plates_stage_seconds_sum"
    }
    processors = total_by_part(serving.pid, "cpu_s").add_suffix(" CPU ms")
    return pandas.concat((pandas.Series(stages, dtype=float), processors))


def compare(url: str, published: Path, photo: bytes, seconds: float) -> Rows:
    """Measure a service and the published shape in turns, `seconds` for each; returns two rows."""
    # Let OpenMP's waiting threads spin, as by default: on a machine that does nothing else, it
    # makes the published pipeline a quarter faster. torch reads the variable when it is loaded.
    os.environ.pop("GOMP_SPINCOUNT", None)
    import torch

    from plate_models.cores import usable_cores
    from plate_models.images import decode
    from plate_models.training.figures import median_ratio
    from plate_models.training.published import PublishedShape

    torch.set_num_threads(usable_cores())
    shape = PublishedShape(published)
    with httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False) as client:

        def read_by_service() -> Any:
            headers = {"Content-Type": "image/*"}
            return client.post("/v1/plates", content=photo, headers=headers).json()["plates"]

        boxes = [plate["box"] for plate in read_by_service()]
        readers = read_by_service, lambda: shape.read(decode(photo), boxes)

        # In turns, because a machine's speed drifts by a tenth within minutes.
        turns, end = list[list[float]](), perf_counter() + 2 * seconds
        while len(turns) < _WARM_UPS + _LEAST_TURNS or perf_counter() < end:
            turns.append([1000 * timeit(reader, number=1) for reader in readers])
    times = pandas.DataFrame(turns[_WARM_UPS:], columns=[url, str(published)])
    ratio, (low, high) = median_ratio(*(times[name].tolist() for name in times))
    rows: Rows = [
        {"reader": name, "photos": len(times), "p50 ms": round(p50, 1)}
        for name, p50 in times.median().items()
    ]
    rows[0] |= {"ratio of p50s": round(ratio, 4), "95 %": f"{low:.4f} to {high:.4f}"}
    return rows
