"""The way of a photo: detect, crop, rectify, recognize, decode. Written once.

The three nets come in as functions on tensors: torch modules in process, calls to
Triton inside ``plate_recognition``. Nothing here knows which.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plate_models import ctc
from plate_models.detection import select_boxes
from plate_models.geometry import (
    check_image,
    choose_canvas,
    crop_boxes,
    letterbox,
    quads_from_theta,
)
from plate_models.reading import Reading as Reading
from plate_models.reading import choose_reading as choose_reading
from plate_models.spec import DETECTOR, RECOGNIZER, RECTIFIER, DetectorSpec

Detect = Callable[[Tensor], Tensor]
Rectify = Callable[[Tensor], tuple[Tensor, Tensor]]
Recognize = Callable[[Tensor], Tensor]

Box = tuple[float, float, float, float]
Point = tuple[float, float]


@dataclass(frozen=True)
class Plate:
    """One plate of a photo.

    Attributes:
        box: x0, y0, x1, y1 in pixels of the upright photo.
        quad: Corners TL, TR, BR, BL of the plate's own orientation, in the same pixels.
        detection_score: The detector's confidence, in [0, 1].
        reading: The text and how sure it is.
        crop: (24, 94, 3) uint8 RGB, the rectified plate as the recognizer saw it.
    """

    box: Box
    quad: tuple[Point, ...]
    detection_score: float
    reading: Reading
    crop: Tensor


def read_plates(
    image: Tensor, detect: Detect, rectify: Rectify, recognize: Recognize
) -> list[Plate]:
    """Find and read every plate in a photo.

    Args:
        image: (H, W, 3) uint8 RGB, upright, on the device where the work shall be done.
        detect: (1, 3, h, w) uint8 canvas to (1, 300, 6) float32 candidates.
        rectify: (N, 3, h, w) float32 crops to rectified plates and theta.
        recognize: (N, 3, h, w) float32 rectified plates to (N, C, T) float32 logits.

    Returns:
        The plates, most certain detection first; an empty list if there are none.

    Raises:
        ValueError: The image is not (H, W, 3) uint8 with at least one pixel.
    """
    check_image(image)
    boxes, scores = find_boxes(image, detect)
    if not len(boxes):
        return []
    crops = normalize(crop_boxes(image, boxes))
    rectified, theta = _rectify_in_chunks(crops, rectify)
    quads = quads_from_theta(theta, boxes)
    readings = read_rectified(rectified, recognize)
    return _assemble(boxes, quads, scores, readings, rectified)


def find_boxes(
    image: Tensor, detect: Detect, spec: DetectorSpec = DETECTOR
) -> tuple[Tensor, Tensor]:
    """Find plates: canvas, detector, choice of boxes, back to the photo's pixels.

    Args:
        image: (H, W, 3) uint8 RGB.
        detect: See :func:`read_plates`.
        spec: Canvases and thresholds.

    Returns:
        (N, 4) float32 boxes x0, y0, x1, y1 in photo pixels and (N,) scores, best first.
    """
    canvas_hw = choose_canvas(image.shape[0], image.shape[1], spec.canvases_hw)
    canvas, placement = letterbox(image, canvas_hw, spec.pad_value)
    boxes, scores = select_boxes(detect(canvas[None])[0], spec)
    return placement.to_photo(boxes), scores


def normalize(crops: Tensor) -> Tensor:
    """Turn pixels into the nets' input.

    Args:
        crops: (N, 3, H, W) uint8 or float in [0, 255].

    Returns:
        The same shape, float32, ``(x - mean) / std``.
    """
    return (crops.float() - RECTIFIER.mean) / RECTIFIER.std


def _rectify_in_chunks(crops: Tensor, rectify: Rectify) -> tuple[Tensor, Tensor]:
    chunks = [rectify(chunk) for chunk in torch.split(crops, RECTIFIER.max_batch_size)]
    return torch.cat([plates for plates, _ in chunks]), torch.cat([theta for _, theta in chunks])


def read_rectified(rectified: Tensor, recognize: Recognize) -> list[Reading]:
    """Read rectified plates, any number of them.

    Args:
        rectified: (N, 3, h, w) float32, normalised.
        recognize: See :func:`read_plates`.

    Returns:
        N readings.
    """
    chunks = [recognize(chunk) for chunk in torch.split(rectified, RECOGNIZER.max_batch_size)]
    logits = torch.cat(chunks).float().cpu().numpy()
    return [choose_reading(ctc.log_softmax(row)) for row in logits]


def _assemble(
    boxes: Tensor, quads: Tensor, scores: Tensor, readings: list[Reading], rectified: Tensor
) -> list[Plate]:
    pixels = (rectified * RECTIFIER.std + RECTIFIER.mean).round().clamp(0, 255)
    crops = pixels.to(torch.uint8).permute(0, 2, 3, 1).cpu()
    rows = zip(boxes.tolist(), quads.tolist(), scores.tolist(), readings, crops, strict=True)
    return [
        Plate((x0, y0, x1, y1), tuple((x, y) for x, y in quad), score, reading, crop)
        for (x0, y0, x1, y1), quad, score, reading, crop in rows
    ]
