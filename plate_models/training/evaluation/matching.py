"""Which found plate answers for which label."""

from collections.abc import Sequence

import torch

from plate_models.detection import box_iou_xyxy
from plate_models.pipeline import Plate
from plate_models.training.evaluation.results import Box

# A found box that overlaps a label this much answers for that plate, though badly.
SAME_PLATE_IOU = 0.1


def match(
    labels: Sequence[Box], plates: Sequence[Plate]
) -> tuple[list[list[tuple[Plate, float]]], list[Plate]]:
    """Give each found plate to the label it overlaps most.

    Args:
        labels: N boxes x0, y0, x1, y1.
        plates: What was found, in the same pixels.

    Returns:
        For each label its plates with their IoU, best overlap first; and the plates that
        overlap no label by `SAME_PLATE_IOU`.
    """
    matched: list[list[tuple[Plate, float]]] = [[] for _ in labels]
    elsewhere = []
    boxes = torch.tensor(labels).reshape(-1, 4)
    for plate in plates:
        overlaps = box_iou_xyxy(torch.tensor([plate.box]), boxes)[0].tolist()
        best = max(overlaps, default=0.0)
        if best >= SAME_PLATE_IOU:
            matched[overlaps.index(best)].append((plate, best))
        else:
            elsewhere.append(plate)
    return [sorted(found, key=lambda pair: -pair[1]) for found in matched], elsewhere
