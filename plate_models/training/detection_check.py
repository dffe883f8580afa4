"""How well a detector finds plates: recall on labelled photos, boxes on photos without."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from plate_models.detection import Detect, box_iou_xyxy, find_boxes
from plate_models.spec import DETECTOR, DetectorSpec
from plate_models.training.detection_photos import TrainingPhoto


@dataclass(frozen=True)
class DetectionCounts:
    """Counts over a set of photos.

    Attributes:
        plates: Labelled plates.
        found_50, found_70: Those that a found box overlaps with IoU of at least 0.5, 0.7.
        boxes: All boxes found; not every plate in a photo need be labelled.
        photos: Photos looked at.
    """

    plates: int
    found_50: int
    found_70: int
    boxes: int
    photos: int

    def to_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)


def best_overlaps(boxes: Tensor, labels: Tensor) -> Tensor:
    """(L,) float32: for each label (L, 4) the highest IoU with a box (K, 4), or 0."""
    if not len(boxes):
        return torch.zeros(len(labels))
    return box_iou_xyxy(labels, boxes).amax(dim=1)


def count_found(
    graph: Detect, photos: Sequence[TrainingPhoto], spec: DetectorSpec = DETECTOR
) -> DetectionCounts:
    """Run a detector over photos and count what it finds.

    Args:
        graph: See `detection.find_boxes`.
        photos: With their labels; photos without labels count boxes only.
        spec: Canvases and thresholds.
    """
    overlaps, found = [torch.zeros(0)], 0
    for photo in photos:
        with torch.inference_mode():
            boxes, _, _ = find_boxes(torch.from_numpy(photo.image), graph, spec)
        overlaps.append(best_overlaps(boxes, torch.from_numpy(photo.boxes)))
        found += len(boxes)
    best = torch.cat(overlaps)
    return DetectionCounts(
        plates=len(best),
        found_50=int((best >= 0.5).sum()),
        found_70=int((best >= 0.7).sum()),
        boxes=found,
        photos=len(photos),
    )
