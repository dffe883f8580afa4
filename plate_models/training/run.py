"""What both trainings share: a time budget, averaged weights, checkpoints, curves."""

import csv
import math
import time
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn


@dataclass
class Budget:
    """A training's minutes, over all its resumed runs, and the learning rate they give.

    The schedule follows the clock, not a step count: it ends on time on any machine.

    Attributes:
        minutes: Length of the whole training.
        spent_s: Seconds used by earlier runs, from the checkpoint.
    """

    minutes: float
    spent_s: float = 0.0
    _started: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Seconds used so far, earlier runs included."""
        return self.spent_s + time.monotonic() - self._started

    @property
    def progress(self) -> float:
        """Share of the budget used, in [0, 1]."""
        return min(1.0, self.elapsed_s / max(self.minutes * 60, 1e-9))

    def learning_rate(self, peak: float, warmup: float = 0.03) -> float:
        """Rise linearly to ``peak`` over the warm-up share, then fall along a cosine to 0."""
        if self.progress < warmup:
            return peak * max(self.progress / warmup, 0.01)
        share = (self.progress - warmup) / (1 - warmup)
        return peak * 0.5 * (1 + math.cos(math.pi * share))


class AveragedWeights:
    """Exponential moving average of a net's weights: steadier than the last step's."""

    def __init__(self, module: nn.Module, decay: float = 0.999) -> None:
        self.module = deepcopy(module).eval().requires_grad_(False)
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Take in one optimizer step; early on the average follows faster."""
        self.updates += 1
        decay = self.decay * (1 - math.exp(-self.updates / 500))
        current = module.state_dict()
        for name, average in self.module.state_dict().items():
            if average.is_floating_point():
                average.lerp_(current[name].detach().to(average.dtype), 1 - decay)


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint in one step: a killed training leaves the last whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint of :func:`save_checkpoint`; None if there is none yet."""
    if not path.is_file():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


class History:
    """The curves of a training: one CSV row per report, and their picture."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.csv = folder / "curves.csv"
        self.picture = folder / "curves.png"

    def add(self, row: dict[str, float]) -> None:
        """Append a row (same keys each time) and draw the picture anew."""
        new = not self.csv.exists()
        with self.csv.open("a", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)
        self._draw()

    def _draw(self) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        with self.csv.open(newline="") as file:
            rows = list(csv.DictReader(file))
        names = [name for name in rows[0] if name != "samples"]
        figure = Figure(figsize=(10, 2.2 * math.ceil(len(names) / 2)), layout="constrained")
        FigureCanvasAgg(figure)
        for index, name in enumerate(names):
            axes = figure.add_subplot(math.ceil(len(names) / 2), 2, index + 1)
            axes.plot([float(r["samples"]) for r in rows], [float(r[name]) for r in rows])
            axes.set(title=name, xlabel="samples seen")
            axes.grid(alpha=0.3)
        figure.savefig(self.picture)
