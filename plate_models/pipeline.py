"""The way of a photo: detect, crop, rectify, recognize, decode. Written once.

The three nets come in as functions on tensors: torch modules in process, calls to
Triton inside ``plate_recognition``. Nothing here knows which.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plate_models import ctc
from plate_models.appearance import evidence_of
from plate_models.calibration import UNCALIBRATED, Calibration
from plate_models.detection import select_boxes
from plate_models.formats import RUSSIA, grammar_of
from plate_models.geometry import check_image, choose_canvas, crop_boxes, letterbox
from plate_models.grammar import Grammar
from plate_models.reading import Reading, choose_reading
from plate_models.spec import DETECTOR, RECTIFIER, DetectorSpec, RectifierSpec
from plate_models.spec_json import DEFAULTS, Specs
from plate_models.straightening import (
    hulls_of,
    quads_from_theta,
    reach_of,
    resample,
    sample_rows,
)

Detect = Callable[[Tensor], Tensor]
Rectify = Callable[[Tensor], tuple[Tensor, Tensor]]
Recognize = Callable[[Tensor], Tensor]

Box = tuple[float, float, float, float]
Point = tuple[float, float]


@dataclass(frozen=True)
class PipelineConfig:
    """What the nets at hand need around them.

    Attributes:
        specs: What they were made for.
        grammar: What stands on plates.
        calibration: Of the recognizer's scores.
    """

    specs: Specs = DEFAULTS
    grammar: Grammar = RUSSIA
    calibration: Calibration = UNCALIBRATED

    @classmethod
    def of(cls, specs: Specs, calibration: Calibration) -> "PipelineConfig":
        """What weights need: their specs, their calibration and their country's grammar.

        Raises:
            FormatError: The country's formats are not at hand.
        """
        return cls(specs, grammar_of(specs.recognizer.country), calibration)


DEFAULT_CONFIG = PipelineConfig()


@dataclass(frozen=True)
class Plate:
    """One plate of a photo.

    Attributes:
        box: x0, y0, x1, y1 in pixels of the upright photo: around the quad of a readable
            plate, the detector's where nothing was read.
        quad: Corners TL, TR, BR, BL of the plate's own orientation, in the same pixels.
        detection_score: The detector's confidence, in [0, 1].
        lines: Lines of text, 1 or 2.
        reading: The text and how sure it is.
        crop: (48, 188, 3) uint8 RGB, the rectified plate.
    """

    box: Box
    quad: tuple[Point, ...]
    detection_score: float
    lines: int
    reading: Reading
    crop: NDArray[np.uint8]


@dataclass(frozen=True)
class Sightings:
    """What was seen in given boxes, before any text is chosen; N plates.

    Attributes:
        quads: (N, 4, 2) float32, corners TL, TR, BR, BL in photo pixels.
        log_probs: N arrays (C, T) float64, the rows of two-line plates joined.
        shown: (N, 48, 188, 3) uint8 RGB, rectified.
    """

    quads: Tensor
    log_probs: list[ctc.Array]
    shown: NDArray[np.uint8]


def read_plates(
    image: Tensor,
    detect: Detect,
    rectify: Rectify,
    recognize: Recognize,
    config: PipelineConfig = DEFAULT_CONFIG,
) -> list[Plate]:
    """Find and read every plate in a photo.

    Args:
        image: (H, W, 3) uint8 RGB, upright, on the device where the work shall be done.
        detect: (1, 3, h, w) uint8 canvas to (1, 300, 6) float32 candidates.
        rectify: (N, 3, h, w) float32 crops to rectified plates and theta.
        recognize: (N, 3, h, w) float32 rectified plates to (N, C, T) float32 logits.
        config: What the nets were made for.

    Returns:
        The plates, most certain detection first; an empty list if there are none.

    Raises:
        ValueError: The image is not (H, W, 3) uint8 with at least one pixel.
    """
    check_image(image)
    boxes, scores, lines = find_boxes(image, detect, config.specs.detector)
    if not len(boxes):
        return []
    doubtful = in_doubt(boxes, lines, config.specs.detector).nonzero()[:, 0]
    boxes, scores = (torch.cat((part, part[doubtful])) for part in (boxes, scores))
    lines = torch.cat((lines, 3 - lines[doubtful]))
    seen = look_at(image, boxes, lines, rectify, recognize, config)
    readings = choose_readings(seen, lines.tolist(), config)
    plates = _assemble(image, boxes, scores, lines, seen, readings)
    count = len(plates) - len(doubtful)
    for index, other in zip(doubtful.tolist(), plates[count:], strict=True):
        if _is_surer(other.reading, plates[index].reading):
            plates[index] = other
    return plates[:count]


def _is_surer(reading: Reading, than: Reading) -> bool:
    return reading.readable and (not than.readable or reading.score > than.score)


def _assemble(
    image: Tensor,
    boxes: Tensor,
    scores: Tensor,
    lines: Tensor,
    seen: Sightings,
    readings: list[Reading],
) -> list[Plate]:
    hulls = hulls_of(seen.quads).clamp(min=0)
    hulls = hulls.minimum(hulls.new_tensor(image.shape[1::-1] * 2))
    # The quad of a plate that was read is exact; where nothing was, it may be anything.
    readable = torch.tensor([r.readable for r in readings], device=boxes.device)
    boxes = torch.where(readable[:, None], hulls, boxes)
    found = (part.tolist() for part in (boxes, seen.quads, scores, lines))
    return [
        Plate((x0, y0, x1, y1), tuple((x, y) for x, y in quad), score, count, reading, crop)
        for (x0, y0, x1, y1), quad, score, count, reading, crop in zip(
            *found, readings, seen.shown, strict=True
        )
    ]


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


def find_boxes(
    image: Tensor, detect: Detect, spec: DetectorSpec = DETECTOR
) -> tuple[Tensor, Tensor, Tensor]:
    """Find plates: canvas, detector, choice of boxes, back to the photo's pixels.

    Args:
        image: (H, W, 3) uint8 RGB.
        detect: See :func:`read_plates`.
        spec: Canvases and thresholds.

    Returns:
        (N, 4) float32 boxes x0, y0, x1, y1 in photo pixels, (N,) scores, best first, and
        (N,) int64 lines of text, 1 or 2.
    """
    canvas_hw = choose_canvas(image.shape[0], image.shape[1], spec.canvases_hw)
    canvas, placement = letterbox(image, canvas_hw, spec.pad_value)
    boxes, scores, lines = select_boxes(detect(canvas[None])[0], spec)
    return placement.to_photo(boxes), scores, lines


def look_at(
    image: Tensor,
    boxes: Tensor,
    lines: Tensor,
    rectify: Rectify,
    recognize: Recognize,
    config: PipelineConfig = DEFAULT_CONFIG,
) -> Sightings:
    """Crop, rectify and recognize the plates in given boxes.

    Args:
        image: (H, W, 3) uint8 RGB.
        boxes: (N, 4) float x0, y0, x1, y1 in its pixels, N >= 1.
        lines: (N,) int64 lines of text on each plate.
        rectify: See :func:`read_plates`.
        recognize: See :func:`read_plates`.
        config: What the nets were made for.
    """
    spec, two = config.specs.rectifier, lines == 2
    crops, rectified, theta, quads = _straighten(image, boxes, lines, rectify, spec)
    texts = torch.cat((rectified[~two], sample_rows(crops[two], theta[two], spec)))
    batches = torch.split(texts, config.specs.recognizer.max_batch_size)
    logits = torch.cat([recognize(batch) for batch in batches]).float().cpu().numpy()
    shown = resample(crops, theta, spec.shown_hw) * spec.std + spec.mean
    pixels = shown.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    return Sightings(quads, _join_rows(logits, two.tolist()), pixels)


def _straighten(
    image: Tensor, boxes: Tensor, lines: Tensor, rectify: Rectify, spec: RectifierSpec
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Crops, rectified plates, theta and quads; a plate that its box cut is cropped anew."""
    looks = _look(image, boxes, lines, rectify, spec)
    cut = reach_of(looks[2]) > spec.look_again_from
    if cut.any():
        hulls = hulls_of(looks[3][cut])
        for first, second in zip(
            looks, _look(image, hulls, lines[cut], rectify, spec), strict=True
        ):
            first[cut] = second
    return looks


def _look(
    image: Tensor, boxes: Tensor, lines: Tensor, rectify: Rectify, spec: RectifierSpec
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    crops = normalize(crop_boxes(image, boxes, lines, spec), spec)
    chunks = [rectify(chunk) for chunk in torch.split(crops, spec.max_batch_size)]
    theta = torch.cat([part for _, part in chunks])
    quads = quads_from_theta(theta, boxes, lines, spec)
    return crops, torch.cat([plates for plates, _ in chunks]), theta, quads


def _join_rows(logits: NDArray[np.float32], two: list[bool]) -> list[ctc.Array]:
    """Back to one array per plate: first come the one-line plates, then the pairs of rows."""
    rows = iter([ctc.log_softmax(row) for row in logits])
    single = [next(rows) for flag in two if not flag]
    pairs = iter([ctc.join_rows([next(rows), next(rows)]) for flag in two if flag])
    singles = iter(single)
    return [next(pairs) if flag else next(singles) for flag in two]


def choose_readings(
    seen: Sightings, lines: list[int], config: PipelineConfig = DEFAULT_CONFIG
) -> list[Reading]:
    """Choose each plate's text from what was seen.

    Args:
        seen: N plates.
        lines: Their lines of text.
        config: What the nets were made for.

    Returns:
        N readings.
    """
    context = config.grammar, config.calibration, config.specs.recognizer
    return [
        choose_reading(log_probs, evidence, *context)
        for log_probs, evidence in zip(seen.log_probs, evidence_of(seen.shown, lines), strict=True)
    ]


def normalize(crops: Tensor, spec: RectifierSpec = RECTIFIER) -> Tensor:
    """Turn pixels into the nets' input.

    Args:
        crops: (N, 3, H, W) uint8 or float in [0, 255].
        spec: Mean and standard deviation.

    Returns:
        The same shape, float32, ``(x - mean) / std``.
    """
    return (crops.float() - spec.mean) / spec.std
