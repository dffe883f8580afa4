"""Find plates: photo to canvas, candidates to one box per plate, back to the photo.

Boxes are floats in pixels, x0, y0, x1, y1; pixel i covers [i, i + 1). They are NumPy arrays on the
host; the photo is an array, or a tensor on any device.
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
Box = tuple[float, float, float, float]
Tile = tuple[int, int, int, int]
# (N, 4) boxes x0, y0, x1, y1; their scores (N,) in [0, 1], best first; lines of text (N,), 1 or 2.
Detections = tuple[Floats, Floats, Lines]

# Below the first scale on its canvas, a photo's small plates have too few pixels: the detector also
# runs on tiles, which have at least the second scale. A photo of 64 megapixels needs no more than
# the third number of tiles, unless it is a narrow strip, which gets none.
_LEAST_SCALE, _TILE_SCALE, _MOST_TILES = 0.3, 0.35, 40
# Tiles overlap by more than a small plate's width. A box this near to an inner edge may be cut off.
_OVERLAP_PX, _CUT_PX = 240, 8
# A plate that is at least this wide on the canvas of the whole photo is found there.
_FOUND_PX = 36


@dataclass(frozen=True)
class Letterbox:
    """Scale and offset of a photo on its canvas; made by `letterbox`."""

    photo_wh: tuple[int, int]
    scale_xy: tuple[float, float]  # canvas pixels per photo pixel
    offset_xy: tuple[int, int]  # of the photo's top left corner, in canvas pixels

    def to_photo(self, boxes_xyxy: Floats) -> Floats:
        """Map (N, 4) float32 boxes from canvas to photo pixels, clipped to the photo."""
        pairs = (self.offset_xy, self.scale_xy, self.photo_wh)
        offset, scale, edge = (np.array(pair * 2, np.float32) for pair in pairs)
        return np.asarray(np.clip((boxes_xyxy - offset) / scale, 0, edge))


def find_boxes(image: Any, detect: Detect, spec: DetectorSpec, share: float = 1.0) -> Detections:
    """Run the detector once on a photo; the boxes found are in photo pixels.

    The photo fills at most `share` of the canvas's height and width.
    """
    canvas_hw = choose_canvas(image.shape[0], image.shape[1], spec.canvases_hw)
    canvas, placement = letterbox(image, canvas_hw, spec.pad_value, share)
    candidates = pixels.to_host(detect(canvas[None])[0])
    boxes, scores, lines = select_boxes(candidates, spec)
    boxes = placement.to_photo(boxes)
    inside = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)  # clipping empties boxes in the padding
    return boxes[inside], scores[inside], lines[inside]


def find_boxes_in_tiles(
    image: Any, detect: Detect, spec: DetectorSpec, known: Sequence[Box] = ()
) -> Detections:
    """Find plates in tiles of a photo that is too large for its canvas; in other photos, none.

    Boxes are in photo pixels. Boxes that overlap a known plate are dropped, and so are boxes wide
    enough to be found in the whole photo.
    """
    height, width = image.shape[:2]
    canvas_hw = choose_canvas(height, width, spec.canvases_hw)
    widest = max(_OVERLAP_PX, _FOUND_PX / _scale(height, width, canvas_hw))
    found = [(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int64))]
    for x0, y0, x1, y1 in tiles_of(height, width, spec.canvases_hw):
        boxes, scores, lines = find_boxes(image[y0:y1, x0:x1], detect, spec)
        boxes = boxes + np.array((x0, y0) * 2, np.float32)
        # An inner edge of a tile may cut a plate off; the neighbouring tile has the whole plate.
        inner = np.array((x0 > 0, y0 > 0, x1 < width, y1 < height))
        whole = ~(inner & (np.abs(boxes - (x0, y0, x1, y1)) < _CUT_PX)).any(axis=1)
        whole &= boxes[:, 2] - boxes[:, 0] < widest
        found.append((boxes[whole], scores[whole], lines[whole]))
    boxes, scores, lines = map(np.concatenate, zip(*found, strict=True))
    best = np.argsort(-scores, kind="stable")[: spec.max_candidates]  # as many as in one run
    first = np.array(known, np.float32).reshape(-1, 4)
    kept = non_max_suppression(np.concatenate((first, boxes[best])), spec.iou_threshold)
    best = best[kept[len(first) :]]
    return boxes[best], scores[best], lines[best]


def tiles_of(height: int, width: int, canvases_hw: Sequence[tuple[int, int]]) -> list[Tile]:
    """Divide a photo into the fewest tiles x0, y0, x1, y1; none if one canvas is enough."""
    if _scale(height, width, choose_canvas(height, width, canvases_hw)) >= _LEAST_SCALE:
        return []
    grids = []
    for canvas_h, canvas_w in canvases_hw:
        rows, columns = _intervals(height, canvas_h), _intervals(width, canvas_w)
        grids.append([(x0, y0, x1, y1) for y0, y1 in rows for x0, x1 in columns])
    fewest = min(grids, key=len)
    return fewest if len(fewest) <= _MOST_TILES else []


def _intervals(length: int, canvas: int) -> list[tuple[int, int]]:
    """The fewest equal, overlapping intervals of a photo's side that fit a canvas's side."""
    most = round(canvas / _TILE_SCALE)
    count = max(1, -(-(length - _OVERLAP_PX) // (most - _OVERLAP_PX)))
    size = min(length, -(-(length + (count - 1) * _OVERLAP_PX) // count))
    starts = [round(k * (length - size) / max(count - 1, 1)) for k in range(count)]
    return [(start, start + size) for start in starts]


def choose_canvas(
    height: int, width: int, canvases_hw: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """Choose the canvas (H, W) that shrinks a photo least; the smallest if several do."""
    return max(canvases_hw, key=lambda hw: (_scale(height, width, hw), -hw[0] * hw[1]))


def _scale(height: int, width: int, canvas_hw: tuple[int, int]) -> float:
    """Canvas pixels per photo pixel, if the photo just fits the canvas."""
    return min(canvas_hw[0] / height, canvas_hw[1] / width)


def letterbox(
    image: Any, canvas_hw: tuple[int, int], pad_value: int = DETECTOR.pad_value, share: float = 1.0
) -> tuple[Any, Letterbox]:
    """Fit a photo into a canvas, or a share of its sides, undistorted, and pad the rest.

    The photo is (H, W, 3) uint8; any other raises ValueError. Returns the canvas, (3, H, W) uint8
    RGB with the photo in its middle, and the mapping back to the photo.
    """
    check_image(image)
    h, w = image.shape[:2]
    scale = share * _scale(h, w, canvas_hw)
    new_h, new_w = max(round(h * scale), 1), max(round(w * scale), 1)
    top, left = (canvas_hw[0] - new_h) // 2, (canvas_hw[1] - new_w) // 2
    place = slice(top, top + new_h), slice(left, left + new_w)
    canvas = pixels.letterbox(image, place, canvas_hw, pad_value)
    return canvas, Letterbox((w, h), (new_w / w, new_h / h), (left, top))


def check_image(image: Any) -> None:
    """Raise ValueError unless the image is (H, W, 3) uint8 with at least one pixel."""
    kind = str(getattr(image, "dtype", "")).removeprefix("torch.")
    if kind != "uint8" or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise ValueError(
            f"expected an image (H, W, 3) uint8 with at least one pixel, "
            f"got {f'{tuple(image.shape)} {kind}' if kind else type(image).__name__}"
        )


def select_boxes(candidates: Floats, spec: DetectorSpec) -> tuple[Floats, Floats, Lines]:
    """Drop weak candidates, then all that overlap a better one of any class.

    Candidates are (N, 6) float32 x0, y0, x1, y1, score, class, best first; unused rows have score
    0. Returns boxes (K, 4) in the candidates' coordinates, best first, their scores (K,) in [0, 1],
    and the plates' lines of text (K,) int64, 1 or 2.
    """
    sides = candidates[:, 2:4] - candidates[:, :2]
    # Comparisons with NaN are false, so this drops invalid rows, too.
    strong = candidates[(candidates[:, 4] >= spec.score_threshold) & (sides > 0).all(axis=1)]
    best = strong[non_max_suppression(strong[:, :4], spec.iou_threshold)]
    return best[:, :4], best[:, 4], np.where(best[:, 5] == 1, 2, 1)


def non_max_suppression(boxes_xyxy: ArrayLike, iou_threshold: float) -> NDArray[np.bool_]:
    """Greedy non-maximum suppression of (N, 4) boxes, best first: (N,), True for boxes to keep."""
    overlaps = box_iou_xyxy(boxes_xyxy, boxes_xyxy) > iou_threshold
    kept = np.ones(len(overlaps), np.bool_)
    for row in range(len(overlaps)):
        if kept[row]:
            kept[row + 1 :] &= ~overlaps[row, row + 1 :]
    return kept


def intersection_areas(a_xyxy: ArrayLike, b_xyxy: ArrayLike) -> Floats:
    """Intersection area of every pair of (N, 4) and (M, 4) boxes: (N, M)."""
    one, other = (np.asarray(boxes, np.float32).reshape(-1, 4) for boxes in (a_xyxy, b_xyxy))
    first = np.maximum(one[:, None, :2], other[None, :, :2])
    last = np.minimum(one[:, None, 2:], other[None, :, 2:])
    return np.asarray((last - first).clip(min=0).prod(axis=2))


def box_iou_xyxy(a_xyxy: ArrayLike, b_xyxy: ArrayLike) -> Floats:
    """Intersection over union of every pair of (N, 4) and (M, 4) boxes: (N, M) in [0, 1].

    The value is 0 if both boxes are empty.
    """
    common = intersection_areas(a_xyxy, b_xyxy)
    areas = (
        (boxes[:, 2:] - boxes[:, :2]).clip(min=0).prod(axis=1)
        for boxes in (np.asarray(each, np.float32).reshape(-1, 4) for each in (a_xyxy, b_xyxy))
    )
    union = np.add.outer(*areas) - common
    return np.asarray(common / union.clip(min=1e-9))
