"""A mixed load for a long time: does anything grow?

Good photos of several sizes, photos without plates, hostile and mutated files, malformed
forms, senders that leave half-way or before the answer, other services' clients, polls of
/metrics and /readyz: at a moderate rate, chosen by the seed. Every few seconds the memory,
the open files and the shared memory of all processes of the service are measured.

First every request is sent once, and the largest several at a time, so that pools are as
large as they will ever be.

Floors, after the first quarter of the time: the service's resident memory, its shared memory
and its open files do not grow; that is, the 95 % interval of their trend reaches down to zero,
or lies below 1 % of their level per hour. No answer that is not expected, and no process that
ends or starts.
"""

import argparse
import asyncio
from dataclasses import asdict
from typing import Any

from plates.benchmarks import report
from plates.benchmarks.machine import describe_machine
from plates.benchmarks.service import add_service, service
from plates.benchmarks.soak_report import draw_soak, print_answers, print_memory
from plates.benchmarks.soaking import Soak, soak
from plates.cli import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_service(parser)
    report.add_outputs(parser, "soak")
    for name, default, purpose in (
        ("--minutes", 20.0, "of load"),
        ("--rate", 6.0, "requests per second"),
        ("--every", 5.0, "seconds between two measurements"),
    ):
        parser.add_argument(
            name, type=float, metavar="N", default=default, help=f"{purpose} (default: {default:g})"
        )
    parser.add_argument(
        "--seed", type=int, metavar="N", default=0, help="of the choice of requests (default: 0)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Soak, print and draw.

    Returns:
        0 if every floor holds, else 1.

    Raises:
        CommandError: The service is not there, or its processes can't be seen.
    """
    report.make_folders(arguments)
    with service(arguments.url, arguments.pid) as serving:
        if serving.pid is None:
            raise CommandError("--url needs --pid: without it there is no memory to measure")
        seconds, numbers = arguments.minutes * 60, (arguments.rate, arguments.every, arguments.seed)
        found = asyncio.run(soak(serving.target, serving.pid, seconds, *numbers))
    print(describe_machine())
    print(f"{found.seconds / 60:g} minutes at {arguments.rate:g} requests/s\n")
    print_answers(found)
    print_memory(found)
    try:
        status = report.print_verdicts(found.verdicts())
    except ValueError as error:
        raise CommandError(str(error)) from error
    draw_soak(found, arguments.plot)
    print(f"\nDrawn in {arguments.plot}")
    if arguments.json:
        report.write_json(arguments.json, document_of(found))
    return status


def document_of(found: Soak) -> dict[str, Any]:
    """All figures of a soak, for --json."""
    trends = {name: asdict(trend) for name, trend in found.trends().items()}
    return {"machine": describe_machine(), **asdict(found), "trends": trends}
