"""Where the plates are: photo to canvas, candidates to one box per plate, back to the photo.

Boxes are float pixels in the order their functions name; pixel i covers [i, i + 1). They are
NumPy's, on the host; the photo lies where it lies, an array or a tensor.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plate_models import pixels
from plate_models.pixels import Floats, Lines
from plate_models.spec import DETECTOR, DetectorSpec

# (1, 3, h, w) uint8 canvas to (1, N, 6) float32 candidates: x0, y0, x1, y1, score, class.
Detect = Callable[[Any], Any]


@dataclass(frozen=True)
class Letterbox:
    """How a photo lies on its canvas; made by `letterbox`."""

    photo_wh: tuple[int, int]
    scale_xy: tuple[float, float]  # canvas pixels per photo pixel
    offset_xy: tuple[int, int]  # the photo's corner on the canvas

    def to_photo(self, boxes_xyxy: Floats) -> Floats:
        """(N, 4) float32 in canvas pixels to (N, 4) in photo pixels, cut at its edges."""
        pairs = (self.offset_xy, self.scale_xy, self.photo_wh)
        offset, scale, edge = (np.array(pair * 2, np.float32) for pair in pairs)
        return np.asarray(np.clip((boxes_xyxy - offset) / scale, 0, edge))


def find_boxes(
    image: Any, detect: Detect, spec: DetectorSpec, share: float = 1.0
) -> tuple[Floats, Floats, Lines]:
    """Find plates: canvas, detector, choice of boxes, back to the photo's pixels.

    The photo takes a share of the canvas's sides. Returns what `select_boxes` does, with boxes in
    photo pixels.
    """
    canvas_hw = choose_canvas(image.shape[0], image.shape[1], spec.canvases_hw)
    canvas, placement = letterbox(image, canvas_hw, spec.pad_value, share)
    candidates = pixels.to_host(detect(canvas[None])[0])
    boxes, scores, lines = select_boxes(candidates, spec)
    boxes = placement.to_photo(boxes)
    inside = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)  # the bars around it hold none
    return boxes[inside], scores[inside], lines[inside]


def choose_canvas(
    height: int, width: int, canvases_hw: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """Choose the canvas (H, W) that shrinks a photo least; of equals, the smallest."""
    return max(canvases_hw, key=lambda hw: (min(hw[0] / height, hw[1] / width), -hw[0] * hw[1]))


def letterbox(
    image: Any, canvas_hw: tuple[int, int], pad_value: int = DETECTOR.pad_value, share: float = 1.0
) -> tuple[Any, Letterbox]:
    """Resize a photo to fit a canvas, or a share of its sides; keep its aspect, and pad the rest.

    The photo is (H, W, 3) uint8, else it is a ValueError. Returns the canvas, (3, H, W) uint8 RGB
    with the photo in its middle, and the way back from it.
    """
    check_image(image)
    h, w = image.shape[:2]
    scale = share * min(canvas_hw[0] / h, canvas_hw[1] / w)
    new_h, new_w = max(round(h * scale), 1), max(round(w * scale), 1)
    top, left = (canvas_hw[0] - new_h) // 2, (canvas_hw[1] - new_w) // 2
    place = slice(top, top + new_h), slice(left, left + new_w)
    canvas = pixels.letterbox(image, place, canvas_hw, pad_value)
    return canvas, Letterbox((w, h), (new_w / w, new_h / h), (left, top))


def check_image(image: Any) -> None:
    """Raise ValueError unless the image is (H, W, 3) uint8 with at least one pixel."""
    kind = str(image.dtype).removeprefix("torch.")
    if kind != "uint8" or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise ValueError(
            f"expected an image (H, W, 3) uint8 with at least one pixel, "
            f"got {tuple(image.shape)} {kind}"
        )


def select_boxes(candidates: Floats, spec: DetectorSpec) -> tuple[Floats, Floats, Lines]:
    """Drop weak candidates, then all that overlap a better one of any class.

    Candidates are (N, 6) float32 x0, y0, x1, y1, score, class, best first, unused rows with
    score 0. Returns boxes (K, 4) in the candidates' coordinates,
    their scores (K,) in [0, 1], best first, and the plates' lines of text (K,) int64, 1 or 2.
    """
    sides = candidates[:, 2:4] - candidates[:, :2]
    # NaN compares false: a broken row is dropped here.
    strong = candidates[(candidates[:, 4] >= spec.score_threshold) & (sides > 0).all(axis=1)]
    best = strong[keep_apart(strong[:, :4], spec.iou_threshold)]
    return best[:, :4], best[:, 4], np.where(best[:, 5] == 1, 2, 1)


def keep_apart(boxes_xyxy: ArrayLike, iou_threshold: float) -> NDArray[np.bool_]:
    """Which of (N, 4) boxes, best first, overlap no better one that is kept (greedy NMS): (N,)."""
    overlaps = box_iou_xyxy(boxes_xyxy, boxes_xyxy) > iou_threshold
    kept = np.ones(len(overlaps), np.bool_)
    for row in range(len(overlaps)):
        if kept[row]:
            kept[row + 1 :] &= ~overlaps[row, row + 1 :]
    return kept


def shared_areas(a_xyxy: ArrayLike, b_xyxy: ArrayLike) -> Floats:
    """Area that every pair of (N, 4) and (M, 4) boxes shares: (N, M)."""
    one, other = (np.asarray(boxes, np.float32).reshape(-1, 4) for boxes in (a_xyxy, b_xyxy))
    first = np.maximum(one[:, None, :2], other[None, :, :2])
    last = np.minimum(one[:, None, 2:], other[None, :, 2:])
    return np.asarray((last - first).clip(min=0).prod(axis=2))


def box_iou_xyxy(a_xyxy: ArrayLike, b_xyxy: ArrayLike) -> Floats:
    """Intersection over union of every pair of (N, 4) and (M, 4) boxes: (N, M) in [0, 1].

    It is 0 where both boxes are empty.
    """
    common = shared_areas(a_xyxy, b_xyxy)
    areas = (
        (boxes[:, 2:] - boxes[:, :2]).clip(min=0).prod(axis=1)
        for boxes in (np.asarray(each, np.float32).reshape(-1, 4) for each in (a_xyxy, b_xyxy))
    )
    union = np.add.outer(*areas) - common
    return np.asarray(common / union.clip(min=1e-9))
