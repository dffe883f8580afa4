"""Checkpoints as YOLOv5's own training writes them: pickled modules of foreign classes."""

import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from plate_models.nets.yolov5 import YOLOv5, YOLOv5Graph
from plate_models.spec import DetectorSpec

TREE = "models.yolo"
# Its own width, depth and anchors, and one class.
SPEC = DetectorSpec(
    classes=("one_line",),
    anchors_wh=(
        ((10.0, 13.0), (16.0, 30.0), (33.0, 23.0)),
        ((30.0, 61.0), (62.0, 45.0), (59.0, 119.0)),
        ((116.0, 90.0), (156.0, 198.0), (373.0, 326.0)),
    ),
    width_multiple=0.125,
    depth_multiple=0.33,
)


def make_net(spec: DetectorSpec = SPEC, seed: int = 0) -> YOLOv5:
    """Random weights and statistics, rounded as a published file's are."""
    torch.manual_seed(seed)
    net = YOLOv5(spec)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    return net.half().float().eval()


def heads(net: YOLOv5) -> list[torch.Tensor]:
    """What the net says before anything is squashed into probabilities."""
    canvas = torch.rand(1, 3, 96, 160, generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        return net(canvas)


def candidates(net: YOLOv5, spec: DetectorSpec) -> torch.Tensor:
    canvas = torch.randint(0, 256, (1, 3, 96, 160), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        return YOLOv5Graph(net, spec)(canvas.to(torch.uint8))


def as_published(net: YOLOv5) -> nn.Module:
    """The same tensors in a tree of classes that only the other project has."""
    classes: dict[str, type[nn.Module]] = {}

    def convert(module: nn.Module) -> nn.Module:
        name = type(module).__name__
        if type(module).__module__.startswith("torch.") and name != "ModuleList":
            return module
        name = {"YOLOv5": "DetectionModel", "ModuleList": "Blocks"}.get(name, name)
        if name not in classes:
            classes[name] = type(name, (nn.Module,), {"__module__": TREE})
            setattr(sys.modules[TREE], name, classes[name])
        other = classes[name]()
        other._parameters, other._buffers = module._parameters, module._buffers
        for key, child in module._modules.items():
            other.add_module(key, convert(child))
        return other

    model = convert(net)
    model.yaml = {"nc": 1, "depth_multiple": 0.33, "backbone": [[-1, 1, "Conv", [64, 6, 2, 2]]]}
    model.names = {0: "plate"}
    model.stride = torch.tensor([8.0, 16.0, 32.0])
    model.save_layers = [4, 6, 10, 14, 17, 20, 23]
    return model


def write_checkpoint(
    path: Path,
    net: YOLOv5,
    monkeypatch: pytest.MonkeyPatch,
    wrap: Callable[[nn.Module], object] = lambda model: {"model": model, "ema": None},
) -> Path:
    """Write what a training leaves; its classes are gone again afterwards."""
    with monkeypatch.context() as patch:
        for name in ("models", TREE):
            patch.setitem(sys.modules, name, types.ModuleType(name))
        extras = {"epoch": -1, "best_fitness": np.array([0.5]), "optimizer": None, "date": "today"}
        extras["opt"] = {"save_dir": Path("runs/train"), "device": torch.device("cpu")}
        saved = wrap(as_published(net).half())
        torch.save({**extras, **saved} if isinstance(saved, dict) else saved, path)
    net.float()
    assert TREE not in sys.modules
    return path
