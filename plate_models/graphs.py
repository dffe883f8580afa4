"""What is exported, and when two implementations of it agree."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plate_models.spec import Specs

Net = Callable[[Tensor], Any]
Outputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Graph:
    """How one net is exported.

    Attributes:
        name: Of the Triton model.
        shape: (C, H, W) of the input it is traced with.
        dtype: uint8 in [0, 255], or float32 normalised.
        dynamic: Names of the input's axes that may vary, beside the batch axis.
        outputs: Shapes without the batch axis; an axis with a name varies with the weights.
        compare: Largest difference between outputs as a share of what is allowed.
    """

    name: str
    shape: tuple[int, int, int]
    dtype: torch.dtype
    dynamic: dict[int, str]
    outputs: tuple[tuple[int | str, ...], ...]
    compare: Callable[[Outputs, Outputs], float]

    def example(self, batch: int) -> Tensor:
        """Make a reproducible input (batch, C, H, W) to trace with, of random values."""
        generator = torch.Generator().manual_seed(batch)
        pixels = torch.randint(0, 256, (batch, *self.shape), generator=generator)
        return pixels.to(torch.uint8) if self.dtype == torch.uint8 else pixels / 127.5 - 1


def compare_values(expected: Outputs, found: Outputs, tolerance: float = 1e-3) -> float:
    """Compare outputs element by element, for `Graph.compare`."""
    pairs = zip(expected, found, strict=True)
    # torch's max, not Python's: it passes NaN on.
    return float(torch.stack([(one - other).abs().max() for one, other in pairs]).max() / tolerance)


def compare_candidates(expected: Outputs, found: Outputs) -> float:
    """Compare candidate boxes in any order, for `Graph.compare`: equal scores may change places.

    Each is one tensor (N, 300, 6): x0, y0, x1, y1 in pixels, score, class. 0.05 pixels and
    0.001 of the score are allowed.
    """
    allowed = torch.tensor([0.05, 0.05, 0.05, 0.05, 1e-3, 0.5])
    differences = [(expected[0][..., 4] - found[0][..., 4]).abs().max() / allowed[4]]
    for rows, others in zip(expected[0], found[0], strict=True):
        # At the cut it is chance which of two equals gets in.
        kept = rows[rows[:, 4] > rows[-1, 4] + allowed[4]]
        distances = ((kept[:, None] - others[None]).abs() / allowed).amax(dim=2)
        differences += list(distances.amin(dim=1))
    return float(torch.stack(differences).max())


def graphs_of(specs: Specs) -> tuple[Graph, Graph, Graph]:
    """How detector, rectifier and recognizer are exported."""
    detector, rectifier, recognizer = specs.detector, specs.rectifier, specs.recognizer
    canvas = (3, *detector.canvases_hw[0])
    crops, plates = (3, *rectifier.crop_hw), (3, *rectifier.rectified_hw)
    axes = {2: "height", 3: "width"}
    candidates = ((detector.max_candidates, 6),)
    logits = (("classes", recognizer.steps),)
    return (
        Graph("yolo", canvas, torch.uint8, axes, candidates, compare_candidates),
        Graph("stn", crops, torch.float32, {}, (plates, (2, 3)), compare_values),
        Graph("lprnet", plates, torch.float32, {}, logits, compare_values),
    )
