"""The detector's loss: CIoU of boxes, cross-entropy of objectness and class.

Assignment and balance are those of YOLOv5: a plate is assigned to every anchor whose sides differ
from the plate's by less than a factor of four, in the plate's own cell and in the two nearest
neighbours, so that about ten predictions are responsible for each plate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from plate_models.nets.yolov5 import decode_boxes

_MAX_RATIO = 4.0
# Weights in the loss; objectness has 1.
_BOX, _CLASS = 0.1, 0.1
# Objectness weight per level: compensates for the larger number of cells of finer grids.
_LEVELS = (4.0, 1.0, 0.4)
# Positions of P predictions in a head: image in the batch, anchor, row, column; each (P,) int64.
Cells = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Targets:
    """The plates of a batch."""

    boxes: Tensor  # (M, 5) float32: index in the batch, then x0, y0, x1, y1 in pixels
    unclear: Tensor  # (U, 5) float32, same layout: areas without an objectness loss
    lines: Tensor  # (M,) int64 lines of text on each plate, 1 or 2; 0 if unknown


def ciou(a: Tensor, b: Tensor) -> Tensor:
    """Complete IoU of (M, 4) boxes cx, cy, w, h, pair by pair.

    Zheng et al., "Enhancing Geometric Factors in Model Learning and Inference for Object Detection"
    (2020): IoU minus the distance of the centres minus the difference of the aspect ratios.

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


def assign(
    boxes: Tensor, anchors: Tensor, stride: int, grid_hw: Sequence[int]
) -> tuple[Tensor, Cells, Tensor]:
    """Assign plates to predictions of one level: P pairs.

    Returns indices of plates (P,) int64, positions of predictions, and target boxes (P, 4) float32
    cx, cy, w, h in cells, the centre relative to the prediction's cell.
    """
    xy = (boxes[:, 1:3] + boxes[:, 3:5]) / 2 / stride
    wh = (boxes[:, 3:5] - boxes[:, 1:3]) / stride
    ratio = wh[:, None] / anchors[None]  # (M, A, 2)
    fits = torch.maximum(ratio, 1 / ratio).amax(dim=2) < _MAX_RATIO
    plate, anchor = fits.nonzero(as_tuple=True)
    xy, wh, image = xy[plate], wh[plate], boxes[plate, 0].long()
    # The plate's own cell, and the cells half a cell to the left, right, above and below.
    steps = xy.new_tensor([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])
    cells = (xy + steps[:, None] / 2).floor()  # (5, P, 2)
    answers = (cells != cells[:1]).any(dim=2)
    answers[0] = True
    answers &= ((cells >= 0) & (cells < xy.new_tensor(grid_hw[::-1]))).all(dim=2)
    chosen = answers.nonzero()[:, 1]
    cell = cells[answers]
    box = torch.cat((xy[chosen] - cell, wh[chosen]), dim=1)
    column, row = cell.long().unbind(dim=1)
    return plate[chosen], (image[chosen], anchor[chosen], row, column), box


def detection_loss(
    heads: list[Tensor], targets: Targets, anchors: Tensor, strides: Sequence[int]
) -> tuple[Tensor, dict[str, float]]:
    """Sum of a batch's box, objectness and class losses over the levels.

    Anchors are (L, A, 2) float32 in units of the strides; strides are pixels per cell. Returns the
    loss, a scalar, and its weighted terms by name.
    """
    box = objectness = classes = heads[0].new_zeros((), dtype=torch.float32)
    for head, sizes, stride, balance in zip(heads, anchors, strides, _LEVELS, strict=True):
        raw = head.float()
        plate, cells, wanted = assign(targets.boxes, sizes, stride, raw.shape[2:4])
        overlap = raw.new_zeros(raw.shape[:4])
        if len(plate):
            picked = raw[cells]  # (P, 5 + classes)
            level_box, iou = _box_loss(picked[:, :4], sizes[cells[1]], wanted)
            level_class = _class_loss(picked[:, 5:], targets.lines[plate])
            box, classes = box + level_box, classes + level_class
            # The objectness target is a prediction's IoU; if it has two plates, the higher one.
            place = cells[0]
            for index, count in zip(cells[1:], overlap.shape[1:], strict=True):
                place = place * count + index
            overlap.view(-1).scatter_reduce_(0, place, iou, "amax")
        judged = _judged(raw, targets.unclear, stride)
        every = F.binary_cross_entropy_with_logits(raw[..., 4], overlap, reduction="none")
        objectness = objectness + (every * judged).mean() * balance
    parts = {"box": box * _BOX, "objectness": objectness, "class": classes * _CLASS}
    total = torch.stack(list(parts.values())).sum()
    return total, {name: float(part.detach()) for name, part in parts.items()}


def _box_loss(raw: Tensor, anchors: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Box loss of (P, 4) raw predictions with their anchors, and their CIoU (P,), at least 0."""
    # Relative to their own cells, in cells: column and row are 0, the stride is 1.
    origin, stride = torch.zeros_like(anchors), torch.ones_like(anchors[:, :1])
    places = torch.cat((origin, anchors, stride), dim=1)
    overlap = ciou(decode_boxes(raw, places), wanted)
    return (1 - overlap).mean(), overlap.detach().clamp(min=0)


def _class_loss(raw: Tensor, lines: Tensor) -> Tensor:
    """Class loss of (P, classes) predictions; plates with unknown lines are left out."""
    wanted = F.one_hot((lines - 1).clamp(min=0), raw.shape[1]).float()
    classes = F.binary_cross_entropy_with_logits(raw, wanted, reduction="none")
    known = (lines > 0).float()[:, None].expand_as(classes)
    return (classes * known).sum() / known.sum().clamp(min=1)


def _judged(raw: Tensor, unclear: Tensor, stride: int) -> Tensor:
    """(N, 1, H, W) float32: 0 in cells that an unclear box touches, else 1."""
    images, _, h, w, _ = raw.shape
    judged = raw.new_ones((images, 1, h, w))
    for index, x0, y0, x1, y1 in unclear.tolist():
        rows = slice(int(y0 // stride), min(int(y1 // stride) + 1, h))
        columns = slice(int(x0 // stride), min(int(x1 // stride) + 1, w))
        judged[int(index), :, rows, columns] = 0
    return judged
