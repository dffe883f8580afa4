"""Train the detector: ``plates train detector``.

One process, one schedule that ends on time: progress is the larger share of the
minutes and of the steps granted, learning rate and record follow it, and a run that
was stopped goes on from its checkpoint with the minutes that were left.
"""

import json
import logging
import math
import time
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plate_models import weights
from plate_models.nets.yolov5 import YOLOv5, YOLOv5Graph
from plate_models.spec import DETECTOR
from plate_models.training.detection_check import count_found
from plate_models.training.detection_loss import DetectionLoss, LossWeights, Targets
from plate_models.training.detection_photos import load_negatives, load_world
from plate_models.training.detection_windows import Window, WindowSampler, WindowSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DetectorTraining:
    """One experiment.

    Attributes:
        data: Folder with world_photos/ and no_plates/.
        run: Folder for checkpoint, record, curves and the finished weights.
        minutes: Time granted, over all resumptions; 0: no limit.
        steps: Steps granted; 0: no limit. One of the two must be set.
        batch: Windows per step.
        learning_rate: At its peak, after the warm-up; falls along a cosine to zero.
        warm_up: Share of the run in which the learning rate rises.
        ema: Decay per step of the averaged weights, which are the ones released.
        threads: CPU threads of torch.
        checkpoint_minutes: Time between checkpoints.
    """

    data: Path
    run: Path = Path("runs/detector")
    minutes: float = 75.0
    steps: int = 0
    batch: int = 16
    learning_rate: float = 2e-3
    weight_decay: float = 0.03
    warm_up: float = 0.03
    ema: float = 0.998
    seed: int = 0
    threads: int = 1
    checkpoint_minutes: float = 4.0
    log_every: int = 50
    windows: WindowSettings = field(default_factory=WindowSettings)
    loss: LossWeights = field(default_factory=LossWeights)


class Trainer:
    """Net, its average, optimizer and position in the run; everything a checkpoint holds."""

    def __init__(self, config: DetectorTraining, sampler: WindowSampler) -> None:
        if config.minutes <= 0 and config.steps <= 0:
            raise ValueError("expected minutes or steps above 0, got neither: the run has no end")
        torch.manual_seed(config.seed)
        self.config = config
        self.sampler = sampler
        self.net = YOLOv5(DETECTOR).train()
        self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = deepcopy(self.net).eval().requires_grad_(False)
        head = self.net.head
        self.loss = DetectionLoss(head.anchors, head.strides, config.loss)
        self.optimizer = torch.optim.AdamW(_parameter_groups(self.net, config.weight_decay))
        self.step = 0
        self.elapsed_s = 0.0
        self.record: list[dict[str, float]] = []

    @property
    def progress(self) -> float:
        """Share of the run that is done, in [0, 1]."""
        shares = [0.0]
        if self.config.minutes > 0:
            shares.append(self.elapsed_s / 60 / self.config.minutes)
        if self.config.steps > 0:
            shares.append(self.step / self.config.steps)
        return min(max(shares), 1.0)

    def learning_rate(self) -> float:
        """Linear rise over the warm-up, then half a cosine down to zero."""
        rise = min(self.progress / max(self.config.warm_up, 1e-6), 1.0)
        fall = 0.5 * (1 + math.cos(math.pi * self.progress))
        return self.config.learning_rate * min(max(rise, 0.02), 1.0) * fall

    def advance(self) -> dict[str, float]:
        """Take one step; returns the loss and its parts."""
        started = time.monotonic()
        # The step seeds the windows: a resumed run sees what it would have seen.
        rng = np.random.default_rng((self.config.seed, self.step))
        images, targets = collate([self.sampler.draw(rng) for _ in range(self.config.batch)])
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            heads = self.net(images)
        loss, parts = self.loss(heads, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 10.0)
        self.optimizer.step()
        self.step += 1
        self._follow()
        self.elapsed_s += time.monotonic() - started
        return {"loss": float(loss.detach()), **parts}

    def _follow(self) -> None:
        """Move the averaged weights towards the net's, fast at the start."""
        decay = min(self.config.ema, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            current = self.net.state_dict()
            for name, value in self.average.state_dict().items():
                if value.is_floating_point():
                    value.lerp_(current[name], 1 - decay)
                else:
                    value.copy_(current[name])

    def save(self, path: Path) -> None:
        """Write the checkpoint; an interrupted write leaves the former one."""
        state = {
            "net": self.net.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "elapsed_s": self.elapsed_s,
            "record": self.record,
        }
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint."""
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        self.net.load_state_dict(state["net"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.elapsed_s = state["step"], state["elapsed_s"]
        self.record = state["record"]


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
    )


def _parameter_groups(net: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay the convolutions' weights only, not biases and norms."""
    matrices = [p for p in net.parameters() if p.ndim > 1]
    vectors = [p for p in net.parameters() if p.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def run(trainer: Trainer) -> None:
    """Train to the end, with checkpoints, a record and curves in the run's folder."""
    config = trainer.config
    checkpoint = config.run / "checkpoint.pt"
    sums: dict[str, float] = {}
    taken, saved_at = 0, trainer.elapsed_s
    while trainer.progress < 1:
        for name, value in trainer.advance().items():
            sums[name] = sums.get(name, 0.0) + value
        taken += 1
        if taken == config.log_every or trainer.progress >= 1:
            row = {
                "step": trainer.step,
                "minutes": trainer.elapsed_s / 60,
                "learning_rate": trainer.learning_rate(),
                **{name: value / taken for name, value in sums.items()},
            }
            trainer.record.append(row)
            log.info("%s", json.dumps({key: round(value, 5) for key, value in row.items()}))
            sums, taken = {}, 0
        if trainer.elapsed_s - saved_at > config.checkpoint_minutes * 60:
            trainer.save(checkpoint)
            draw_curves(trainer.record, config.run / "curves.png")
            saved_at = trainer.elapsed_s
    trainer.save(checkpoint)
    draw_curves(trainer.record, config.run / "curves.png")


def draw_curves(record: list[dict[str, float]], path: Path) -> None:
    """Plot loss, its parts and the learning rate over the steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    steps = [row["step"] for row in record]
    for name in ("loss", "box", "objectness", "class"):
        left.plot(steps, [row[name] for row in record], label=name)
    left.set(xlabel="step", ylabel="loss", yscale="log")
    left.legend()
    right.plot(steps, [row["learning_rate"] for row in record])
    right.set(xlabel="step", ylabel="learning rate")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def train(config: DetectorTraining) -> Path:
    """Train, or go on training, and write the averaged weights.

    Returns:
        ``detector.safetensors`` in the run's folder.

    Raises:
        FileNotFoundError: The data folder lacks world_photos/plates.csv.
        ValueError: Neither minutes nor steps are granted.
    """
    torch.set_num_threads(config.threads)
    config.run.mkdir(parents=True, exist_ok=True)
    photos, validation = load_world(config.data)
    sampler = WindowSampler(photos, load_negatives(config.data), config.windows)
    trainer = Trainer(config, sampler)
    checkpoint = config.run / "checkpoint.pt"
    if checkpoint.exists():
        trainer.resume(checkpoint)
        log.info("resumed at step %d, %.1f minutes", trainer.step, trainer.elapsed_s / 60)
    (config.run / "config.json").write_text(json.dumps(asdict(config), default=str, indent=2))
    run(trainer)
    graph = YOLOv5Graph(trainer.average, DETECTOR)
    checks = {
        "validation": count_found(graph, validation).to_dict(),
        "no_plates_held_out": count_found(graph, load_negatives(config.data, True)).to_dict(),
    }
    log.info("%s", json.dumps(checks))
    return weights.save(trainer.average, "detector", summarize(trainer) | checks, config.run)


def summarize(trainer: Trainer) -> dict[str, Any]:
    """How the weights came about, for their metadata."""
    return {
        "data": "world_photos (four fifths), no_plates (half), painted Russian plates",
        "photos": len(trainer.sampler.photos),
        "windows_seen": trainer.step * trainer.config.batch,
        "steps": trainer.step,
        "minutes": round(trainer.elapsed_s / 60, 1),
        "date": time.strftime("%Y-%m-%d"),
    }
