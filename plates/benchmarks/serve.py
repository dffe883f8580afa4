"""How fast the service answers, what it costs, and what is lost on the way to it.

First photos are read in process and over HTTP in turns: one process with all threads, HTTP
one at a time, as many processes as cores with one thread each, HTTP at concurrency 4. Then
come closed loops (so many photos under way) and open loops (at shares of the most that came
of it), both through the gateway and over gRPC straight to Triton, and closed loops of photos
whose canvases differ. Everything but the mixed loads is the same 1920x1080 JPEG with two plates.

Of a service that runs already (--url), memory, CPU times and in process come with --pid, which
says that it runs on this machine; gRPC and Triton's counts come with --triton.

Latencies count from when a photo was to be sent. CPU times are those of the service's
processes and of the load generator, which shares their cores.

Floors: ready within 10 s; at most 700 MB; HTTP's p50 is longer than in process by at most
1.5 times what the JPEG takes to decode; at concurrency 4, HTTP reads at least 0.75 of the
photos that can be read in process; photos in flight together share executions of yolo;
threads x instances of no graph exceed the cores; every photo is read.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace

from plate_models.cores import usable_cores
from plates.benchmarks import report
from plates.benchmarks.footprint import footprints
from plates.benchmarks.machine import describe_machine
from plates.benchmarks.measuring_process import MeasuringProcess
from plates.benchmarks.serve_load import GRPC, HTTP, Order, Stretch, models_of, offer, photos_for
from plates.benchmarks.serve_pairing import Round, measure_rounds
from plates.benchmarks.serve_report import draw_serve, print_bench
from plates.benchmarks.serve_result import ServeBench
from plates.benchmarks.service import Service, add_service, service
from plates.cli import CommandError

CONCURRENCIES = (1, 2, 4, 8, 16)
SHARES = (0.25, 0.5, 0.75, 0.9)
_SETTLE_S = 1.0
_LONGEST_S = 600.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_service(parser)
    parser.add_argument(
        "--triton",
        metavar="HOST:PORT",
        help="with --url: gRPC of the Triton behind it, to be measured as well",
    )
    report.add_outputs(parser, "serve")
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="N",
        default=5.0,
        help="for each load, and for each turn of a round (default: 5)",
    )
    parser.add_argument(
        "--rounds",
        type=_count,
        metavar="N",
        default=4,
        help="of in process and HTTP in turns (default: 4)",
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"expected more than 0, up to {_LONGEST_S:g}, got {text}")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {text}")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and draw.

    Returns:
        0 if every floor holds, else 1.

    Raises:
        CommandError: The service is not there, or reads no photos.
    """
    report.make_folders(arguments)
    if arguments.triton and not arguments.url:
        raise CommandError("--triton goes with --url; without it the service is our own")
    with service(arguments.url, arguments.pid) as found:
        serving = replace(found, triton=found.triton or arguments.triton)
        try:
            measured = _measure(serving, arguments.seconds, arguments.rounds)
        except BrokenProcessPool as error:
            raise CommandError("a measuring process ended; see above") from error
    print_bench(measured)
    status = report.print_verdicts(measured.verdicts())
    draw_serve(measured, arguments.plot)
    print(f"\nDrawn in {arguments.plot}")
    if arguments.json:
        report.write_json(arguments.json, asdict(measured))
    return status


def _measure(serving: Service, seconds: float, rounds: int) -> ServeBench:
    cores = usable_cores()
    with MeasuringProcess({}) as load:
        photos = load.call(photos_for, False)
        models = load.call(models_of, serving.triton) if serving.triton else []
        paired: list[Round] = []
        if serving.pid:  # elsewhere, other cores would be compared with these
            paired = measure_rounds(serving, load, photos[0], rounds, seconds, cores)
            _say(f"{rounds} rounds in process and over HTTP: done")
        stretches: list[Stretch] = []
        for order in _orders(serving, seconds, stretches):
            stretches.append(_offered(load, order, serving, photos))
    memory = _memory(serving)
    with MeasuringProcess({}) as load:
        photos = load.call(photos_for, True)
        for order in _mixed_orders(serving, seconds):
            stretches.append(_offered(load, order, serving, photos))
    mixed = _memory(serving)
    machine = describe_machine()
    return ServeBench(machine, cores, serving.ready_s, paired, stretches, memory, mixed, models)


def _offered(
    load: MeasuringProcess, order: Order, serving: Service, photos: list[bytes]
) -> Stretch:
    stretch = load.call(offer, order, serving, photos)
    _say(f"{order.way} {order.concurrency or format(order.rate, '.1f')}: done")
    return stretch


def _orders(serving: Service, seconds: float, done: list[Stretch]) -> Iterator[Order]:
    """What is offered of one photo; open loops go by the closed ones before them."""
    ways = _ways(serving)
    for concurrency in CONCURRENCIES:
        for way in ways:
            yield Order(way, seconds, concurrency)
    most = {way: max(s.summary.goodput for s in done if s.order.way == way) for way in ways}
    for share in SHARES:
        for way in ways:
            yield Order(way, seconds, rate=max(share * most[way], 1 / seconds))


def _mixed_orders(serving: Service, seconds: float) -> Iterator[Order]:
    """What is offered of photos for all canvases."""
    for concurrency in CONCURRENCIES:
        for way in _ways(serving):
            yield Order(way, seconds, concurrency, mixed=True)


def _ways(serving: Service) -> tuple[str, ...]:
    return (HTTP, GRPC) if serving.triton else (HTTP,)


def _memory(serving: Service) -> dict[str, float]:
    time.sleep(_SETTLE_S)  # until the measuring process shares no memory any more
    found: dict[str, float] = {}
    for one in footprints(serving.pid, with_pss=True) if serving.pid else ():
        found[one.part] = found.get(one.part, 0.0) + (one.pss_bytes or 0) / 1e6
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
