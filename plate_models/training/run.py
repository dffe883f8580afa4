"""What both trainings share: a budget of time, averaged weights, checkpoints, curves, release."""

import datetime
import math
import shutil
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm import tqdm

from plate_models import weights

_BAR = "{percentage:3.0f}%|{bar}| {n:.1f} of {total:.1f} min, {remaining} left{postfix}"


@dataclass
class Budget:
    """A training's minutes, over all its resumed runs, and the learning rate they give.

    The schedule follows the clock, not a step count: it ends on time on any machine.
    """

    minutes: float  # length of the whole training
    spent_s: float = 0.0  # seconds used by earlier runs, from the checkpoint
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


class Run:
    """A net in training: optimizer, average, budget, and a checkpoint to go on from."""

    def __init__(
        self,
        net: nn.Module,
        optimizer: Optimizer,
        folder: Path,
        minutes: float,
        peak_rate: float,
        decay: float = 0.999,
    ) -> None:
        self.net, self.optimizer = net, optimizer
        self.averaged = AveragedWeights(net, decay)
        self.budget = Budget(minutes)
        self.history = History(folder)
        self.samples = 0
        self._folder, self._peak_rate = folder, peak_rate
        self._checkpoint = folder / "checkpoint.pt"
        if self._checkpoint.is_file():
            state = torch.load(self._checkpoint, map_location="cpu", weights_only=True)
            net.load_state_dict(state["net"])
            self.averaged.module.load_state_dict(state["averaged"])
            optimizer.load_state_dict(state["optimizer"])
            self.averaged.updates, self.samples = state["steps"], state["samples"]
            self.budget.spent_s = state["elapsed_s"]

    @property
    def steps(self) -> int:
        """Optimizer steps so far, earlier runs included."""
        return self.averaged.updates

    def save(self) -> None:
        """Write the checkpoint in one step: a killed training leaves the last whole one."""
        state = {
            "net": self.net.state_dict(),
            "averaged": self.averaged.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "steps": self.steps,
            "samples": self.samples,
            "elapsed_s": self.budget.elapsed_s,
        }
        partial = self._checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self._checkpoint)

    def learn(self, loss: Tensor, samples: int, most_gradient: float) -> None:
        """Take one optimizer step, at the rate that the clock asks for."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.budget.learning_rate(self._peak_rate)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), most_gradient)
        self.optimizer.step()
        self.averaged.update(self.net)
        self.samples += samples

    def use_up(
        self,
        step: Callable[[], dict[str, float]],
        report_every: int,
        check: Callable[[], dict[str, float]] = dict,
    ) -> None:
        """Take steps until the minutes are used; report, draw and save every so many steps.

        Args:
            step: Learns from one batch; returns what the curves show.
            report_every: Steps between two reports.
            check: Measures the averaged weights, for the curves, too.
        """
        taken: list[dict[str, float]] = []
        done = self.budget.progress * self.budget.minutes
        with tqdm(total=self.budget.minutes, initial=done, bar_format=_BAR) as bar:
            while self.budget.progress < 1:
                taken.append(step())
                bar.update(self.budget.progress * self.budget.minutes - bar.n)
                if self.budget.progress >= 1 or len(taken) == report_every:
                    row = {"samples": self.samples, **pd.DataFrame(taken).mean(), **check()}
                    bar.set_postfix({name: f"{value:.4g}" for name, value in row.items()})
                    rate = self.budget.learning_rate(self._peak_rate)
                    self.history.add({**row, "rate": rate})
                    self.save()
                    taken.clear()

    def release(
        self,
        nets: Mapping[str, nn.Module],
        summary: Mapping[str, Any],
        start_from: Path | None,
        folder: Path | None,
    ) -> list[Path]:
        """Write finished weights to the run's folder, and copy them to where they are released.

        Args:
            nets: By name, as `weights.save` takes them.
            summary: How they came to be; what every training knows is added.
            start_from: Folder of the weights that the training began with.
            folder: Where they are released, made if need be; None leaves them in the run's.

        Raises:
            OSError: They could not be copied; the message says where they lie.
        """
        about = {
            "samples_seen": self.samples,
            "minutes": round(self.budget.elapsed_s / 60, 1),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            **summary,
        }
        files = []
        for name, net in nets.items():
            origin = {"started_from": weights.started_from(start_from, name)}
            files.append(weights.save(net, name, {**about, **origin}, self._folder))
        if folder is None:
            return files
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return [Path(shutil.copy(file, folder / file.name)) for file in files]
        except OSError as error:
            kept = ", ".join(map(str, files))
            message = f"can't write the weights to {folder}: {error}; they lie in {kept}"
            raise OSError(message) from error


class History:
    """The curves of a training: one CSV row per report, and their picture."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.csv = folder / "curves.csv"
        self.picture = folder / "curves.png"

    def add(self, row: dict[str, float]) -> None:
        """Append a row (same keys each time) and draw the picture anew."""
        pd.DataFrame([row]).to_csv(self.csv, mode="a", header=not self.csv.exists(), index=False)
        self._draw()

    def _draw(self) -> None:
        from matplotlib.figure import Figure

        curves = pd.read_csv(self.csv, index_col="samples")
        rows = math.ceil(len(curves.columns) / 2)
        figure = Figure(figsize=(10, 2.2 * rows), layout="constrained")
        for place, name in enumerate(curves.columns, 1):
            axes = figure.add_subplot(rows, 2, place)
            axes.plot(curves.index, curves[name])
            axes.set(title=name, xlabel="samples seen")
            axes.grid(alpha=0.3)
        figure.savefig(self.picture)
