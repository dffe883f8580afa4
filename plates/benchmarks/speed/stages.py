"""Splits the time of a photo among the stages of the pipeline, which is left as it is.

While a `StageClock` watches, the functions that the pipeline calls are replaced by ones
that also take the time, wherever a module of this package refers to them.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from types import ModuleType
from typing import Any

import torch

from plate_models import detection, pipeline, rectification
from plate_models.engines.nets import Nets
from plate_models.images import decode
from plate_models.pipeline import Plate
from plate_models.recognition import ctc
from plates.benchmarks.speed.turns import Times, Work, take_turns

Function = Callable[..., Any]

# What the pipeline does between the nets. Where one calls another, the outer one is charged.
FUNCTIONS: dict[str, tuple[Function, ...]] = {
    "decode": (decode,),
    "letterbox": (detection.letterbox,),
    "NMS": (detection.select_boxes,),
    "crop": (rectification.crop_boxes, rectification.normalize),
    "straighten": (
        rectification.quads_from_theta,
        rectification.resample,
        rectification.sample_rows,
    ),
    "choose": (ctc.log_softmax, pipeline.choose_readings),
}
# In the order of a photo's way; "choose" is CTC, the grammar and the confidence.
STAGES = (
    *("decode", "letterbox", "yolo", "NMS", "crop"),
    *("stn", "straighten", "lprnet", "choose", "rest"),
)


class StageClock:
    """Adds up what each stage takes while it watches."""

    def __init__(self) -> None:
        self._wall_s: defaultdict[str, float] = defaultdict(float)
        self._cpu_s: defaultdict[str, float] = defaultdict(float)
        self._inside = False
        self._places = [
            (module, name, function, self.timed(stage, function))
            for stage, functions in FUNCTIONS.items()
            for function in functions
            for module, name in _references(function)
        ]

    def timed(self, stage: str, function: Function) -> Function:
        """Wrap a function so that its time is charged to a stage."""

        @wraps(function)
        def clocked(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            self._inside = True
            cpu, wall = time.process_time(), time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._wall_s[stage] += time.perf_counter() - wall
                self._cpu_s[stage] += time.process_time() - cpu
                self._inside = False

        return clocked

    def with_nets(self, nets: Nets) -> Nets:
        """The same nets, charged to "yolo", "stn" and "lprnet"."""
        return replace(
            nets,
            detect=self.timed("yolo", nets.detect),
            rectify=self.timed("stn", nets.rectify),
            recognize=self.timed("lprnet", nets.recognize),
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take the times of whatever of ``FUNCTIONS`` is called meanwhile."""
        for module, name, _, clocked in self._places:
            setattr(module, name, clocked)
        try:
            yield
        finally:
            for module, name, function, _ in self._places:
                setattr(module, name, function)

    def take(self) -> dict[str, tuple[float, float]]:
        """Wall and CPU milliseconds of each stage since the last time, which starts anew."""
        taken = {
            stage: (1000 * self._wall_s[stage], 1000 * self._cpu_s[stage])
            for stage in STAGES
            if stage != "rest"
        }
        self._wall_s.clear()
        self._cpu_s.clear()
        return taken


def _references(function: Function) -> Iterator[tuple[ModuleType, str]]:
    """Every module of ours that knows a function, and as what."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("plate_models"):
            for name, value in list(vars(module).items()):
                if value is function:
                    yield module, name


@dataclass(frozen=True)
class StageTimes:
    """Where a photo's time goes.

    Attributes:
        stages: Of each of ``STAGES``; "rest" is what no other stage accounts for.
        clocked: Of all stages together, measured with them.
        whole: Of the same photo while no stage was timed.
    """

    stages: dict[str, Times]
    clocked: Times
    whole: Times

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        times = {**self.stages, "together": self.clocked, "whole": self.whole}
        return {name: of.to_dict() for name, of in times.items()}


def measure_stages(
    file: bytes,
    engines: Mapping[str, Nets],
    seconds: float,
    others: Mapping[str, Work] | None = None,
) -> tuple[dict[str, StageTimes], dict[str, Times]]:
    """Read a photo stage by stage and as a whole on each engine, in turns.

    Args:
        file: A photo.
        engines: Nets by name.
        seconds: To go on for.
        others: Things to be done in the same turns.

    Returns:
        Where the time goes on each engine, and the times of the others.
    """
    works: dict[str, Work] = dict(others or {})
    records = {name: _Record(file, nets) for name, nets in engines.items()}
    for name, nets in engines.items():
        works[f"{name}, clocked"] = records[name].read_clocked
        works[f"{name}, whole"] = partial(read_file, file, nets)
    times = take_turns(works, seconds)
    found = {
        name: records[name].times(times[f"{name}, clocked"], times[f"{name}, whole"])
        for name in engines
    }
    return found, {name: times[name] for name in others or {}}


def read_file(file: bytes, nets: Nets) -> list[Plate]:
    """From a photo as it was posted to its plates."""
    return nets.read(torch.from_numpy(decode(file)))


class _Record:
    """Reads one photo again and again, and keeps what each stage took each time."""

    def __init__(self, file: bytes, nets: Nets) -> None:
        self._clock = StageClock()
        self._file, self._nets = file, self._clock.with_nets(nets)
        self._turns: list[dict[str, tuple[float, float]]] = []

    def read_clocked(self) -> None:
        with self._clock.watching():
            read_file(self._file, self._nets)
        self._turns.append(self._clock.take())

    def times(self, clocked: Times, whole: Times) -> StageTimes:
        turns = self._turns[-len(clocked.wall_ms) :]  # without the warm-up
        wall = {stage: tuple(turn[stage][0] for turn in turns) for stage in turns[0]}
        cpu = {stage: tuple(turn[stage][1] for turn in turns) for stage in turns[0]}
        wall["rest"] = _left_over(clocked.wall_ms, wall)
        cpu["rest"] = _left_over(clocked.cpu_ms, cpu)
        return StageTimes({s: Times(wall[s], cpu[s]) for s in STAGES}, clocked, whole)


def _left_over(
    totals: tuple[float, ...], parts: Mapping[str, tuple[float, ...]]
) -> tuple[float, ...]:
    sums = [sum(turn) for turn in zip(*parts.values(), strict=True)]
    return tuple(total - part for total, part in zip(totals, sums, strict=True))
