"""The training loop: time budget, averaged weights, checkpoints, curves, release of weights."""

import io
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from signal import SIGKILL
from typing import Annotated, Any, Generic, TypeVar

import cv2
import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader
from tqdm import tqdm

from plate_models import weights
from plate_models.process import die_with_parent
from plate_models.release import WeightsError, replace_file, sha256_of

Batch = TypeVar("Batch")
Figures = dict[str, float]  # by name, of a step or a check

_BAR = "{percentage:3.0f}%|{bar}| {n:.1f} of {total:.1f} min, {remaining} left{postfix}"
_WARM_UP = 0.03


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The settings of every training; `plates train` shows the annotated texts as help."""

    # Each training defines its own defaults and help texts for these fields.
    folder: Path
    minutes: float
    peak_rate: float
    report_every: int
    seed: int
    start_from: Path | None = None
    threads: Annotated[int, "CPU threads of the training itself"] = 1
    device: Annotated[str, "where the nets learn, cpu or cuda:0"] = "cpu"
    loaders: Annotated[int, "processes that draw batches; 0: the training's own process"] = 0
    release: Annotated[Path | None, "folder for the trained weights instead of the run's"] = None


def autocast(device: str) -> torch.autocast:
    """Compute in bfloat16 if the processor supports it: emulation takes nine times as long."""
    kind = torch.device(device).type
    if kind != "cpu":
        return torch.autocast(kind, torch.bfloat16)
    from plate_models.engines.openvino_engine import computes_in_bf16

    return torch.autocast("cpu", torch.bfloat16, enabled=computes_in_bf16())


class Run(Generic[Batch]):
    """A net in training: optimizer, averaged weights, and a checkpoint to resume from.

    The learning rate follows the clock, not a step count: a training ends on time on any machine.
    Raises WeightsError if the folder's checkpoint is damaged or of another training.
    """

    def __init__(
        self, config: Experiment, net: nn.Module, groups: list[Any], decay: float = 0.999
    ) -> None:
        """Move a net to its device; the groups are the parameter groups for AdamW."""
        torch.set_num_threads(config.threads)
        net.train().to(config.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

        def average(kept: Tensor, new: Tensor, steps: Tensor | int) -> Tensor:
            # In the first steps the average follows faster.
            return kept + (1 - decay * (1 - math.exp(-(int(steps) + 1) / 500))) * (new - kept)

        self.config, self.net, self.optimizer = config, net, torch.optim.AdamW(groups)
        self.averaged = AveragedModel(net, avg_fn=average, use_buffers=True).eval()
        self.samples = 0
        self.curves: list[Figures] = []  # a row for each report
        self.spent_s = 0.0  # by earlier runs
        self._started, self._checkpoint = time.monotonic(), config.folder / "checkpoint.pt"
        config.folder.mkdir(parents=True, exist_ok=True)
        if self._checkpoint.is_file():
            try:
                state = torch.load(self._checkpoint, map_location="cpu", weights_only=True)
                net.load_state_dict(state["net"])
                self.averaged.load_state_dict(state["averaged"])
                self.optimizer.load_state_dict(state["optimizer"])
                self.samples, self.spent_s = state["samples"], state["elapsed_s"]
                self.curves = state.get("curves", [])  # absent in older checkpoints
                if state.get("start_from") not in (None, str(config.start_from)):
                    raise ValueError("started from other weights")
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, ValueError, KeyError, EOFError, UnpicklingError) as error:
                raise WeightsError(
                    f"{self._checkpoint}: damaged, or of another net, alphabet or --start-from: "
                    "delete it, or choose another --folder"
                ) from error

    @property
    def steps(self) -> int:
        """Optimizer steps so far, including earlier runs."""
        return int(self.averaged.n_averaged)

    def batches(self, draw: Callable[[np.random.Generator], Batch]) -> Iterator[Batch]:
        """Draw each remaining step's batch, with the same generator as in an uninterrupted run.

        Loader processes draw batches ahead; without loaders, this process draws them on demand.
        """
        if self.config.loaders:
            cv2.setNumThreads(1)  # else a forked process waits for its parent's threads for ever

        def drawn(step: Any) -> Batch:
            return draw(np.random.default_rng((self.config.seed, step)))

        steps: Any = range(self.steps, sys.maxsize)
        options: Any = {"collate_fn": drawn, "worker_init_fn": lambda _: die_with_parent(SIGKILL)}
        return iter(DataLoader(steps, None, num_workers=self.config.loaders, **options))

    @property
    def elapsed_s(self) -> float:
        """Seconds used so far, including earlier runs."""
        return self.spent_s + time.monotonic() - self._started

    @property
    def progress(self) -> float:
        """Share of the minutes used, in [0, 1]."""
        return min(1.0, self.elapsed_s / max(self.config.minutes * 60, 1e-9))

    @property
    def rate(self) -> float:
        """The current learning rate: linear warm-up, then cosine decay to 0."""
        if (progress := self.progress) < _WARM_UP:
            return self.config.peak_rate * max(progress / _WARM_UP, 0.01)
        done = (progress - _WARM_UP) / (1 - _WARM_UP)
        return self.config.peak_rate * 0.5 * (1 + math.cos(math.pi * done))

    def save(self) -> None:
        """Replace the checkpoint atomically: a killed training leaves the last complete one."""
        state = {
            "net": self.net.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "samples": self.samples,
            "elapsed_s": self.elapsed_s,
            "curves": self.curves,
            "start_from": str(self.config.start_from),
        }
        torch.save(state, data := io.BytesIO())  # torch would hide the cause, such as a full disk
        replace_file(self._checkpoint, data.getbuffer())

    def step(self, batch: Batch) -> Figures:
        """Learn from one batch by calling `learn`; returns the figures for the curves."""
        raise NotImplementedError

    def learn(self, loss: Tensor, samples: int, most_gradient: float) -> None:
        """Take one optimizer step at the current learning rate, with clipped gradients."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), most_gradient)
        self.optimizer.step()
        self.averaged.update_parameters(self.net)
        self.samples += samples

    def use_up(
        self, draw: Callable[[np.random.Generator], Batch], check: Callable[[], Figures] = dict
    ) -> None:
        """Learn from drawn batches until the minutes are used; save every `report_every` steps.

        The figures of the steps, and of the check of the averaged weights, are reported and drawn.
        """
        batches, taken = self.batches(draw), list[Figures]()
        minutes, done = self.config.minutes, self.progress * self.config.minutes
        with tqdm(total=minutes, initial=done, bar_format=_BAR) as bar:
            while self.progress < 1:
                taken.append(self.step(next(batches)))
                bar.update(self.progress * minutes - bar.n)
                if self.progress >= 1 or len(taken) == self.config.report_every:
                    means = pd.DataFrame(taken).mean().to_dict()
                    row = {"samples": self.samples, **means, **check()}
                    bar.set_postfix({name: f"{value:.4g}" for name, value in row.items()})
                    self.curves.append({**row, "rate": self.rate})
                    self.save()
                    self._draw()
                    taken.clear()
        self.save()  # saving in the loop may have used up the rest of the time that it recorded

    def _draw(self) -> None:
        """Write and plot the curves; rows have the same keys."""
        from matplotlib.figure import Figure

        curves = pd.DataFrame(self.curves).set_index("samples")
        curves.to_csv(self.config.folder / "curves.csv")
        rows = math.ceil(len(curves.columns) / 2)
        figure = Figure(figsize=(10, 2.2 * rows), layout="constrained")
        places = figure.subplots(rows, 2).flat[: len(curves.columns)]
        curves.plot(ax=places, subplots=True, legend=False, grid=True, title=[*curves])
        figure.savefig(self.config.folder / "curves.png")

    def release(self, nets: Mapping[str, nn.Module], summary: Mapping[str, Any]) -> list[Path]:
        """Write the trained weights; if that fails, the next run resumes from the checkpoint."""
        folder, start_from = self.config.release or self.config.folder, self.config.start_from
        about = {"samples_seen": self.samples, "minutes": round(self.elapsed_s / 60, 1), **summary}
        files = []
        for name, net in nets.items():
            about["started_from"] = None  # random initial values
            if start_from and (first := start_from / f"{name}.safetensors").exists():
                about["started_from"] = f"sha256:{sha256_of(first)}"
            files.append(weights.save(net, name, about, folder))
        # The next run in this folder is a new training, maybe from other weights.
        self._checkpoint.replace(self._checkpoint.with_name("finished.pt"))
        return files
