"""Whether exported graphs compute what their modules do, on plates and scenes as they come.

Random pixels would say little: nets answer them with next to nothing, and what an engine
gets wrong shows where there is something to see.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product

import numpy as np
import torch
from torch import Tensor

from plate_models.geometry import letterbox
from plate_models.graphs import Graph, Net, Outputs
from plate_models.images import decode
from plate_models.rectifying import normalize
from plate_models.spec_json import Specs
from plate_models.training.benchmark import render_photo
from plate_models.training.known_crops import render

BATCHES = (1, 4, 32)
_KINDS = ("ru.car", "ru.motorcycle")
_BRIGHTNESS = (1.0, 0.8, 0.6, 0.4)


def batch_sizes(largest: int) -> list[int]:
    """Which batches a graph is checked with: those of `BATCHES`, up to its largest."""
    return sorted({min(size, largest) for size in BATCHES})


def inputs_for(specs: Specs, rectify: Net) -> dict[str, list[Tensor]]:
    """Make what each graph is checked on.

    Args:
        specs: What the nets were made for.
        rectify: The rectifier's module, which makes the recognizer's inputs.

    Returns:
        For each graph its batches: crops, rectified plates, and scenes, on every canvas
        alone and on the first one in each batch.
    """
    sizes = batch_sizes(specs.rectifier.max_batch_size)
    crops = normalize(_crops(sizes[-1]), specs.rectifier)
    with torch.inference_mode():
        plates = rectify(crops)[0]
    first, *others = specs.detector.canvases_hw
    scenes = _scenes(first, batch_sizes(specs.detector.max_batch_size)[-1])
    return {
        "yolo": [
            *(_scenes(canvas_hw, 1) for canvas_hw in others),
            *(scenes[:size] for size in batch_sizes(specs.detector.max_batch_size)),
        ],
        "stn": [crops[:size] for size in sizes],
        "lprnet": [plates[:size] for size in batch_sizes(specs.recognizer.max_batch_size)],
    }


def disagreement(
    graph: Graph, net: Net, artifacts: Mapping[str, Net], batches: Sequence[Tensor]
) -> str:
    """Compare artifacts with their module.

    Args:
        graph: When outputs agree.
        net: The module.
        artifacts: What is compared, by name.
        batches: Inputs.

    Returns:
        What disagrees and how far; "" where nothing is further off than allowed.
    """
    for inputs in batches:
        expected = _outputs(net, inputs)
        for kind, artifact in artifacts.items():
            difference = graph.compare(expected, _outputs(artifact, inputs))
            # Written so that NaN is a disagreement.
            if not difference < 1:
                return (
                    f"{graph.name}: {kind} disagrees with its module on "
                    f"{tuple(inputs.shape)}: {difference:.3g} times the difference allowed"
                )
    return ""


def _outputs(net: Net, inputs: Tensor) -> Outputs:
    with torch.inference_mode():
        outputs = net(inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


@cache
def _crops(count: int) -> Tensor:
    """(N, 3, h, w) uint8 RGB crops of plates of every kind, in boxes that err."""
    rng = np.random.default_rng(0)
    images = np.stack([render(rng).image for _ in range(count)])
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


@cache
def _photos() -> list[Tensor]:
    """Some scenes with plates, (H, W, 3) uint8 RGB."""
    return [torch.from_numpy(decode(render_photo(kind, 0).file)) for kind in _KINDS]


def _scenes(canvas_hw: tuple[int, int], count: int) -> Tensor:
    """(N, 3, H, W) uint8 RGB canvases: the scenes, mirrored, and as it gets dark."""
    canvases = []
    for brightness, mirrored, photo in product(_BRIGHTNESS, (False, True), _photos()):
        seen = (photo.flip(1) if mirrored else photo) * brightness
        canvases.append(letterbox(seen.to(torch.uint8).contiguous(), canvas_hw)[0])
        if len(canvases) == count:
            break
    return torch.stack(canvases)
