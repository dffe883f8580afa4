"""A service beside another one, or beside the published pipeline's shape, in turns.

A machine drifts within minutes by more than two versions differ, so photo by photo one reads
it and then the other. The published shape squeezes the photo to 1920x1080, runs YOLOv5s at
1280 in eager float32 with random weights, and reads crops one by one with the published STN
and LPRNet; as its detector finds nothing, it is given the service's boxes.
"""

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from plates.benchmarks.load import post_for, summarise
from plates.cli import CommandError

BUSY = 4  # photos at once where throughput is compared
TIMEOUT_S = 60.0
_WARM_UPS = 3

# Reads the photo once; photos per second with ``BUSY`` at once, for so many seconds.
Reader = tuple[Callable[[], object], Callable[[float], float]]


def compare(
    url: str, other: str | Path, photo: bytes, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """Measure two readers of a photo in turns. Run it in a process of its own.

    Args:
        url: http://host:port of the service.
        other: Another service, or the folder with the published recognizer.
        photo: A file's bytes.
        rounds: Of photos one at a time, then ``BUSY`` at once.
        seconds: For each of the two in each round.

    Returns:
        A row of a table for each; the first one has the ratio of the p50s, the service's over
        the other's, with its 95 % interval.

    Raises:
        CommandError: A service does not read the photo.
    """
    from plate_models.training.figures import median_ratio

    times: list[list[float]] = [[], []]
    rates: list[list[float]] = [[], []]
    with httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client:
        readers = [_service(client, url, photo)]
        if isinstance(other, Path):
            boxes = [plate["box"] for plate in _post(client, url, photo)["plates"]]
            readers.append(_published(other, photo, boxes))
        else:
            readers.append(_service(client, other, photo))
        for read, _ in readers * _WARM_UPS:
            read()
        for _ in range(rounds):
            end = time.perf_counter() + 2 * seconds
            while not times[0] or time.perf_counter() < end:
                # Every second time backwards: both find the caches that the other left.
                for index in (0, 1) if len(times[0]) % 2 else (1, 0):
                    began = time.perf_counter()
                    readers[index][0]()
                    times[index].append(time.perf_counter() - began)
            for (_, rate), found in zip(readers, rates, strict=True):
                found.append(rate(seconds))
    rows: list[dict[str, Any]] = [
        {
            "reader": str(name),
            "photos": len(took),
            "p50 ms": round(1000 * statistics.median(took), 1),
            f"photos/s, {BUSY} at once": round(statistics.median(rate), 1),
        }
        for name, took, rate in zip((url, other), times, rates, strict=True)
    ]
    ratio, (low, high) = median_ratio(times[0], times[1])
    rows[0] |= {"ratio of p50s": round(ratio, 4), "95 %": f"{low:.4f} to {high:.4f}"}
    return rows


def _service(client: httpx.Client, url: str, photo: bytes) -> Reader:
    def rate(seconds: float) -> float:
        load = post_for(url, photo, BUSY, seconds, TIMEOUT_S)
        return float(summarise([load], TIMEOUT_S)["goodput/s"])

    return lambda: _post(client, url, photo), rate


def _post(client: httpx.Client, url: str, photo: bytes) -> Any:
    try:
        headers = {"Content-Type": "image/jpeg"}
        answer = client.post(f"{url}/v1/plates", content=photo, headers=headers)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise CommandError(f"{url} does not read the photo: {error}") from error
    return answer.json()


def _published(folder: Path, photo: bytes, boxes: list[Any]) -> Reader:
    # OpenMP's threads spin by default: on a machine that does nothing else, the published
    # pipeline is a quarter faster so.
    os.environ.pop("GOMP_SPINCOUNT", None)
    import torch

    from plate_models.cores import usable_cores
    from plate_models.images import decode
    from plate_models.training.baseline import Baseline, PublishedShape

    torch.set_num_threads(usable_cores())
    shape = PublishedShape(Baseline(folder))

    def read() -> object:
        return shape.read(decode(photo), boxes)

    def rate(seconds: float) -> float:
        began = time.perf_counter()

        def read_on(_: int) -> int:
            count = 0
            while not count or time.perf_counter() - began < seconds:
                read()
                count += 1
            return count

        with ThreadPoolExecutor(BUSY) as threads:
            count = sum(threads.map(read_on, range(BUSY)))
        return count / (time.perf_counter() - began)

    return read, rate
