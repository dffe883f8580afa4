"""See whether the time of a photo grows like a straight line with what is in it.

A rendered car park with 1, 4, 16 and 64 plates in 2 megapixels, and with 2 plates in 1 to
12 megapixels; in this process, on the engine that is served, all photos in turns.

Floor: a plate, or a megapixel, costs at the large end at most 1.5 times what it costs along
the straight line through the smaller photos.
"""

import argparse
from typing import TYPE_CHECKING

from plates.benchmarks import report
from plates.benchmarks.measuring import add_seconds, check_seconds, load_engines, print_head
from plates.benchmarks.photos import photo_with
from plates.benchmarks.report import Verdict

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets
    from plates.benchmarks.speed.scaling import Growth

PLATES = (1, 4, 16, 64)
MEGAPIXELS = (1, 2, 4, 8, 12)
STEEPEST = 1.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_seconds(parser, 60)
    report.add_outputs(parser, "scaling")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and draw.

    Returns:
        0 if the cost grows like a straight line and all plates are found, else 1.

    Raises:
        CommandError: There is no time to measure.
    """
    check_seconds(arguments)
    report.make_folders(arguments)
    nets = load_engines(("served",))["served"]
    machine = print_head("Milliseconds per photo, in process, one photo at a time")
    growths, verdicts = measure(nets, arguments.seconds)
    status = report.print_verdicts(verdicts + [verdict_of(growth) for growth in growths])
    from plates.benchmarks.speed_plots import draw_growths

    draw_growths(growths, machine, arguments.plot)
    print(f"\nDrawn in {arguments.plot}")
    if arguments.json:
        series = [
            {
                "unit": growth.unit,
                "amounts": growth.amounts,
                "times": [times.to_dict() for times in growth.times],
                "steepening": growth.steepening(),
            }
            for growth in growths
        ]
        report.write_json(arguments.json, {"machine": machine, "series": series})
    return status


def measure(nets: "Nets", seconds: float) -> "tuple[list[Growth], list[Verdict]]":
    """Measure both series in the same turns, and print their tables.

    Returns:
        Times over plates found and over megapixels, and whether all plates were found.
    """
    from functools import partial

    from plates.benchmarks.speed.scaling import Growth
    from plates.benchmarks.speed.stages import read_file
    from plates.benchmarks.speed.turns import take_turns

    photos = {f"{n} plates": photo_with(n, 2) for n in PLATES}
    photos |= {f"{n} MP": photo_with(2, n) for n in MEGAPIXELS}
    found = {name: len(read_file(file, nets)) for name, file in photos.items()}
    times = take_turns(
        {name: partial(read_file, file, nets) for name, file in photos.items()}, seconds
    )
    plates = tuple(float(found[f"{n} plates"]) for n in PLATES)
    growths = [
        Growth("plate", plates, tuple(times[f"{n} plates"] for n in PLATES)),
        Growth("megapixel", MEGAPIXELS, tuple(times[f"{n} MP"] for n in MEGAPIXELS)),
    ]
    for growth in growths:
        print_growth(growth)
    lost = [f"{found[f'{n} plates']} of {n}" for n in PLATES if found[f"{n} plates"] != n]
    what = Verdict("plates found", ", ".join(lost) or "all", "all that were drawn", not lost)
    return growths, [what]


def print_growth(growth: "Growth") -> None:
    """Print the times of each amount, and the straight line through them."""
    slope, start = growth.line()
    expected = [slope * amount + start for amount in growth.amounts]
    report.print_table(
        (f"{growth.unit}s", "p50 ms", "p95 ms", "on the line", f"p50 per {growth.unit}"),
        [
            (
                f"{amount:g}",
                f"{of.p50_ms:.1f}",
                f"{of.p95_ms:.1f}",
                f"{line:.1f}",
                f"{of.p50_ms / amount:.2f}",
            )
            for amount, of, line in zip(growth.amounts, growth.times, expected, strict=True)
        ],
    )
    print(
        f"Line: {start:.1f} ms + {slope:.2f} ms per {growth.unit}; "
        f"largest deviation {growth.deviation():.1%}\n",
        flush=True,
    )


def verdict_of(growth: "Growth") -> Verdict:
    """Whether the cost of a unit stays what it is among the smaller amounts."""
    steeper = growth.steepening()
    return Verdict(
        f"cost per {growth.unit} between the two largest photos",
        f"{steeper:.2f} times that among the smaller ones",
        f"at most {STEEPEST:g} times",
        steeper <= STEEPEST,
    )
