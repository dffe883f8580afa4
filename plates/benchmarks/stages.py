"""Where a photo's time goes among the stages of the pipeline, in this process.

Each net is timed by itself, and what the pipeline does between two nets is the stage between
them: nothing that it does is left out, whatever its functions are called. "boxes and crops" is
the choice of boxes and what is cut out around them, "straighten" the geometry around stn,
"choose" CTC decoding, the plate grammar and the confidence. The engine that is served and the
float32 reference in torch read the photo in turns.

--check compares with the figures kept at the last release, --write keeps new ones. They are
multiples of a yardstick, a matrix multiply and a copy of memory timed in turns with the
stages, so that they hold on other machines of the same kind. Stages are compared by processor
time, the whole photo by elapsed time as well, because threads that wait for one another take
none. A stage became slower when even the lower bound of its 95 % interval is more than 15 %
above the kept figure, and the stage by more than a hundredth of the photo's time.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plates.benchmarks import report
from plates.benchmarks.photos import photo_or_standard
from plates.cli import CommandError
from plates.cli.options import load_nets

if TYPE_CHECKING:
    from plate_models.engines.nets import Nets

KEPT = Path(__file__).resolve().parents[2] / "tests" / "reports" / "speed.json"
TOLERANCE = 0.15
# Of the whole photo: less is lost in noise, and of no account.
LEAST_SHARE = 0.01
# The stage between two nets; "" is the photo's beginning and its end.
BETWEEN = {
    ("", "yolo"): "letterbox",
    ("yolo", "stn"): "boxes and crops",
    ("stn", "stn"): "boxes and crops",
    ("stn", "lprnet"): "straighten",
    ("lprnet", "lprnet"): "straighten",
    ("lprnet", ""): "choose",
}
STAGES = (
    *("decode", "letterbox", "yolo", "boxes and crops"),
    *("stn", "straighten", "lprnet", "choose"),
)
YARDSTICK, WHOLE, ELAPSED = "yardstick", "whole", "whole, elapsed"
COMPARED = (*STAGES, WHOLE, ELAPSED)
_WARM_UPS = 2
_LEAST_TURNS = 3
_SIDE, _COPIED_BYTES = 768, 16 * 2**20

# (len(STAGES), 2) float64: elapsed milliseconds and milliseconds of processor time.
Times = NDArray[np.float64]


class StageClock:
    """Reads a photo, and times the stages."""

    def __init__(self, file: bytes, nets: "Nets") -> None:
        self._file = file
        self._nets = replace(
            nets,
            detect=self._timed("yolo", nets.detect),
            rectify=self._timed("stn", nets.rectify),
            recognize=self._timed("lprnet", nets.recognize),
        )

    def read(self) -> Times:
        """Read the photo once; milliseconds of each stage, elapsed and of processor time.

        Raises:
            ImageError: It is no photo.
            CommandError: There is no plate in it.
        """
        from torch import from_numpy

        from plate_models.images import decode

        self._net, self._spent = "", np.zeros((len(STAGES), 2))
        self._last = _now_ms()
        image = from_numpy(decode(self._file))
        self._charge("decode")
        if not self._nets.read(image):
            raise CommandError("expected a photo with at least one plate, found none")
        self._charge(BETWEEN[self._net, ""])
        return self._spent

    def _timed(self, name: str, net: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def timed(batch: Any) -> Any:
            self._charge(BETWEEN[self._net, name])
            result = net(batch)
            self._charge(name)
            self._net = name
            return result

        return timed

    def _charge(self, stage: str) -> None:
        """Charge the time since the last call to a stage."""
        now = _now_ms()
        self._spent[STAGES.index(stage)] += now - self._last
        self._last = now


def _now_ms() -> Times:
    return np.array([1000 * time.perf_counter(), 1000 * time.process_time()])


def yardstick() -> Callable[[], Times]:
    """A fixed piece of work, some milliseconds: a matrix multiply and a copy of memory."""
    import torch

    left, right = torch.randn(2, _SIDE, _SIDE, generator=torch.Generator().manual_seed(0))
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.zeros_like(source)

    def work() -> Times:
        began = _now_ms()
        torch.mm(left, right)
        np.copyto(target, source)
        return (_now_ms() - began)[None]

    return work


def take_turns(works: Mapping[str, Callable[[], Times]], seconds: float) -> dict[str, Times]:
    """Do one thing after the other, again and again, every second time backwards.

    Backwards, because what is done after something heavy finds its own data gone from the
    caches: so none always comes after the same one.

    Returns:
        (turns, ..., 2) float64 of each: what it returned.
    """
    taken: dict[str, list[Times]] = {name: [] for name in works}
    for work in [*works.values()] * _WARM_UPS:
        work()
    end, turns = time.perf_counter() + seconds, 0
    while turns < _LEAST_TURNS or time.perf_counter() < end:
        for name in [*works][:: -1 if turns % 2 else 1]:
            taken[name].append(works[name]())
        turns += 1
    return {name: np.stack(times) for name, times in taken.items()}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    report.add_outputs(parser, "stages")
    report.add_number(parser, "--seconds", 30.0, "to measure for")
    parser.add_argument("--photo", type=Path, metavar="FILE", help="default: the standard photo")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--check", action="store_true", help="compare with the kept figures")
    either.add_argument("--write", action="store_true", help="keep the figures of this run")
    kept = "the kept figures (default: tests/reports/speed.json)"
    parser.add_argument("--file", type=Path, metavar="FILE", default=KEPT, help=kept)


def run(arguments: argparse.Namespace) -> int:
    """Measure and draw, or compare, or write; 1 if --check finds that a stage became slower."""
    report.make_folders(arguments)
    import torch

    from plate_models.cores import choose_threads
    from plate_models.images import ImageError

    kept = read_kept(arguments.file) if arguments.check else {}
    alone = arguments.check or arguments.write
    file = photo_or_standard(arguments.photo)
    works: dict[str, Callable[[], Times]] = {YARDSTICK: yardstick()} if alone else {}
    try:
        torch.set_num_threads(choose_threads())
        for name in ("served",) if alone else ("served", "torch"):
            nets = load_nets(argparse.Namespace(engine=name, device="cpu", weights=None))
            works[name] = StageClock(file, nets).read
        found = take_turns(works, arguments.seconds)
    except ImageError as error:
        raise CommandError(f"{arguments.photo}: {error}", status=2) from error
    except ValueError as error:  # PLATES_THREADS
        raise CommandError(str(error)) from error
    print(f"{report.describe_machine()}, {choose_threads()} threads")
    if alone:
        now = ratios_of(found["served"], found[YARDSTICK])
        report.print_table({**row, "kept": kept.get(row["stage"], math.nan)} for row in now)
        if arguments.write:
            _write(arguments.file, now)
            return 0
        slower = slower_stages(now, kept)
        print(f"\nSlower than before: {', '.join(slower) or 'none'}")
        return 1 if slower else 0
    tables = {name: _rows(times) for name, times in found.items()}
    for name, rows in tables.items():
        print(f"\nEngine {name}, {len(found[name])} turns")
        report.print_table(rows)
    report.write(arguments, {"engines": tables}, lambda figure: _plot(figure, tables))
    return 0


def _rows(times: Times) -> list[dict[str, Any]]:
    """A row for each stage, and one for the whole."""
    times = np.concatenate([times, times.sum(1, keepdims=True)], 1)
    p50, p95 = np.percentile(times, (50, 95), axis=0).round(2).tolist()
    return [
        {"stage": stage, "p50 ms": wall, "p95 ms": high, "CPU p50 ms": cpu}
        for stage, (wall, cpu), (high, _) in zip((*STAGES, WHOLE), p50, p95, strict=True)
    ]


def _plot(figure: Any, tables: dict[str, list[dict[str, Any]]]) -> None:
    import pandas

    p50 = {name: {row["stage"]: row["p50 ms"] for row in rows} for name, rows in tables.items()}
    table = pandas.DataFrame(p50).drop(index=WHOLE).T
    table.plot.barh(stacked=True, ax=figure.subplots(), xlabel="p50, ms per photo")


def ratios_of(times: Times, yardsticks: Times) -> list[dict[str, Any]]:
    """How many yardsticks each of ``COMPARED`` takes, with the 95 % interval: rows of a table."""
    from plate_models.training.figures import median_ratio

    whole, units = times.sum(1), yardsticks[:, 0].T.tolist()
    series = [(times[:, index, 1], units[1]) for index in range(len(STAGES))]
    series += [(whole[:, 1], units[1]), (whole[:, 0], units[0])]
    found = [median_ratio(spent.tolist(), unit) for spent, unit in series]
    return [
        {"stage": name, "yardsticks": ratio, "low": low, "high": high}
        for name, (ratio, (low, high)) in zip(COMPARED, found, strict=True)
    ]


def _write(path: Path, now: list[dict[str, Any]]) -> None:
    stages = {row["stage"]: float(f"{row['yardsticks']:.4g}") for row in now}
    document = {"machine": report.describe_machine(), "yardsticks": stages}
    try:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    print(f"\nWritten to {path}")


def read_kept(path: Path) -> dict[str, float]:
    """How many yardsticks each of ``COMPARED`` took, from the file that --write wrote.

    Raises:
        CommandError: It is not there, or something else.
    """
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))["yardsticks"]
        # Written so that NaN is refused: nothing would ever be slower than that.
        if not all(0 < kept[name] < math.inf for name in COMPARED):
            raise ValueError("expected figures above 0")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}; make it with --write") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path}: not what --write keeps ({error!r}); make it anew") from error
    return {name: float(kept[name]) for name in COMPARED}


def slower_stages(now: list[dict[str, Any]], kept: Mapping[str, float]) -> list[str]:
    """Name the stages that became slower, beyond noise."""
    return [
        name
        for name, row in ((row["stage"], row) for row in now)
        if row["low"] > (1 + TOLERANCE) * kept[name]
        and row["yardsticks"] - kept[name] > LEAST_SHARE * kept[WHOLE]
    ]
