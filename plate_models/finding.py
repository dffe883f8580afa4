"""The first half of a photo's way: where the plates are, and how each is to be looked at."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plate_models.detection import ROUNDS, Selection, mark_boxes, select_boxes
from plate_models.devices import rows_that_count
from plate_models.geometry import Letterbox, choose_canvas, letterbox
from plate_models.spec import DETECTOR, DetectorSpec

Detect = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Looks:
    """Boxes to be read, and as what; L rows, of which the first ones count.

    Each plate is looked at once as what the detector took it for. After all of those come
    the second looks at plates whose number of lines is in doubt.

    Attributes:
        boxes: (L, 4) float32 x0, y0, x1, y1 in photo pixels.
        lines: (L,) int64 lines of text to read, 1 or 2.
        scores: (L,) float32, of the detector.
        plates: (L,) int64, which plate it is.
        total: () int64, how many rows count. On the host all do: there are no others.
        certain: () bool, whether the boxes are final; see `detection.Selection`.
    """

    boxes: Tensor
    lines: Tensor
    scores: Tensor
    plates: Tensor
    total: Tensor
    certain: Tensor

    def __len__(self) -> int:
        return len(self.boxes)

    def part(self, start: int, stop: int) -> "Looks":
        """The rows from `start` to before `stop`; the rest stays what it is."""
        boxes, lines, scores, plates = (part[start:stop] for part in self.tensors()[:4])
        return Looks(boxes, lines, scores, plates, self.total, self.certain)

    def tensors(self) -> tuple[Tensor, ...]:
        """The attributes, in their order."""
        return self.boxes, self.lines, self.scores, self.plates, self.total, self.certain


def find_candidates(
    image: Tensor, detect: Detect, spec: DetectorSpec = DETECTOR
) -> tuple[Tensor, Letterbox]:
    """Put a photo on its canvas and ask the detector.

    Args:
        image: (H, W, 3) uint8 RGB.
        detect: See `pipeline.read_plates`.
        spec: Canvases.

    Returns:
        (300, 6) float32 candidates on the canvas, and the way back from it.
    """
    canvas_hw = choose_canvas(image.shape[0], image.shape[1], spec.canvases_hw)
    canvas, placement = letterbox(image, canvas_hw, spec.pad_value)
    return detect(canvas[None])[0], placement


def find_boxes(
    image: Tensor, detect: Detect, spec: DetectorSpec = DETECTOR
) -> tuple[Tensor, Tensor, Tensor]:
    """Find plates: canvas, detector, choice of boxes, back to the photo's pixels.

    Args:
        image: (H, W, 3) uint8 RGB.
        detect: See `pipeline.read_plates`.
        spec: Canvases and thresholds.

    Returns:
        (N, 4) float32 boxes x0, y0, x1, y1 in photo pixels, (N,) scores, best first, and
        (N,) int64 lines of text, 1 or 2.
    """
    candidates, placement = find_candidates(image, detect, spec)
    boxes, scores, lines = select_boxes(candidates, spec)
    return placement.to_photo(boxes), scores, lines


def plan_looks(
    candidates: Tensor, placement: Letterbox, spec: DetectorSpec = DETECTOR, rounds: int = ROUNDS
) -> Looks:
    """Decide from the detector's candidates what is to be looked at, and as what.

    Args:
        candidates: See :func:`find_candidates`.
        placement: See :func:`find_candidates`.
        spec: Thresholds.
        rounds: See `detection.mark_boxes`.
    """
    found = mark_boxes(candidates, spec, rounds)
    boxes = placement.to_photo(found.boxes)
    wanted = torch.cat((found.counts, found.counts & in_doubt(boxes, found.lines, spec)))
    return _looks(found, boxes, wanted)


def _looks(found: Selection, boxes: Tensor, wanted: Tensor) -> Looks:
    """The wanted ones of all first looks and all second looks."""
    rows = rows_that_count(wanted)
    plates = rows % max(len(boxes), 1)
    lines = torch.cat((found.lines, 3 - found.lines))[rows]
    return Looks(boxes[plates], lines, found.scores[plates], plates, wanted.sum(), found.certain)


def in_doubt(boxes: Tensor, lines: Tensor, spec: DetectorSpec = DETECTOR) -> Tensor:
    """Tell which plates are read both ways, as one line and as two.

    Args:
        boxes: (N, 4) float x0, y0, x1, y1.
        lines: (N,) int64 lines of text, as the detector counts them.
        spec: From which shape on one line is certain.

    Returns:
        (N,) bool: two lines, or one in a box too short for it.
    """
    sides = boxes[:, 2:] - boxes[:, :2]
    return (lines == 2) | (sides[:, 0] < spec.long_aspect * sides[:, 1])
