"""YOLOv5, written from its description: CSP backbone, PAN neck, anchor head.

The layer numbers and names are those of published YOLOv5 v6 checkpoints
(``model.0.conv.weight`` … ``model.24.m.0.weight``), so that a state dict of
that family loads unchanged, of any width, depth and number of classes.

Sources: Jocher, "YOLOv5" (architecture tables of release 6); Wang et al., "CSPNet"
(2019) for C3; He et al., "SPP" (2014) for the pooling; Liu et al., "PANet" (2018).
"""

import math
from collections.abc import Sequence
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from plate_models.spec import DETECTOR, DetectorSpec


class Conv(nn.Module):
    """Convolution, batch norm, activation; padded so that stride 1 keeps the size."""

    def __init__(self, c_in: int, c_out: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        # The 6×6 stem pads by 2, every odd kernel by half its size.
        padding = 2 if kernel == 6 else kernel // 2
        self.conv = nn.Conv2d(c_in, c_out, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(c_out, eps=1e-3, momentum=0.03)
        self.act: nn.Module = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """(N, c_in, H, W) to (N, c_out, H / stride, W / stride)."""
        y: Tensor = self.act(self.bn(self.conv(x)))
        return y


class Bottleneck(nn.Module):
    """1×1 then 3×3 convolution, with a residual connection if ``shortcut``."""

    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.cv1 = Conv(channels, channels, 1)
        self.cv2 = Conv(channels, channels, 3)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to the same shape."""
        y: Tensor = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class C3(nn.Module):
    """Cross-stage partial block: half the channels pass ``depth`` bottlenecks."""

    def __init__(self, c_in: int, c_out: int, depth: int, shortcut: bool = True) -> None:
        super().__init__()
        hidden = c_out // 2
        self.cv1 = Conv(c_in, hidden)
        self.cv2 = Conv(c_in, hidden)
        self.cv3 = Conv(2 * hidden, c_out)
        self.m = nn.Sequential(*(Bottleneck(hidden, shortcut) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        """(N, c_in, H, W) to (N, c_out, H, W)."""
        y: Tensor = self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), dim=1))
        return y


class SPPF(nn.Module):
    """Spatial pyramid pooling: three 5×5 max-pools in a row equal 5, 9 and 13."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1 = Conv(channels, channels // 2)
        self.cv2 = Conv(channels * 2, channels)
        self.m = nn.MaxPool2d(5, stride=1, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to the same shape."""
        pooled = [self.cv1(x)]
        for _ in range(3):
            pooled.append(self.m(pooled[-1]))
        y: Tensor = self.cv2(torch.cat(pooled, dim=1))
        return y


class Detect(nn.Module):
    """One 1×1 convolution per stride: box, objectness and classes per anchor.

    The anchors are (L, A, 2) float32, (w, h) in units of the level's stride: checkpoints have a
    buffer of that name and unit.
    """

    anchors: Tensor

    def __init__(self, channels: Sequence[int], spec: DetectorSpec) -> None:
        super().__init__()
        self.outputs = 5 + len(spec.classes)
        self.strides = spec.strides
        sizes = torch.tensor(spec.anchors_wh, dtype=torch.float32)
        self.register_buffer("anchors", sizes / torch.tensor(spec.strides).view(-1, 1, 1))
        per_cell = sizes.shape[1]
        convs = [nn.Conv2d(c, per_cell * self.outputs, 1) for c in channels]
        for conv, stride in zip(convs, spec.strides, strict=True):
            # Initialise objectness to the frequency of plates instead of one half (Lin et al.,
            # "Focal Loss", 2017): about one in a window of 384×384 pixels, on every level.
            bias = torch.zeros(per_cell, self.outputs)
            bias[:, 4] = math.log(1 / (384 / stride) ** 2)
            conv.bias = nn.Parameter(bias.flatten())
        self.m = nn.ModuleList(convs)

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        """Per level (N, C, H, W) to raw heads (N, A, H, W, 5 + classes)."""
        heads = []
        for conv, feature in zip(self.m, features, strict=True):
            raw = conv(feature)
            n, _, h, w = raw.shape
            heads.append(raw.view(n, -1, self.outputs, h, w).permute(0, 1, 3, 4, 2))
        return heads


class YOLOv5(nn.Module):
    """Backbone, neck and head; returns raw heads. `YOLOv5Graph` decodes them.

    Of the spec's scaling factors width 0.25 is nano, 0.5 small, 0.75 medium, 1 large; depth
    0.33 is nano and small, 0.67 medium, 1 large.
    """

    # Each concatenation's number, and the earlier layer that it joins with the previous one.
    _CONCAT_WITH: ClassVar = {12: 6, 16: 4, 19: 14, 22: 10}
    _HEADS_FROM = (17, 20, 23)

    def __init__(self, spec: DetectorSpec = DETECTOR) -> None:
        super().__init__()
        # Channels are rounded up to multiples of 8.
        c64, c128, c256, c512, c1024 = (
            math.ceil(c * spec.width_multiple / 8) * 8 for c in (64, 128, 256, 512, 1024)
        )
        n3, n6, n9 = (max(round(n * spec.depth_multiple), 1) for n in (3, 6, 9))
        upsample, concat = nn.Upsample(scale_factor=2, mode="nearest"), nn.Identity()
        self.model = nn.ModuleList(
            [
                *(Conv(3, c64, 6, 2), Conv(c64, c128, 3, 2), C3(c128, c128, n3)),
                *(Conv(c128, c256, 3, 2), C3(c256, c256, n6)),
                *(Conv(c256, c512, 3, 2), C3(c512, c512, n9)),
                *(Conv(c512, c1024, 3, 2), C3(c1024, c1024, n3), SPPF(c1024)),
                *(Conv(c1024, c512), upsample, concat, C3(2 * c512, c512, n3, False)),
                *(Conv(c512, c256), upsample, concat, C3(2 * c256, c256, n3, False)),
                *(Conv(c256, c256, 3, 2), concat, C3(2 * c256, c512, n3, False)),
                *(Conv(c512, c512, 3, 2), concat, C3(2 * c512, c1024, n3, False)),
                Detect((c256, c512, c1024), spec),
            ]
        )
        if spec.activation == "hardswish":
            for module in self.modules():
                if isinstance(module, Conv):
                    module.act = nn.Hardswish(inplace=True)

    def fuse(self) -> "YOLOv5":
        """Fold every batch norm into its convolution, in place; only for inference."""
        for module in self.eval().modules():
            if isinstance(module, Conv):
                module.conv = fuse_conv_bn_eval(module.conv, module.bn)
                module.bn = nn.Identity()  # type: ignore[assignment]
        return self

    @property
    def head(self) -> Detect:
        """The last layer, with anchors and strides."""
        return cast(Detect, self.model[-1])

    def forward(self, x: Tensor) -> list[Tensor]:
        """(N, 3, H, W) RGB in [0, 1], H and W multiples of 32, to raw heads of all anchors.

        Per stride 8, 16, 32: (N, A, H / stride, W / stride, 5 + classes), logits
        of x, y, w, h, objectness and the classes.
        """
        layers: list[Tensor] = []
        for index, layer in enumerate(self.model[:-1]):
            if index in self._CONCAT_WITH:
                x = torch.cat((x, layers[self._CONCAT_WITH[index]]), dim=1)
            else:
                x = layer(x)
            layers.append(x)
        return list(self.head([layers[i] for i in self._HEADS_FROM]))


def flatten_heads(heads: list[Tensor]) -> Tensor:
    """(N, A, H, W, 5 + classes) of each level to (N, sum of A·H·W, 5 + classes) float32."""
    return torch.cat([head.float().flatten(1, 3) for head in heads], dim=1)


def cell_places(heads: list[Tensor], anchors: Tensor, strides: Sequence[int]) -> Tensor:
    """(sum of A·H·W, 5) float32: column, row, anchor's w, h in pixels, stride of each cell.

    Only the shapes of the heads are used; anchors are (L, A, 2) in units of the stride.
    """
    levels = []
    for level, stride in enumerate(strides):
        _, a, h, w, _ = heads[level].shape
        wide, high = (anchors[level] * stride)[..., None, None].unbind(1)  # (A, 1, 1)
        # Not torch.arange: a trace would keep the device of its example.
        columns, rows = (wide.new_ones(side).cumsum(0) - 1 for side in (w, h))
        parts = columns, rows[:, None], wide, high, wide.new_full((1,), float(stride))
        places = torch.stack([part.expand(a, h, w) for part in parts], dim=-1)
        levels.append(places.flatten(0, 2))
    return torch.cat(levels)


def decode_boxes(raw: Tensor, places: Tensor) -> Tensor:
    """Raw x, y, w, h (..., 4) at cells' places (..., 5) to centre x, y, w, h in pixels.

    Formulas of YOLOv5's head: ``xy = (2 σ − 0.5 + cell) · stride`` and
    ``wh = (2 σ)² · anchor``, which bounds a box to four times its anchor.
    """
    double = raw.sigmoid() * 2
    xy = (double[..., :2] - 0.5 + places[..., :2]) * places[..., 4:]
    return torch.cat((xy, double[..., 2:] ** 2 * places[..., 2:4]), dim=-1)


def _peaks(head: Tensor) -> Tensor:
    """Scores of cells that no neighbour exceeds; 0 for the others.

    A score is objectness times the likeliest class: (N, A, H, W, 5 + classes) raw to (N, A, H, W).
    About eighteen cells and anchors respond to one plate: in a crowded photo they would fill the
    list of candidates before it has every plate. Their best one, which wins anyway, is kept.
    """
    raw = head.float()
    scores = raw[..., 4].sigmoid() * raw[..., 5:].amax(dim=-1).sigmoid()
    around = F.max_pool2d(scores.amax(dim=1, keepdim=True), 3, stride=1, padding=1)
    return torch.where(scores >= around, scores, torch.zeros_like(scores))


class YOLOv5Graph(nn.Module):
    """The exported graph: canvases in, the best candidate boxes out.

    The graph derives the cells' places from tensor shapes, so that one trace serves every batch
    size and every canvas from 96×96 on. Only the best of neighbouring cells is a candidate;
    `detection` drops boxes that still overlap.
    """

    def __init__(self, net: YOLOv5, spec: DetectorSpec = DETECTOR) -> None:
        super().__init__()
        self.net = net
        self.max_candidates = spec.max_candidates

    def forward(self, canvases: Tensor) -> Tensor:
        """(N, 3, H, W) uint8 RGB in [0, 255] to the candidates of each canvas, best first.

        They are (N, 300, 6) float32: x0, y0, x1, y1 in canvas pixels, score in [0, 1]
        (objectness times class probability), class.
        """
        head = self.net.head
        heads = self.net(canvases.to(head.anchors.dtype) / 255)
        rows = flatten_heads(heads)
        label = rows[..., 5:].argmax(dim=-1)
        scores = torch.cat([_peaks(level).flatten(1) for level in heads], dim=1)
        score, order = scores.topk(self.max_candidates, dim=1)
        # Only the best are decoded: 300 of some 20,000.
        best = torch.cat((rows[..., :4], label[..., None].float()), dim=-1)
        best = best.gather(1, order[..., None].expand(-1, -1, best.shape[-1]))
        places = cell_places(heads, head.anchors.float(), head.strides)[order]
        centre, size = decode_boxes(best[..., :4], places).split(2, dim=-1)
        boxes = (centre - size / 2, centre + size / 2)
        return torch.cat((*boxes, score[..., None], best[..., 4:]), dim=-1)
