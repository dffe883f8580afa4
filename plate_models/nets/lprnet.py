"""LPRNet: reads a rectified plate in one pass, without segmenting characters.

After Zherzdev and Gruzdev 2018, "LPRNet: License Plate Recognition via Deep Neural
Networks". Three things differ. The global context is normalised per plate instead of
over the batch, so that a text never depends on other plates. The first stage, which took most of
the time, has half the channels of the original. Each column of the last features may give
several steps: the narrow 777 of a region spans only five columns.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plate_models.nets.stn import ConvNormAct
from plate_models.spec import RECOGNIZER, RecognizerSpec


class SmallBasicBlock(nn.Module):
    """The paper's bottleneck: 1x1, 3x1, 1x3, 1x1, at a quarter of the channels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        narrow = outputs // 4
        self.block = nn.Sequential(
            nn.Conv2d(inputs, narrow, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, narrow, (3, 1), padding=(1, 0)),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, narrow, (1, 3), padding=(0, 1)),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.skip = inputs == outputs
        if self.skip:  # Start as the identity, so that a block can be added to a trained net.
            nn.init.zeros_(self.block[-1].weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H, W)."""
        y: Tensor = self.block(x)
        return F.relu(x + y if self.skip else y)


class LPRNet(nn.Module):
    """Stem, two stages of small basic blocks, global context, one convolution to logits."""

    def __init__(self, spec: RecognizerSpec = RECOGNIZER) -> None:
        super().__init__()
        stem, first, second = 32, 128, 256
        self.stem = ConvNormAct(3, stem)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.first = _stage(stem, first, spec.depths[0])
        self.second = _stage(first, second, spec.depths[1])
        self.dropout = nn.Dropout2d(0.1)
        self.steps_per_column = spec.steps_per_column
        outputs = spec.classes * spec.steps_per_column
        # 24 rows of pixels are 6 rows here: one kernel spans a character's height.
        self.head = nn.Conv2d(stem + first + second, outputs, (6, 5), padding=(0, 2))

    def forward(self, plates: Tensor) -> Tensor:
        """(N, 3, 24, 94) float32 RGB, rectified and normalised, to (N, C, T) float32 logits.

        The CTC blank is the last class.
        """
        stem = self.pool(self.stem(plates))
        first = self.pool(self.first(stem))
        second = self.second(first)
        context = [unit_power(features) for features in (self.pool(stem), first, second)]
        logits: Tensor = self.head(self.dropout(torch.cat(context, dim=1)))
        steps: Tensor = logits.unflatten(1, (self.steps_per_column, -1))  # (N, K, C, 1, columns)
        return steps.permute(0, 2, 3, 4, 1).flatten(2)


def _stage(inputs: int, outputs: int, depth: int) -> nn.Sequential:
    widths = [inputs, *[outputs] * depth]
    return nn.Sequential(*(SmallBasicBlock(*pair) for pair in pairwise(widths)))


def unit_power(features: Tensor) -> Tensor:
    """Scale each sample (N, C, H, W) to mean square 1, so that no stage outweighs another."""
    power = features.float().square().mean(dim=(1, 2, 3), keepdim=True)
    return features * torch.rsqrt(power + 1e-5).to(features.dtype)
