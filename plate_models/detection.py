"""From the detector's candidates to boxes: one box per plate."""

import torch
from torch import Tensor

from plate_models.geometry import box_iou_xyxy
from plate_models.spec import DETECTOR, DetectorSpec


def select_boxes(
    candidates: Tensor, spec: DetectorSpec = DETECTOR
) -> tuple[Tensor, Tensor, Tensor]:
    """Drop weak candidates, then all that overlap a better one, whatever their class.

    Args:
        candidates: (N, 6) float32 x0, y0, x1, y1, score, class, best first, as one
            row of the graph's output; unused rows have score 0.
        spec: Holds the lowest score kept and the overlap above which two boxes are
            one plate.

    Returns:
        Boxes (K, 4) float32 x0, y0, x1, y1 in the candidates' coordinates, their
        scores (K,) float32 in [0, 1], best first, and the plates' lines of text (K,)
        int64, 1 or 2.

    Raises:
        ValueError: The candidates are not (N, 6).
    """
    if candidates.ndim != 2 or candidates.shape[1] != 6:
        raise ValueError(f"expected candidates (N, 6), got {tuple(candidates.shape)}")
    sides = candidates[:, 2:4] - candidates[:, :2]
    # NaN compares false: a broken row is dropped here.
    sound = (candidates[:, 4] >= spec.score_threshold) & (sides > 0).all(dim=1)
    strong = candidates[sound]
    kept = strong[_non_maximum_suppression(strong[:, :4], spec.iou_threshold)]
    return kept[:, :4], kept[:, 4], kept[:, 5].long() + 1


def _non_maximum_suppression(boxes_xyxy: Tensor, iou_threshold: float) -> Tensor:
    """Indices of boxes, best first, that overlap no better box that is kept."""
    # One copy to the host instead of one synchronisation per box.
    overlaps = (box_iou_xyxy(boxes_xyxy, boxes_xyxy) > iou_threshold).cpu()
    alive = torch.ones(len(overlaps), dtype=torch.bool)
    kept = []
    for index in range(len(overlaps)):
        if alive[index]:
            kept.append(index)
            alive &= ~overlaps[index]
    return torch.tensor(kept, dtype=torch.int64, device=boxes_xyxy.device)
