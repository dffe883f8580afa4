"""Split the time of a photo among the stages of the pipeline, in this process.

The engine that is served and the float32 reference in torch read the same photo in turns,
once stage by stage and once as a whole: so the table also shows what the timing itself
costs. "straighten" is the geometry around stn, "choose" is CTC decoding, the plate grammar
and the confidence, "rest" is whatever no stage accounts for.
"""

import argparse
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

if TYPE_CHECKING:
    from plates.benchmarks.speed.stages import StageTimes

_COLUMNS = ("stage", "p50 ms", "p95 ms", "CPU p50 ms", "CPU p95 ms", "share")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_photo(parser)
    add_seconds(parser, 30)
    report.add_outputs(parser, "stages")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and draw.

    Returns:
        0.

    Raises:
        CommandError: There is no such photo, no plate in it, or no time to measure.
    """
    check_seconds(arguments)
    report.make_folders(arguments)
    from plate_models.engines.nets import ENGINES
    from plates.benchmarks.speed.stages import measure_stages

    engines = load_engines(ENGINES)
    file = read_photo(arguments.photo, engines[ENGINES[0]])
    machine = print_head("Milliseconds per photo and stage, one photo at a time")
    found, _ = measure_stages(file, engines, arguments.seconds)
    for name, times in found.items():
        _print(name, times)
    from plates.benchmarks.speed_plots import draw_stages

    draw_stages(found, machine, arguments.plot)
    print(f"Drawn in {arguments.plot}")
    if arguments.json:
        report.write_json(
            arguments.json,
            {"machine": machine, "engines": {name: of.to_dict() for name, of in found.items()}},
        )
    return 0


def _print(name: str, times: "StageTimes") -> None:
    from plates.benchmarks.speed.turns import percentile

    clocked, whole = times.clocked.p50_ms, times.whole.p50_ms
    print(f"Engine {name}, {len(times.whole.wall_ms)} turns")
    rows = times.stages | {"together": times.clocked, "whole, untimed": times.whole}
    report.print_table(
        _COLUMNS,
        [
            (
                stage,
                f"{of.p50_ms:.2f}",
                f"{of.p95_ms:.2f}",
                f"{percentile(of.cpu_ms, 50):.2f}",
                f"{percentile(of.cpu_ms, 95):.2f}",
                f"{of.p50_ms / whole:.1%}",
            )
            for stage, of in rows.items()
        ],
    )
    print(
        f"All stages together, timed: {clocked:.2f} ms; the whole, untimed: {whole:.2f} ms; "
        f"difference {clocked - whole:+.2f} ms ({clocked / whole - 1:+.1%})\n",
        flush=True,
    )
