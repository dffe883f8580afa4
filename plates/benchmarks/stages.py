"""Where a photo's time goes among the stages of the pipeline, in this process.

"choose" is CTC decoding, the plate grammar and the confidence. To see whether a change costs time,
run it before and after in turns, on one machine.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas

from plate_models.cores import choose_threads
from plates.benchmarks.load import STANDARD_PHOTO
from plates.benchmarks.report import Report, Rows, in_turns
from plates.cli.options import add_number

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets

# What the pipeline does before each net.
BEFORE = {"yolo": "letterbox", "stn": "boxes and crops", "lprnet": "straighten"}
STAGES = ("decode", *(stage for net, before in BEFORE.items() for stage in (before, net)), "choose")
WHOLE = "whole"


def configure(parser: argparse.ArgumentParser) -> None:
    add_number(parser, "--seconds", 30.0, "to measure for", least=0.01)


def run(arguments: argparse.Namespace) -> Report:
    import torch

    from plate_models.engines.nets import load_nets

    torch.set_num_threads(choose_threads())
    file, nets = STANDARD_PHOTO.read_bytes(), load_nets()
    print(f"{choose_threads()} threads")
    return Report({"stages": measure(lambda: time_stages(file, nets), arguments.seconds)}, [])


def time_stages(file: bytes, nets: "Nets") -> pandas.DataFrame:
    """Read a photo: milliseconds by stage and clock."""
    from torch import from_numpy

    from plate_models.images import decode

    laps: Rows = []

    def done(stage: str) -> None:
        clocks = {"elapsed": 1000 * time.perf_counter(), "CPU": 1000 * time.process_time()}
        laps.append({"stage": stage, **clocks})

    def timed(name: str, net: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run_timed(batch: Any) -> Any:
            done(BEFORE[name])
            result = net(batch)
            done(name)
            return result

        return run_timed

    detect, rectify = timed("yolo", nets.detect), timed("stn", nets.rectify)
    recognize = timed("lprnet", nets.recognize)
    done("begin")
    image = from_numpy(decode(file))
    done("decode")
    replace(nets, detect=detect, rectify=rectify, recognize=recognize).read(image)
    done("choose")
    # A net that ran twice has two laps.
    found = pandas.DataFrame(laps).set_index("stage").diff()[1:].groupby(level=0).sum()
    found.loc[WHOLE] = found.loc[[*STAGES]].sum()
    return found


def measure(time_all: Callable[[], pandas.DataFrame], seconds: float) -> Rows:
    """Time the photo again and again: a row of the table for each stage, and for the whole."""
    turns = in_turns(time_all, seconds)
    # By clock and stage: the milliseconds of each turn.
    times = pandas.concat(turns, keys=range(len(turns))).unstack()
    rows = []
    for stage in (*STAGES, WHOLE):
        p50, p95 = times["elapsed", stage].quantile([0.5, 0.95])
        cpu = times["CPU", stage].median()
        rows.append({"stage": stage, "p50 ms": p50, "p95 ms": p95, "CPU p50 ms": cpu})
    return rows
