"""How well a detector finds plates: recall on labelled photos, boxes on photos without."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from plate_models.detection import select_boxes
from plate_models.geometry import box_iou_xyxy, choose_canvas, letterbox
from plate_models.spec import DETECTOR, DetectorSpec
from plate_models.training.detection_photos import TrainingPhoto

Graph = Callable[[Tensor], Tensor]


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


def find_boxes(graph: Graph, image: Tensor, spec: DetectorSpec = DETECTOR) -> tuple[Tensor, Tensor]:
    """Find the plates of a photo: canvas, graph, choice, and back to photo pixels.

    Args:
        graph: (1, 3, H, W) uint8 canvas to (1, 300, 6) float32 candidates.
        image: (H, W, 3) uint8 RGB.
        spec: Canvases and thresholds.

    Returns:
        Boxes (K, 4) float32 x0, y0, x1, y1 in photo pixels and scores (K,), best first.
    """
    canvas_hw = choose_canvas(image.shape[0], image.shape[1], spec.canvases_hw)
    canvas, placement = letterbox(image, canvas_hw, spec.pad_value)
    with torch.inference_mode():
        boxes, scores = select_boxes(graph(canvas[None])[0], spec)
    return placement.to_photo(boxes), scores


def best_overlaps(boxes: Tensor, labels: Tensor) -> Tensor:
    """(L,) float32: for each label (L, 4) the highest IoU with a box (K, 4), or 0."""
    if not len(boxes):
        return torch.zeros(len(labels))
    return box_iou_xyxy(labels, boxes).amax(dim=1)


def count_found(
    graph: Graph, photos: Sequence[TrainingPhoto], spec: DetectorSpec = DETECTOR
) -> DetectionCounts:
    """Run a detector over photos and count what it finds.

    Args:
        graph: See `find_boxes`.
        photos: With their labels; photos without labels count boxes only.
        spec: Canvases and thresholds.
    """
    overlaps, found = [torch.zeros(0)], 0
    for photo in photos:
        boxes, _ = find_boxes(graph, torch.from_numpy(photo.image), spec)
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
