"""Compare each net with the time that its arithmetic needs at the very least.

The multiply-adds of convolutions and matrix products are counted exactly, for the inputs
that the photo gives each net. The machine's speed is that of its matrix multiply, in turns
with the nets, with as many threads, the best of several sizes: in float32, and in the
precision in which the net computes.

Floor: yolo takes at most twice as long, in the precision in which it computes.
"""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from plates.benchmarks import report
from plates.benchmarks.measuring import (
    add_photo,
    add_seconds,
    check_seconds,
    load_engines,
    print_head,
    read_photo,
)
from plates.benchmarks.report import Verdict
from plates.cli import CommandError

if TYPE_CHECKING:
    from plates.benchmarks.speed.arithmetic import MatrixMultiply, NetFloor

MOST = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_photo(parser)
    add_seconds(parser, 60)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        metavar="N",
        default=(),
        help="of the square matrices to try (default: 1024 to 4096)",
    )
    report.add_outputs(parser, "floor")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and draw.

    Returns:
        0 if the floor holds, else 1.

    Raises:
        CommandError: There is no such photo, no plate in it, or no time to measure.
    """
    check_seconds(arguments)
    if any(size < 1 for size in arguments.sizes):
        raise CommandError("--sizes: expected 1 or more")
    report.make_folders(arguments)
    from plate_models.contract import GRAPHS
    from plate_models.engines.nets import served_precision
    from plate_models.export import REPOSITORY
    from plate_models.weights import WEIGHTS_DIR, load_modules
    from plates.benchmarks.speed.arithmetic import SIZES, measure_floors

    nets = load_engines(("served",))["served"]
    file = read_photo(arguments.photo, nets)
    machine = print_head("The nets as they are served, against the arithmetic they need")
    precisions = {name: served_precision(REPOSITORY / name) for name in GRAPHS}
    sizes = arguments.sizes or SIZES
    floors, products = measure_floors(
        file, nets, load_modules(WEIGHTS_DIR), precisions, arguments.seconds, sizes
    )
    _print(floors, products)
    status = report.print_verdicts([_verdict(one) for one in floors if one.net == "yolo"])
    from plates.benchmarks.speed_plots import draw_floors

    draw_floors(floors, machine, arguments.plot)
    print(f"\nDrawn in {arguments.plot}")
    if arguments.json:
        nets_found = [
            {**asdict(one), "times": one.times.to_dict(), "ratio": one.ratio} for one in floors
        ]
        report.write_json(arguments.json, {"machine": machine, "nets": nets_found})
    return status


def _print(floors: "list[NetFloor]", products: "dict[str, MatrixMultiply]") -> None:
    for precision, one in products.items():
        rates = ", ".join(f"{2 * net.rates[precision] / 1e6:.0f}" for net in floors)
        print(f"Matrix multiply in {precision}, {one.size}x{one.size}: {rates} GFLOP/s")
    print("(beside each net; a multiply-add counts as two operations)\n")
    report.print_table(
        ("net", "input", "MFLOP", "in", "p50 ms", "float32 floor", "floor ms", "measured/floor"),
        [
            (
                one.net,
                "x".join(map(str, one.batch)),
                f"{2 * one.multiply_adds / 1e6:.1f}",
                one.precision,
                f"{one.times.p50_ms:.2f}",
                f"{one.floor_ms('float32'):.2f}",
                f"{one.floor_ms(one.precision):.2f}",
                f"{one.ratio:.2f}",
            )
            for one in floors
        ],
    )


def _verdict(one: "NetFloor") -> Verdict:
    came = f"{one.ratio:.2f} times the floor in {one.precision}"
    return Verdict(f"time of {one.net}", came, f"at most {MOST:g} times", one.ratio <= MOST)
