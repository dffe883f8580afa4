"""What the detector is trained for: boxes by CIoU, objectness and class by cross-entropy.

Assignment and balance as described for YOLOv5: a plate belongs to every anchor whose
sides differ from its own by less than a factor of four, in its own cell and in the two
nearest neighbours, so that about ten predictions answer for each plate.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

_MAX_RATIO = 4.0


@dataclass(frozen=True)
class LossWeights:
    """Share of each part; `levels` evens out that finer grids have more cells."""

    box: float = 0.10
    objectness: float = 1.0
    classes: float = 0.1
    levels: tuple[float, ...] = (4.0, 1.0, 0.4)


@dataclass(frozen=True)
class Targets:
    """The plates of a batch."""

    boxes: Tensor  # (M, 5) float32: index in the batch, then x0, y0, x1, y1 in pixels
    unclear: Tensor  # (U, 5) float32, same layout: places where objectness is not judged
    lines: Tensor  # (M,) int64 lines of text on each plate, 1 or 2, or 0 where it is unknown


def ciou(a: Tensor, b: Tensor) -> Tensor:
    """Complete IoU of boxes, pair by pair.

    Zheng et al., "Enhancing Geometric Factors in Model Learning and Inference for
    Object Detection" (2020): IoU, less the centres' distance, less the difference in
    aspect.

    Returns (M,) float in (-2, 1].
    """
    eps = 1e-7
    a0, a1 = a[:, :2] - a[:, 2:] / 2, a[:, :2] + a[:, 2:] / 2
    b0, b1 = b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2
    common = (torch.minimum(a1, b1) - torch.maximum(a0, b0)).clamp(min=0).prod(dim=1)
    union = a[:, 2:].prod(dim=1) + b[:, 2:].prod(dim=1) - common + eps
    iou = common / union
    hull = torch.maximum(a1, b1) - torch.minimum(a0, b0)
    distance = ((a[:, :2] - b[:, :2]) ** 2).sum(dim=1) / ((hull**2).sum(dim=1) + eps)
    angles = torch.atan(a[:, 2] / (a[:, 3] + eps)) - torch.atan(b[:, 2] / (b[:, 3] + eps))
    aspect = 4 / math.pi**2 * angles**2
    with torch.no_grad():
        trade_off = aspect / (1 - iou + aspect + eps)
    return iou - distance - trade_off * aspect


@dataclass(frozen=True)
class _Assigned:
    """Which predictions of one level answer for which plates, P pairs."""

    plate: Tensor  # (P,) int64 index of the plate
    image: Tensor  # (P,) int64 index in the batch
    anchor: Tensor  # (P,) int64 anchor of the level
    row: Tensor  # (P,) int64 cell
    column: Tensor  # (P,) int64 cell
    box: Tensor  # (P, 4) float32 cx, cy, w, h in cells, centre relative to the cell


def assign(boxes: Tensor, anchors: Tensor, stride: int, grid_hw: tuple[int, int]) -> _Assigned:
    """Pair plates with predictions of one level."""
    xy = (boxes[:, 1:3] + boxes[:, 3:5]) / 2 / stride
    wh = (boxes[:, 3:5] - boxes[:, 1:3]) / stride
    ratio = wh[:, None] / anchors[None]  # (M, A, 2)
    fits = torch.maximum(ratio, 1 / ratio).amax(dim=2) < _MAX_RATIO
    plate, anchor = fits.nonzero(as_tuple=True)
    xy, wh, image = xy[plate], wh[plate], boxes[plate, 0].long()
    # The own cell, and those into which half a cell to the left, right, up or down leads.
    steps = xy.new_tensor([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])
    cells = (xy + steps[:, None] / 2).floor()  # (5, P, 2)
    answers = (cells != cells[:1]).any(dim=2)
    answers[0] = True
    answers &= ((cells >= 0) & (cells < xy.new_tensor(grid_hw[::-1]))).all(dim=2)
    chosen = answers.nonzero()[:, 1]
    cell = cells[answers]
    box = torch.cat((xy[chosen] - cell, wh[chosen]), dim=1)
    column, row = cell.long().unbind(dim=1)
    return _Assigned(plate[chosen], image[chosen], anchor[chosen], row, column, box)


@dataclass(frozen=True)
class DetectionLoss:
    """Sum of box, objectness and class loss over the levels."""

    anchors: Tensor  # (L, A, 2) float32 in units of the strides
    strides: tuple[int, ...]  # pixels per cell
    weights: LossWeights = LossWeights()

    def __call__(self, heads: list[Tensor], targets: Targets) -> tuple[Tensor, dict[str, float]]:
        """Loss of a batch.

        Returns the loss, a scalar, and its weighted parts by name, for the record.
        """
        box = objectness = classes = heads[0].new_zeros((), dtype=torch.float32)
        for level, head in enumerate(heads):
            raw = head.float()
            grid_hw = raw.shape[2], raw.shape[3]
            found = assign(targets.boxes, self.anchors[level], self.strides[level], grid_hw)
            overlap = torch.zeros_like(raw[..., 4])
            if len(found.image):
                lines = targets.lines[found.plate]
                level_box, level_class, iou = self._answers(raw, found, lines, level)
                box, classes = box + level_box, classes + level_class
                # Objectness to aim for: each answer's IoU; where two meet, the better one's, as
                # later writes win.
                order = iou.argsort()
                cells = found.image, found.anchor, found.row, found.column
                overlap[tuple(index[order] for index in cells)] = iou[order]
            judged = _judged(raw, targets.unclear, self.strides[level])
            every = F.binary_cross_entropy_with_logits(raw[..., 4], overlap, reduction="none")
            objectness = objectness + (every * judged).mean() * self.weights.levels[level]
        parts = {
            "box": box * self.weights.box,
            "objectness": objectness * self.weights.objectness,
            "class": classes * self.weights.classes,
        }
        total = torch.stack(list(parts.values())).sum()
        return total, {name: float(part.detach()) for name, part in parts.items()}

    def _answers(
        self, raw: Tensor, found: _Assigned, lines: Tensor, level: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Box loss, class loss and IoU (P,) of the predictions that answer for a plate."""
        picked = raw[found.image, found.anchor, found.row, found.column]  # (P, 5 + classes)
        xy = picked[:, 0:2].sigmoid() * 2 - 0.5
        wh = (picked[:, 2:4].sigmoid() * 2) ** 2 * self.anchors[level][found.anchor]
        overlap = ciou(torch.cat((xy, wh), dim=1), found.box)
        wanted = F.one_hot((lines - 1).clamp(min=0), picked.shape[1] - 5).float()
        classes = F.binary_cross_entropy_with_logits(picked[:, 5:], wanted, reduction="none")
        known = (lines > 0).float()[:, None].expand_as(classes)
        mean_class = (classes * known).sum() / known.sum().clamp(min=1)
        return (1 - overlap).mean(), mean_class, overlap.detach().clamp(min=0)


def _judged(raw: Tensor, unclear: Tensor, stride: int) -> Tensor:
    """(N, 1, H, W) float32: 0 in cells that an unclear box touches, else 1."""
    images, _, h, w, _ = raw.shape
    judged = raw.new_ones((images, 1, h, w))
    for index, x0, y0, x1, y1 in unclear.tolist():
        rows = slice(int(y0 // stride), min(int(y1 // stride) + 1, h))
        columns = slice(int(x0 // stride), min(int(x1 // stride) + 1, w))
        judged[int(index), :, rows, columns] = 0
    return judged
