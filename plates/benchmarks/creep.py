"""Compare each stage with what it took at the last release. Run it before the next one.

The time of each stage is taken in turns with a yardstick of our own, a matrix multiply and
a copy of memory, and told in yardsticks: so the kept figures hold on other machines of the
same kind. Stages are compared by processor time, the whole photo by elapsed time as well. A
stage crept when even the lower bound of its 95 % interval is more than 15 % above the kept
figure, and the stage by more than a hundredth of the photo's time.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from plates.benchmarks import report
from plates.benchmarks.measuring import (
    add_seconds,
    check_seconds,
    load_engines,
    print_head,
    read_photo,
)
from plates.cli import CommandError

if TYPE_CHECKING:
    from plates.benchmarks.speed.creep import Record

KEPT = Path(__file__).resolve().parents[2] / "tests" / "reports" / "speed.json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_seconds(parser, 30)
    parser.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        default=KEPT,
        help="the kept figures (default: tests/reports/speed.json)",
    )
    parser.add_argument("--write", action="store_true", help="keep the figures of this run instead")


def run(arguments: argparse.Namespace) -> int:
    """Measure and compare, or write.

    Returns:
        0 if no stage became slower, else 1.

    Raises:
        CommandError: The kept figures are not there or broken, or can't be written.
    """
    check_seconds(arguments)
    from plates.benchmarks.speed.creep import Record, RecordError, crept, measure_record

    try:
        kept = None if arguments.write else Record.read(arguments.file)
    except RecordError as error:
        raise CommandError(str(error)) from error
    nets = load_engines(("served",))["served"]
    file = read_photo(None, nets)
    machine = print_head("Stages of the standard photo, in yardsticks")
    now = measure_record(file, nets, arguments.seconds, machine)
    _print(now, kept)
    if kept is None:
        try:
            now.write(arguments.file)
        except OSError as error:
            raise CommandError(f"{arguments.file}: {error.strerror}") from error
        print(f"\nWritten to {arguments.file}")
        return 0
    slower = crept(now, kept)
    print("", *(f"CREPT   {one}" for one in slower), sep="\n")
    count = len(slower) or "No"
    print(f"{count} stage{'s' * (len(slower) > 1)} became slower")
    return 1 if slower else 0


def _print(now: "Record", kept: "Record | None") -> None:
    print(f"One yardstick took {now.yardstick_ms:.2f} ms")
    if kept:
        print(f"Kept: {kept.machine}, where it took {kept.yardstick_ms:.2f} ms")
    rows = []
    for name, one in now.stages.items():
        low, high = one.interval_95
        before = kept.stages.get(name) if kept else None
        rows.append(
            (
                name,
                f"{one.ratio:.3f}",
                f"{low:.3f} to {high:.3f}",
                f"{before.ratio:.3f}" if before else "-",
                f"{one.ratio / before.ratio:.2f}" if before and before.ratio > 0 else "-",
            )
        )
    print()
    report.print_table(("stage", "yardsticks", "95 % interval", "kept", "now/kept"), rows)
