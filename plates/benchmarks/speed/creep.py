"""Stages against a yardstick of our own, so that figures outlive a change of machine.

Seconds say little about another machine, or about this one on another day. How many
yardsticks a stage takes, measured in turns with it, says more: among machines of a kind it
is the same. Stages are told in processor time, which is as close to a count of instructions
as a program can come by itself and shrugs off whatever else runs; the photo as a whole in
elapsed time, too, because threads that wait for one another take none.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from plate_models.engines.nets import Nets
from plate_models.training.figures import median_ratio
from plates.benchmarks.speed.stages import STAGES, measure_stages

YARDSTICK = "yardstick"
WHOLE, ELAPSED = "whole", "whole, elapsed"
COMPARED = (*STAGES, WHOLE, ELAPSED)
# More than this is creep.
TOLERANCE = 0.15
# Of the whole photo: less is lost in noise, and of no account.
_LEAST_SHARE = 0.01
_SIDE = 768
_COPIED_BYTES = 16 * 2**20


class RecordError(Exception):
    """The file of kept figures is not there or broken."""


@dataclass(frozen=True)
class Ratio:
    """How many yardsticks something takes.

    Attributes:
        ratio: Of the medians.
        interval_95: Its bounds.
    """

    ratio: float
    interval_95: tuple[float, float]


@dataclass(frozen=True)
class Record:
    """Figures of one run.

    Attributes:
        machine: Where and when it was.
        yardstick_ms: Median of the yardstick's elapsed time.
        stages: By name, in processor time; ``ELAPSED`` is the whole photo in elapsed time.
    """

    machine: str
    yardstick_ms: float
    stages: dict[str, Ratio]

    def write(self, path: Path) -> None:
        """Write JSON with four digits: more would be noise."""
        text = json.dumps(_rounded(asdict(self)), ensure_ascii=False, indent=1)
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Record":
        """Read what :meth:`write` wrote.

        Raises:
            RecordError: It is not there, or something else.
        """
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            stages = {
                name: Ratio(float(one["ratio"]), (float(low), float(high)))
                for name, one in kept["stages"].items()
                for low, high in [one["interval_95"]]
            }
            found = cls(str(kept["machine"]), float(kept["yardstick_ms"]), stages)
            # Written so that NaN is refused: nothing would ever be slower than that.
            if not all(0 < one.ratio < math.inf for one in stages.values()):
                raise ValueError("expected ratios above 0")
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}; make it with --write") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(
                f"{path}: expected figures as `plates bench creep --write` writes them; "
                "make it anew with --write"
            ) from error
        missing = [name for name in COMPARED if name not in stages]
        if missing:
            raise RecordError(
                f"{path}: no figures for {', '.join(missing)}; make it anew with --write"
            )
        return found


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


def yardstick() -> Callable[[], object]:
    """A fixed piece of work, some milliseconds: a matrix multiply and a copy of memory."""
    left, right = torch.randn(2, _SIDE, _SIDE, generator=torch.Generator().manual_seed(0))
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.zeros_like(source)

    def work() -> None:
        torch.mm(left, right)
        np.copyto(target, source)

    return work


def measure_record(file: bytes, nets: Nets, seconds: float, machine: str) -> Record:
    """Measure each stage and the whole in turns with the yardstick.

    Args:
        file: A photo with plates.
        nets: What is measured.
        seconds: To go on for.
        machine: Its description.
    """
    measured, others = measure_stages(file, {"ours": nets}, seconds, {YARDSTICK: yardstick()})
    ours, unit = measured["ours"], others[YARDSTICK]
    times = {**ours.stages, WHOLE: ours.whole}
    ratios = {name: Ratio(*median_ratio(of.cpu_ms, unit.cpu_ms)) for name, of in times.items()}
    ratios[ELAPSED] = Ratio(*median_ratio(ours.whole.wall_ms, unit.wall_ms))
    return Record(machine, unit.p50_ms, ratios)


def crept(now: Record, kept: Record) -> list[str]:
    """Name the stages that became slower, beyond noise.

    Args:
        now: Measured.
        kept: From the file.

    Returns:
        One sentence for each stage of which even the lower bound is more than 15 % above
        the kept figure, and by more than a hundredth of the photo; empty if none is.
    """
    worth = _LEAST_SHARE * kept.stages[WHOLE].ratio
    return [
        f"{name} takes {one.ratio / before.ratio:.2f} times what it took: {one.ratio:.3g} "
        f"yardsticks, 95 % interval from {one.interval_95[0]:.3g} to {one.interval_95[1]:.3g}; "
        f"kept are {before.ratio:.3g}"
        for name, one, before in ((name, now.stages[name], kept.stages[name]) for name in COMPARED)
        if one.interval_95[0] > (1 + TOLERANCE) * before.ratio and one.ratio - before.ratio > worth
    ]
