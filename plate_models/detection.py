"""Where the plates are: photo to canvas, candidates to one box per plate, back to the photo.

Boxes are float pixels in the order their functions name; pixel i covers [i, i + 1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import torch
from torch import Tensor
from torch.nn import functional as F

from plate_models.spec import DETECTOR, DetectorSpec

# (1, 3, h, w) uint8 canvas to (1, N, 6) float32 candidates: x0, y0, x1, y1, score, class.
Detect = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Letterbox:
    """How a photo lies on its canvas; made by `letterbox`."""

    photo_wh: tuple[int, int]
    scale_xy: tuple[float, float]  # canvas pixels per photo pixel
    offset_xy: tuple[int, int]  # the photo's corner on the canvas

    def to_photo(self, boxes_xyxy: Tensor) -> Tensor:
        """(N, 4) float in canvas pixels to (N, 4) in photo pixels, cut at its edges."""
        pairs = (self.offset_xy, self.scale_xy, self.photo_wh)
        offset, scale, edge = (boxes_xyxy.new_tensor(pair * 2) for pair in pairs)
        return ((boxes_xyxy - offset) / scale).clamp(min=0).minimum(edge)


def find_boxes(image: Tensor, detect: Detect, spec: DetectorSpec) -> tuple[Tensor, Tensor, Tensor]:
    """Find plates: canvas, detector, choice of boxes, back to the photo's pixels.

    Returns, on the CPU, what `select_boxes` does, with boxes in photo pixels.
    """
    canvas_hw = choose_canvas(image.shape[0], image.shape[1], spec.canvases_hw)
    canvas, placement = letterbox(image, canvas_hw, spec.pad_value)
    boxes, scores, lines = select_boxes(detect(canvas[None])[0].cpu(), spec)
    return placement.to_photo(boxes), scores, lines


def choose_canvas(
    height: int, width: int, canvases_hw: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """Choose the canvas (H, W) that shrinks a photo least; of equals, the smallest."""
    return max(canvases_hw, key=lambda hw: (min(hw[0] / height, hw[1] / width), -hw[0] * hw[1]))


def letterbox(
    image: Tensor, canvas_hw: tuple[int, int], pad_value: int = DETECTOR.pad_value
) -> tuple[Tensor, Letterbox]:
    """Resize a photo to fit a canvas, keeping its aspect, and pad the rest.

    The photo is (H, W, 3) uint8, else it is a ValueError. Returns the canvas, (3, H, W) uint8 RGB
    with the photo in its middle, and the way back from it.
    """
    check_image(image)
    h, w = image.shape[:2]
    scale = min(canvas_hw[0] / h, canvas_hw[1] / w)
    new_h, new_w = max(round(h * scale), 1), max(round(w * scale), 1)
    top, left = (canvas_hw[0] - new_h) // 2, (canvas_hw[1] - new_w) // 2
    canvas = image.new_full((3, *canvas_hw), pad_value)
    inside = canvas[:, top : top + new_h, left : left + new_w]
    resized = _resize(image, (new_h, new_w))
    if image.is_cpu:
        # Into the canvas, plane by plane: torch takes ten times as long.
        cv2.split(resized.numpy(), [plane.numpy() for plane in inside])
    else:
        inside.copy_(resized.permute(2, 0, 1))
    return canvas, Letterbox((w, h), (new_w / w, new_h / h), (left, top))


def _resize(image: Tensor, size_hw: tuple[int, int]) -> Tensor:
    """Antialiased bilinear resize of (H, W, 3) uint8."""
    if image.shape[:2] == size_hw:
        return image
    # The batch axis is added before the permutation: added after it, its stride hides from
    # torch that the colours are interleaved, and the photo is copied into planes and back.
    planes = image[None].permute(0, 3, 1, 2)
    if not image.is_cpu:  # The CUDA kernel takes floating point only.
        planes = planes.float()
    resized = F.interpolate(planes, size_hw, mode="bilinear", antialias=True)
    if not image.is_cpu:
        resized = resized.round().clamp(0, 255).to(torch.uint8)
    return resized[0].permute(1, 2, 0)


def check_image(image: Tensor) -> None:
    """Raise ValueError unless the image is (H, W, 3) uint8 with at least one pixel."""
    if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.numel():
        raise ValueError(
            f"expected an image (H, W, 3) uint8 with at least one pixel, "
            f"got {tuple(image.shape)} {str(image.dtype).removeprefix('torch.')}"
        )


def select_boxes(candidates: Tensor, spec: DetectorSpec) -> tuple[Tensor, Tensor, Tensor]:
    """Drop weak candidates, then all that overlap a better one of any class.

    Candidates are (N, 6) float32 x0, y0, x1, y1, score, class, best first, unused rows with
    score 0. Returns boxes (K, 4) in the candidates' coordinates,
    their scores (K,) in [0, 1], best first, and the plates' lines of text (K,) int64, 1 or 2.
    """
    sides = candidates[:, 2:4] - candidates[:, :2]
    # NaN compares false: a broken row is dropped here.
    strong = candidates[(candidates[:, 4] >= spec.score_threshold) & (sides > 0).all(dim=1)]
    overlaps = box_iou_xyxy(strong[:, :4], strong[:, :4]) > spec.iou_threshold
    kept = torch.ones(len(strong), dtype=torch.bool)
    for row in range(len(strong)):  # greedy non-maximum suppression
        if kept[row]:
            kept[row + 1 :] &= ~overlaps[row, row + 1 :]
    best = strong[kept]
    return best[:, :4], best[:, 4], (best[:, 5] == 1) + 1


def shared_areas(a_xyxy: Tensor, b_xyxy: Tensor) -> Tensor:
    """Area that every pair of (N, 4) and (M, 4) boxes shares: (N, M)."""
    first = torch.maximum(a_xyxy[:, None, :2], b_xyxy[None, :, :2])
    last = torch.minimum(a_xyxy[:, None, 2:], b_xyxy[None, :, 2:])
    return (last - first).clamp(min=0).prod(dim=2)


def box_iou_xyxy(a_xyxy: Tensor, b_xyxy: Tensor) -> Tensor:
    """Intersection over union of every pair of (N, 4) and (M, 4) boxes: (N, M) in [0, 1].

    It is 0 where both boxes are empty.
    """
    common = shared_areas(a_xyxy, b_xyxy)
    areas_a = (a_xyxy[:, 2:] - a_xyxy[:, :2]).clamp(min=0).prod(dim=1)
    areas_b = (b_xyxy[:, 2:] - b_xyxy[:, :2]).clamp(min=0).prod(dim=1)
    union = areas_a[:, None] + areas_b[None] - common
    return common / union.clamp(min=1e-9)
