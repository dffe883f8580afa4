"""The way of a photo: detect, crop, rectify, recognize, decode. Written once.

The three nets come in as functions on tensors: torch modules in process, calls to
Triton inside ``plate_recognition``. Nothing here knows which.

On a GPU nothing waits for a value until one copy brings all of them: see `devices`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plate_models.detection import ROUNDS
from plate_models.devices import download, host_sees, rows_that_count
from plate_models.finding import Looks, find_candidates, plan_looks
from plate_models.formats import RUSSIA, grammar_of
from plate_models.geometry import Letterbox, check_image
from plate_models.recognition import ctc
from plate_models.recognition.appearance import evidence_of
from plate_models.recognition.calibration import UNCALIBRATED, Calibration
from plate_models.recognition.grammar import Grammar
from plate_models.recognition.reading import Reading, choose_reading
from plate_models.rectifying import straighten
from plate_models.spec_json import DEFAULTS, Specs
from plate_models.straightening import hulls_of, sample_rows, shown_pixels

Detect = Callable[[Tensor], Tensor]
Rectify = Callable[[Tensor], tuple[Tensor, Tensor]]
Recognize = Callable[[Tensor], Tensor]

# How many looks a device takes before anybody knows whether there is anything to see: most
# photos need fewer. Then the number is known, and the rest follows in parts of at most so many.
FIRST_LOOKS, MOST_LOOKS = 8, 32

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
    """What was seen in given boxes, before any text is chosen; N plates, on the host.

    Attributes:
        quads: (N, 4, 2) float32, corners TL, TR, BR, BL in photo pixels.
        log_probs: N arrays (C, T) float64, the rows of two-line plates joined.
        shown: (N, 48, 188, 3) uint8 RGB, rectified.
    """

    quads: Tensor
    log_probs: list[ctc.Array]
    shown: NDArray[np.uint8]


@torch.inference_mode()
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
    candidates, placement = find_candidates(image, detect, config.specs.detector)
    best: dict[int, Plate] = {}
    for looks, seen in _look_around(image, candidates, placement, rectify, recognize, config):
        readings = choose_readings(seen, looks.lines.tolist(), config)
        plates = _assemble(image, looks, seen, readings)
        for index, plate in zip(looks.plates.tolist(), plates, strict=True):
            if index not in best or _is_surer(plate.reading, best[index].reading):
                best[index] = plate
    return list(best.values())


def _look_around(
    image: Tensor,
    candidates: Tensor,
    placement: Letterbox,
    rectify: Rectify,
    recognize: Recognize,
    config: PipelineConfig,
    rounds: int = ROUNDS,
) -> list[tuple[Looks, Sightings]]:
    """Look at all that there is to look at; what comes back is on the host."""
    looks = plan_looks(candidates, placement, config.specs.detector, rounds)
    start, total, found = 0, len(looks), []
    size = total if host_sees(image) else FIRST_LOOKS
    while start < total:
        part = looks.part(start, start + size)
        views = _view(image, part.boxes, part.lines, rectify, recognize, config)
        # The one copy back, and the one wait. It tells how many of the looks were worth it.
        there = download([*part.tensors(), *views])
        part, views = Looks(*there[: -len(views)]), there[-len(views) :]
        if not part.certain:  # many boxes in a chain, each overlapping the next
            every = (rectify, recognize, config, len(candidates) + 1)
            return _look_around(image, candidates, placement, *every)
        total = int(part.total)
        count = min(size, total - start)
        found.append((part.part(0, count), _sightings(views, count)))
        start, size = start + size, MOST_LOOKS
    return found


def _is_surer(reading: Reading, than: Reading) -> bool:
    return reading.readable and (not than.readable or reading.score > than.score)


def _assemble(image: Tensor, looks: Looks, seen: Sightings, readings: list[Reading]) -> list[Plate]:
    hulls = hulls_of(seen.quads).clamp(min=0)
    hulls = hulls.minimum(hulls.new_tensor(image.shape[1::-1] * 2))
    # The quad of a plate that was read is exact; where nothing was, it may be anything.
    readable = torch.tensor([r.readable for r in readings], dtype=torch.bool)
    boxes = torch.where(readable[:, None], hulls, looks.boxes)
    found = (part.tolist() for part in (boxes, seen.quads, looks.scores, looks.lines))
    return [
        Plate((x0, y0, x1, y1), tuple((x, y) for x, y in quad), score, count, reading, crop)
        for (x0, y0, x1, y1), quad, score, count, reading, crop in zip(
            *found, readings, seen.shown, strict=True
        )
    ]


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
    views = _view(image, boxes, lines, rectify, recognize, config)
    return _sightings(download(views), len(boxes))


def _view(
    image: Tensor,
    boxes: Tensor,
    lines: Tensor,
    rectify: Rectify,
    recognize: Recognize,
    config: PipelineConfig,
) -> list[Tensor]:
    """What `_sightings` takes, on the image's device.

    Quads and pixels to show of all plates; the logits of plates read as one line, then of
    the pairs of rows of those read as two; which plates these are, and which those.
    """
    spec, two = config.specs.rectifier, lines == 2
    crops, rectified, theta, quads = straighten(image, boxes, lines, rectify, spec)
    singles, pairs = rows_that_count(~two), rows_that_count(two)
    texts = torch.cat((rectified[singles], sample_rows(crops[pairs], theta[pairs], spec)))
    batches = torch.split(texts, config.specs.recognizer.max_batch_size)
    logits = torch.cat([recognize(batch) for batch in batches]).float()
    return [quads, shown_pixels(crops, theta, spec), logits, singles, pairs, two]


def _sightings(views: Sequence[Tensor], count: int) -> Sightings:
    """The first so many plates of what `_view` saw, on the host by now."""
    quads, pixels, logits, singles, pairs, two = views
    steps = [ctc.log_softmax(row) for row in logits.numpy()]
    one_line = dict(zip(singles.tolist(), steps[: len(singles)], strict=True))
    rows = zip(steps[len(singles) :: 2], steps[len(singles) + 1 :: 2], strict=True)
    two_lines = dict(zip(pairs.tolist(), rows, strict=True))
    log_probs = [
        ctc.join_rows(two_lines[plate]) if flag else one_line[plate]
        for plate, flag in enumerate(two[:count].tolist())
    ]
    return Sightings(quads[:count], log_probs, pixels[:count].numpy())


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
