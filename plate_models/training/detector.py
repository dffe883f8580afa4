"""Trains the detector: ``plates train detector``."""

import datetime
import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from plate_models import weights
from plate_models.nets.yolov5 import YOLOv5, YOLOv5Graph
from plate_models.spec import DETECTOR
from plate_models.training.detection_check import count_found
from plate_models.training.detection_loss import DetectionLoss, LossWeights, Targets
from plate_models.training.detection_photos import TrainingPhoto, load_empty, load_world
from plate_models.training.detection_windows import Window, WindowSampler, WindowSettings
from plate_models.training.run import (
    AveragedWeights,
    Budget,
    History,
    load_checkpoint,
    save_checkpoint,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DetectorTraining:
    """One experiment.

    Attributes:
        data: Folder with world_photos/ and no_plates/.
        folder: Checkpoints and curves go here; a second run goes on from them.
        minutes: Length of the training over all its runs; the learning rate follows.
        batch_size: Windows per optimizer step.
        peak_rate: Highest learning rate of AdamW.
        weight_decay: Of the convolutions' weights.
        average_decay: Per step, of the averaged weights, which are the ones released.
        threads: CPU threads.
        report_every: Steps between two reports and checkpoints.
        start_from: Folder with a detector's weights to start from; None for random ones.
        release: Where the trained weights are written, or None to keep them in ``folder``.
        seed: Of the first weights and of the windows.
        windows: How training windows are drawn.
        loss: Shares of the loss's parts.
    """

    data: Path
    folder: Path = Path("runs/detector")
    minutes: float = 75.0
    batch_size: int = 16
    peak_rate: float = 2e-3
    weight_decay: float = 0.03
    average_decay: float = 0.998
    threads: int = 1
    report_every: int = 100
    start_from: Path | None = None
    release: Path | None = None
    seed: int = 0
    windows: WindowSettings = field(default_factory=WindowSettings)
    loss: LossWeights = field(default_factory=LossWeights)


class Training:
    """The state of one run and its steps.

    Args:
        config: The experiment.
        sampler: Draws the windows.
    """

    def __init__(self, config: DetectorTraining, sampler: WindowSampler) -> None:
        self.config = config
        self.sampler = sampler
        torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        self.net = YOLOv5(DETECTOR)
        if config.start_from:
            weights.load(self.net, config.start_from / "detector.safetensors")
        self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        head = self.net.head
        self.loss = DetectionLoss(head.anchors, head.strides, config.loss)
        self.optimizer = torch.optim.AdamW(_parameter_groups(self.net, config.weight_decay))
        self.averaged = AveragedWeights(self.net, config.average_decay)
        self.budget = Budget(config.minutes)
        self.steps = 0
        self.history = History(config.folder)
        self.checkpoint = config.folder / "checkpoint.pt"
        self._resume()

    @property
    def samples(self) -> int:
        """Windows seen."""
        return self.steps * self.config.batch_size

    def _resume(self) -> None:
        state = load_checkpoint(self.checkpoint)
        if state is not None:
            self.net.load_state_dict(state["net"])
            self.averaged.module.load_state_dict(state["averaged"])
            self.averaged.updates = self.steps = state["steps"]
            self.optimizer.load_state_dict(state["optimizer"])
            self.budget.spent_s = state["elapsed_s"]
            log.info("resumed at step %d, %.1f minutes", self.steps, state["elapsed_s"] / 60)

    def save(self) -> None:
        """Write the checkpoint that the next run goes on from."""
        state = {
            "net": self.net.state_dict(),
            "averaged": self.averaged.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "steps": self.steps,
            "elapsed_s": self.budget.elapsed_s,
        }
        save_checkpoint(self.checkpoint, state)

    def step(self) -> dict[str, float]:
        """Learn from one batch; returns the loss and its parts."""
        config = self.config
        self.net.train()
        # The step seeds its windows: a resumed run sees what it would have seen.
        rng = np.random.default_rng((config.seed, self.steps))
        images, targets = collate([self.sampler.draw(rng) for _ in range(config.batch_size)])
        rate = self.budget.learning_rate(config.peak_rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16):
            heads = self.net(images)
        loss, parts = self.loss(heads, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 10.0)
        self.optimizer.step()
        self.averaged.update(self.net)
        self.steps += 1
        return {"loss": loss.item(), **parts}

    def release(self, checks: dict[str, Any]) -> Path:
        """Write the averaged weights as safetensors, with how they came to be."""
        summary = {
            "data": "world_photos (training part), no_plates (training half), "
            f"rendered Russian plates painted over {self.sampler.settings.painted:.0%} of them",
            "photos": len(self.sampler.photos),
            "started_from": weights.started_from(self.config.start_from, "detector"),
            "seed": self.config.seed,
            "samples_seen": self.samples,
            "minutes": round(self.budget.elapsed_s / 60, 1),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            **checks,
        }
        folder = self.config.release or self.config.folder
        return weights.save(self.averaged.module, "detector", summary, folder)


def _parameter_groups(net: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay the convolutions' weights only, not biases and norms."""
    matrices = [p for p in net.parameters() if p.ndim > 1]
    vectors = [p for p in net.parameters() if p.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def collate(windows: list[Window]) -> tuple[Tensor, Targets]:
    """Stack windows to (N, 3, S, S) float32 RGB in [0, 1] and number their boxes."""
    images = torch.from_numpy(np.stack([window.image for window in windows]))
    planes = images.permute(0, 3, 1, 2).float() / 255  # channels last in memory

    def numbered(boxes: list[np.ndarray[Any, Any]]) -> Tensor:
        rows = [np.insert(array, 0, index, axis=1) for index, array in enumerate(boxes)]
        return torch.from_numpy(np.concatenate(rows).astype(np.float32))

    return planes, Targets(
        numbered([window.boxes for window in windows]),
        numbered([window.unclear for window in windows]),
        torch.from_numpy(np.concatenate([window.lines for window in windows])),
    )


def train(config: DetectorTraining) -> Path:
    """Train, or go on training, until the minutes are used; then write the weights.

    Returns:
        The weights' file.

    Raises:
        FileNotFoundError: The data folder lacks world_photos/plates.csv.
    """
    photos, validation = load_world(config.data)
    sampler = WindowSampler(photos, load_empty(config.data), config.windows)
    training = Training(config, sampler)
    (config.folder / "config.json").write_text(json.dumps(asdict(config), default=str, indent=2))
    _run(training)
    checks = check(training, validation, load_empty(config.data, held_out=True))
    log.info("%s", json.dumps(checks))
    return training.release(checks)


def _run(training: Training) -> None:
    config = training.config
    bar = tqdm(unit="window", desc="detector", initial=training.samples, mininterval=5)
    reports: list[dict[str, float]] = []
    while training.budget.progress < 1:
        reports.append(training.step())
        bar.update(config.batch_size)
        if training.budget.progress >= 1 or len(reports) == config.report_every:
            means = {name: float(np.mean([r[name] for r in reports])) for name in reports[0]}
            bar.set_postfix({name: f"{value:.4f}" for name, value in means.items()})
            rate = training.budget.learning_rate(config.peak_rate)
            training.history.add({"samples": training.samples, **means, "rate": rate})
            training.save()
            reports.clear()
    bar.close()


def check(
    training: Training, validation: list[TrainingPhoto], negatives: list[TrainingPhoto]
) -> dict[str, Any]:
    """Count what the averaged weights find on photos that were not trained on."""
    graph = YOLOv5Graph(cast(YOLOv5, training.averaged.module), DETECTOR).eval()
    return {
        "validation": count_found(graph, validation).to_dict(),
        "no_plates_held_out": count_found(graph, negatives).to_dict(),
    }
