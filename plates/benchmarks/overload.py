"""Offer the service more than it can do, and see what it makes of it.

First its capacity is measured in a closed loop, then requests come at given multiples of
it, whatever becomes of them (an open loop, Poisson arrivals, latency from the moment at
which each was to be sent), and at last the lowest rate again, at once after the highest.

Floors: goodput at the highest rate is at least 90 % of the peak; the p99 of accepted
requests lies within the deadline; no 5xx; back to normal within 5 s.
"""

import argparse
import asyncio
from dataclasses import asdict
from pathlib import Path

from plates.benchmarks import report
from plates.benchmarks.http1 import build_request
from plates.benchmarks.load import Generator
from plates.benchmarks.overload_plot import draw_overload
from plates.benchmarks.service import Service, add_service, service
from plates.benchmarks.sweep import Overload, Plan, measure_capacity, print_phases, sweep
from plates.benchmarks.traffic import sample_photos
from plates.cli import CommandError

FACTORS = (0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0)
_NUMBERS: tuple[tuple[str, float | int, str], ...] = (
    ("--seconds", 10.0, "for each rate in each round"),
    ("--rounds", 3, "of all rates, in turns"),
    ("--deadline", 2.0, "seconds, in X-Request-Timeout"),
    ("--recovery-seconds", 15.0, "of the lowest rate, after the highest"),
    ("--concurrency", 4, "of the closed loop"),
    ("--seed", 0, "of the arrivals"),
)
# How much longer than the deadline an answer is waited for, to see how late it is.
_PATIENCE_S = 3.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_service(parser)
    report.add_outputs(parser, "overload")
    for name, default, purpose in _NUMBERS:
        parser.add_argument(
            name,
            type=type(default),
            metavar="N",
            default=default,
            help=f"{purpose} (default: {default:g})",
        )
    parser.add_argument(
        "--factors",
        type=float,
        nargs="+",
        metavar="F",
        default=FACTORS,
        help=f"rates in multiples of the capacity (default: {_words(FACTORS)})",
    )
    parser.add_argument(
        "--capacity",
        type=float,
        metavar="N",
        help="photos per second (default: measured in a closed loop)",
    )
    parser.add_argument(
        "--photo",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="sent in turn (default: the rendered scenes of tests/samples)",
    )


def _words(factors: tuple[float, ...]) -> str:
    return " ".join(f"{factor:g}" for factor in factors)


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and draw.

    Returns:
        0 if every floor holds, else 1.

    Raises:
        CommandError: The service or a photo is not there.
    """
    report.make_folders(arguments)
    photos = _photos(arguments.photo)
    with service(arguments.url, arguments.pid) as serving:
        found = asyncio.run(_measure(serving, photos, arguments))
    print(f"\n{found.machine}")
    print(f"Capacity {found.capacity:.1f} photos/s; deadline {found.deadline_s:g} s\n")
    print_phases(found.phases)
    status = report.print_verdicts(found.verdicts())
    draw_overload(found, arguments.plot)
    print(f"\nDrawn in {arguments.plot}")
    if arguments.json:
        report.write_json(arguments.json, asdict(found))
    return status


async def _measure(serving: Service, photos: list[bytes], options: argparse.Namespace) -> Overload:
    headers = {"Content-Type": "image/jpeg", "X-Request-Timeout": f"{options.deadline:g}"}
    requests = [
        build_request(serving.target, "POST", "/v1/plates", photo, headers) for photo in photos
    ]
    generator = Generator(serving.target, requests, options.deadline + _PATIENCE_S)
    capacity = options.capacity or await measure_capacity(
        generator, options.concurrency, options.seconds, options.deadline
    )
    plan = Plan(
        sorted(options.factors),
        options.seconds,
        options.rounds,
        options.recovery_seconds,
        options.deadline,
        options.seed,
    )
    return await sweep(generator, serving.pid, capacity, plan)


def _photos(paths: list[Path] | None) -> list[bytes]:
    try:
        return [path.read_bytes() for path in paths] if paths else sample_photos()
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
