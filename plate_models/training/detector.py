"""Trains the detector: `plates train detector`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import pad

from plate_models import weights
from plate_models.nets.yolov5 import YOLOv5
from plate_models.pixels import to_device
from plate_models.spec import DEFAULTS, DETECTOR
from plate_models.training.detection_data import Window, WindowSampler, load_empty, load_world
from plate_models.training.detection_loss import Targets, detection_loss
from plate_models.training.run import Experiment, Run, autocast


@dataclass(frozen=True, kw_only=True)
class DetectorTraining(Experiment):
    """One experiment with the detector."""

    data: Annotated[Path, "folder with world_photos/ and no_plates/"]
    folder: Annotated[Path, "checkpoints, to resume from, and curves"] = Path("runs/detector")
    minutes: Annotated[float, "length of the training, all its runs together"] = 75.0
    batch_size: Annotated[int, "windows per optimizer step"] = 16
    peak_rate: Annotated[float, "highest learning rate of AdamW"] = 2e-3
    weight_decay: Annotated[float, "of the convolutions' weights"] = 0.03
    report_every: Annotated[int, "steps between two reports and checkpoints"] = 100
    start_from: Annotated[Path | None, "folder of weights to start from"] = None
    seed: Annotated[int, "of the initial weights and of the windows"] = 0


class Training(Run[list[Window]]):
    """The training of the detector."""

    def __init__(self, config: DetectorTraining) -> None:
        torch.manual_seed(config.seed)
        net = YOLOv5(DETECTOR)
        if config.start_from:
            file = weights.read_file(config.start_from / "detector.safetensors")
            net = cast(YOLOv5, weights.build_from(file, DEFAULTS))
        self.head = net.head
        # Weight decay applies to the convolutions' weights, not to biases and norms.
        groups = [
            {"params": [p for p in net.parameters() if (p.ndim > 1) == matrices], "weight_decay": x}
            for matrices, x in ((True, config.weight_decay), (False, 0.0))
        ]
        super().__init__(config, net, groups, decay=0.998)

    def step(self, windows: list[Window]) -> dict[str, float]:
        """Learn from one batch; returns the loss and its terms."""
        images, targets = collate(windows, self.config.device)
        with autocast(self.config.device):
            heads = self.net(images)
        loss, parts = detection_loss(heads, targets, self.head.anchors, self.head.strides)
        self.learn(loss, len(windows), most_gradient=10.0)
        return {"loss": loss.item(), **parts}


def collate(windows: list[Window], device: str) -> tuple[torch.Tensor, Targets]:
    """Stack windows into (N, 3, S, S) float32 RGB in [0, 1], and their targets, on a device."""
    images = to_device(np.stack([window.image for window in windows]), device)
    planes = images.permute(0, 3, 1, 2).float() / 255  # channels last in memory

    def numbered(boxes: list[NDArray[np.float32]]) -> torch.Tensor:
        rows = [pad(torch.from_numpy(a), (1, 0), value=n) for n, a in enumerate(boxes)]
        return torch.cat(rows).to(device)

    return planes, Targets(
        numbered([window.boxes for window in windows]),
        numbered([window.unclear for window in windows]),
        to_device(np.concatenate([window.lines for window in windows]), device),
    )


def train(config: DetectorTraining) -> Path:
    """Train, or resume training, until the minutes are used; then write the weights.

    Returns the weights' file. Raises FileNotFoundError if there is no world_photos/plates.csv.
    """
    photos = load_world(config.data)
    sampler = WindowSampler(photos, load_empty(config.data))
    training = Training(config)
    training.use_up(lambda rng: [sampler.draw(rng) for _ in range(config.batch_size)])
    summary = {
        "data": "world_photos (training part), no_plates (training half), "
        f"rendered Russian plates painted over {sampler.settings.painted:.0%} of them, "
        "rendered things that look like plates beside them",
        "photos": len(photos),
        "seed": config.seed,
    }
    return training.release({"detector": training.averaged.module}, summary)[0]
