"""How many photos, and so how many cameras, so many cores carry, and in how much memory.

For each number of cores, from one to all that are usable, a service of its own is started that
may run on those alone. It gets photos of several kinds, each in a closed loop with twice as many
at once as it works on, and then at a share of that rate at which cameras would send them, with
arrivals at random. Last come photos as large as the limits allow, while its memory is watched.

At last one service is started for each core, and all of them get the standard photo at once: more
photos for more memory than one service over all cores.

The load generator may run on all cores: with fewer for the service it has one for itself.

Without floors: what is enough is a question of the cameras.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial

from plate_models.cores import photos_at_once, usable_cores
from plates.benchmarks import report
from plates.benchmarks.footprint import cpu_by_part, footprints
from plates.benchmarks.load import Load, arrivals
from plates.benchmarks.machine import describe_machine
from plates.benchmarks.photos import photo_with, standard_photo
from plates.benchmarks.serve_load import TIMEOUT_S, http_generator
from plates.benchmarks.service import Service, service
from plates.benchmarks.sizing_report import Carried, Sized, Spread, draw_sizing, print_sizing
from plates.benchmarks.summary import OK, Summary, summarise

# Of the most photos per second: what a service should be given to do, day by day.
SHARE = 0.7
_WATCH_EVERY_S = 0.1
_BLUR_PX = 30
# Just below what a service accepts: 64 million pixels.
_LARGEST_WH = (10_640, 5_985)
_KINDS: dict[str, Callable[[], bytes]] = {
    "gate, 2 MP, 2 plates": standard_photo,
    "blurred, 2 MP, no plate": lambda: _empty_photo(),
    "small, 1 MP, 1 plate": partial(photo_with, 1, 1.0),
    "large, 8 MP, 4 plates": partial(photo_with, 4, 8.0),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    report.add_outputs(parser, "sizing")
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        default=8.0,
        help="for each of the two loads of a kind of photo (default: 8)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and draw.

    Returns:
        0.

    Raises:
        CommandError: The service does not get ready.
    """
    report.make_folders(arguments)
    photos = {kind: make() for kind, make in _KINDS.items()}
    cores = sorted(os.sched_getaffinity(0))[: usable_cores()]
    sizes = []
    for count in range(1, len(cores) + 1):
        with contextlib.ExitStack() as running:
            serving = _start(running, set(cores[:count]))
            sizes.append(_measure(serving, count, photos, arguments.seconds))
    spread = _spread(cores, standard_photo(), arguments.seconds)
    machine = describe_machine()
    print(f"\n{machine}")
    print_sizing(sizes, spread)
    draw_sizing(sizes, machine, arguments.plot)
    print(f"\nDrawn in {arguments.plot}")
    if arguments.json:
        report.write_json(
            arguments.json,
            {"machine": machine, "sizes": list(map(asdict, sizes)), "spread": asdict(spread)},
        )
    return 0


def _start(running: contextlib.ExitStack, cores: set[int]) -> Service:
    """Start a service that may run on these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return running.enter_context(service(None))
    finally:
        os.sched_setaffinity(0, before)


def _spread(cores: list[int], photo: bytes, seconds: float) -> Spread:
    with contextlib.ExitStack() as running:
        services = [_start(running, {core}) for core in cores]
        generators = [http_generator(serving, [photo]) for serving in services]

        async def offer(seconds: float) -> list[Load]:
            at_once = 2 * photos_at_once(1)
            return await asyncio.gather(*(g.closed_loop(at_once, seconds) for g in generators))

        asyncio.run(offer(seconds / 4))  # unmeasured: it warms up
        found = [_summary(load) for load in asyncio.run(offer(seconds))]
        return Spread(
            sum(one.goodput for one in found),
            max(one.p50_s or 0.0 for one in found),
            sum(map(_pss_mb, services)),
        )


def _measure(serving: Service, cores: int, photos: dict[str, bytes], seconds: float) -> Sized:
    ready_mb = _pss_mb(serving)
    at_once = 2 * photos_at_once(cores)
    carried = []
    for kind, photo in photos.items():
        carried.append(_carry(serving, kind, photo, at_once, seconds))
        print(f"{cores} cores, {kind}: done", file=sys.stderr, flush=True)
    loaded_mb = _pss_mb(serving)
    largest = http_generator(serving, [_largest_photo()])
    with _watching(serving) as seen:
        load = asyncio.run(largest.closed_loop(photos_at_once(cores), seconds))
    rate = summarise([load], TIMEOUT_S).goodput
    return Sized(cores, ready_mb, loaded_mb, max(seen), rate, carried)


def _carry(serving: Service, kind: str, photo: bytes, at_once: int, seconds: float) -> Carried:
    generator = http_generator(serving, [photo])
    asyncio.run(generator.closed_loop(at_once, seconds / 4))  # unmeasured: it warms up
    before = cpu_by_part(serving.pid)
    most = _summary(asyncio.run(generator.closed_loop(at_once, seconds)))
    used_s = sum(cpu_by_part(serving.pid).values()) - sum(before.values())
    paced = asyncio.run(generator.open_loop(arrivals(SHARE * most.goodput, seconds, seed=0)))
    return Carried(kind, most, _summary(paced), 1000 * used_s / max(most.statuses.get(OK, 0), 1))


def _summary(load: Load) -> Summary:
    return summarise([load], TIMEOUT_S)


def _empty_photo() -> bytes:
    """The standard photo so far out of focus that nothing on it looks like a plate, as JPEG."""
    import cv2
    import numpy as np

    photo = cv2.imdecode(np.frombuffer(standard_photo(), np.uint8), cv2.IMREAD_COLOR)
    return bytes(cv2.imencode(".jpg", cv2.GaussianBlur(photo, (0, 0), _BLUR_PX))[1])


def _largest_photo() -> bytes:
    """The standard photo enlarged to the limit, as JPEG."""
    import cv2
    import numpy as np

    photo = cv2.imdecode(np.frombuffer(standard_photo(), np.uint8), cv2.IMREAD_COLOR)
    return bytes(cv2.imencode(".jpg", cv2.resize(photo, _LARGEST_WH))[1])


def _pss_mb(serving: Service) -> float:
    found = footprints(serving.pid, with_pss=True) if serving.pid else []
    return sum(one.pss_bytes or 0 for one in found) / 1e6


@contextlib.contextmanager
def _watching(serving: Service) -> Iterator[list[float]]:
    """Note the memory of all processes, in MB, again and again."""
    seen = [_pss_mb(serving)]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_WATCH_EVERY_S):
            seen.append(_pss_mb(serving))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
