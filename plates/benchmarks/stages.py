"""Where a photo's time goes among the stages of the pipeline, in this process.

"choose" is CTC decoding, the plate grammar and the confidence. A yardstick, a matrix multiply and a
copy of memory, is timed in turns with the photo.

--check compares with the figures kept at the last release, --write keeps new ones: processor
time as a multiple of the yardstick's, so that they hold on other machines of the same kind. A
stage became slower when even the lower bound of its 95 % interval is more than 15 % above the
kept figure, and the stage by more than a hundredth of the photo's time.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas

from plate_models.cores import choose_threads
from plates.benchmarks.load import STANDARD_PHOTO
from plates.benchmarks.report import Report, Rows, Verdict, in_turns, none_of, write_json
from plates.cli.options import add_number

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets

KEPT = Path(__file__).resolve().parents[2] / "tests" / "reports" / "speed.json"
# Of the kept figure, and of the whole photo: less is lost in noise.
TOLERANCE, LEAST_SHARE = 0.15, 0.01
# What the pipeline does before each net.
BEFORE = {"yolo": "letterbox", "stn": "boxes and crops", "lprnet": "straighten"}
STAGES = ("decode", *(stage for net, before in BEFORE.items() for stage in (before, net)), "choose")
# Elapsed time as well: threads that wait take no processor time.
WHOLE, ELAPSED, YARDSTICK = "whole", "whole, elapsed", "yardstick"
COMPARED = (*STAGES, WHOLE, ELAPSED)


def configure(parser: argparse.ArgumentParser) -> None:
    add_number(parser, "--seconds", 30.0, "to measure for", least=0.01)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--check", action="store_true", help="compare with the kept figures")
    either.add_argument("--write", action="store_true", help="keep the figures of this run")


def run(arguments: argparse.Namespace) -> Report:
    import torch

    from plate_models.engines.nets import load_nets

    torch.set_num_threads(choose_threads())
    file, nets = STANDARD_PHOTO.read_bytes(), load_nets()
    left, right = torch.randn(2, 768, 768, generator=torch.Generator().manual_seed(0))
    source = np.ones(16 * 2**20, np.uint8)
    target = np.zeros_like(source)

    def yardstick() -> None:
        """A fixed piece of work, some milliseconds: a matrix multiply and a copy of memory."""
        torch.mm(left, right)
        np.copyto(target, source)

    rows = measure(lambda: time_stages(file, nets, yardstick), arguments.seconds)
    print(f"{choose_threads()} threads; yardsticks: so many times the fixed piece of work")
    if arguments.write:
        ratios = {row["stage"]: round(row["yardsticks"], 5) for row in rows}
        write_json(KEPT, {"yardsticks": ratios})
        print(f"Written to {KEPT}")
    verdicts: list[Verdict] = []
    if arguments.check:
        kept = json.loads(KEPT.read_text(encoding="utf-8"))["yardsticks"]
        rows = [{**row, "kept": kept[row["stage"]]} for row in rows]
        slower = [row["stage"] for row in rows if _is_slower(row, kept[WHOLE])]
        verdicts = [none_of("stages that became slower than the kept figures", slower)]
    return Report({"stages": rows}, verdicts)


def _is_slower(row: dict[str, Any], whole: float) -> bool:
    """Whether a stage became slower than the kept figure, beyond noise; `whole` is the photo's."""
    is_sure = row["low"] > (1 + TOLERANCE) * row["kept"]
    return bool(is_sure and row["yardsticks"] > row["kept"] + LEAST_SHARE * whole)


def time_stages(file: bytes, nets: "Nets", work: Callable[[], object]) -> pandas.DataFrame:
    """Do the work of the yardstick and read a photo: milliseconds by stage and clock."""
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
    work()
    done(YARDSTICK)
    image = from_numpy(decode(file))
    done("decode")
    replace(nets, detect=detect, rectify=rectify, recognize=recognize).read(image)
    done("choose")
    # A net that ran twice has two laps.
    found = pandas.DataFrame(laps).set_index("stage").diff()[1:].groupby(level=0).sum()
    found.loc[WHOLE] = found.loc[[*STAGES]].sum()
    return found


def measure(time_all: Callable[[], pandas.DataFrame], seconds: float) -> Rows:
    """Time the photo and the yardstick in turns: a row of the table for each of ``COMPARED``."""
    from plate_models.training.figures import median_ratio

    turns = in_turns(time_all, seconds)
    # By clock and stage: the milliseconds of each turn.
    times = pandas.concat(turns, keys=range(len(turns))).unstack()
    rows = []
    for name in COMPARED:
        clock, stage = ("elapsed", WHOLE) if name == ELAPSED else ("CPU", name)
        pairs = times[clock, stage].tolist(), times[clock, YARDSTICK].tolist()
        ratio, (low, high) = median_ratio(*pairs)
        p50, p95 = times["elapsed", stage].quantile([0.5, 0.95])
        row = {
            "stage": name,
            "p50 ms": p50,
            "p95 ms": p95,
            "CPU p50 ms": times["CPU", stage].median(),
        }
        rows.append({**row, "yardsticks": ratio, "low": low, "high": high})
    return rows
