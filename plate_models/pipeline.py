"""The way of a photo: detect, crop, rectify, recognize, decode. Written once.

The three nets come in as functions: graphs or torch modules in process, calls to Triton inside
``plate_recognition``. Nothing here knows which.

Pixels and crops stay where the photo lies: NumPy's arrays on the host, or torch's tensors on a
device (see ``pixels.py``). What describes plates (candidates, theta, logits) comes to the host as
soon as it is needed, and so do the small rectified plates at the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plate_models import detection, rectification
from plate_models.detection import Box, Detect, Found
from plate_models.formats import grammar_of
from plate_models.motion import blur_of
from plate_models.pixels import Floats, Lines, join, resample, to_host
from plate_models.recognition import ctc
from plate_models.recognition.appearance import aspects_of, evidence_of, is_colourless
from plate_models.recognition.calibration import UNCALIBRATED, Calibration
from plate_models.recognition.decoding import DEFAULT_GRAMMAR, LENGTHS, Reading, choose_reading
from plate_models.recognition.grammar import UNKNOWN, Grammar, country_of
from plate_models.rectification import Rectify
from plate_models.spec import DEFAULTS, Specs

# (N, 3, h, w) float32 rectified plates to (N, C, T) float32 logits.
Recognize = Callable[[Any], Any]

# Low characters, between words: shares of the height (from, to), of plates less wide than so high.
# Fewer characters than this are one of two rows; a box of a lower score is hardly a plate.
_LOW_SPAN, _LOW_ASPECT, _LOW_LENGTH, _LOW_BOX = (0.2, 0.8), 3.7, 5, 0.25
_PART = 0.8  # of a box, inside another one: then it is a part of that
# A plate that is nearer to a photo's left or right side, in shares of its height, may be cut by it:
# a part of a text looks like another one. Near both sides it is a photo of that plate alone.
_EDGE = 0.08
# A box of this detection score is a plate, whatever stands on it; others need a text so likely.
_SURE_BOX, _LEAST_SCORE = 0.55, 0.08
# Where nothing can be read, or a plate is wider than this share of the photo, it is looked at once
# more, so much smaller. What is found there is a plate from this score on.
_WIDE, _NEAR, _SURE_NEAR = 0.2, 1 / 3, 0.7
# Below this one only a text of home says that it is one, or a sure one of a known format: others
# are mostly signs and lorries.
_DOUBTFUL_BOX = 0.5
# Of a frame, what the detector finds with less is passed over: a plate has other frames.
_FRAME_BOX = 0.25
# A plate whose score lies between is read from shifted crops, too: below, nothing is won.
_HOPELESS, _SURE = 0.1, 0.9
# A plate in doubt that is so much less sharp along one way than across it may have moved. How far,
# in shares of its width, is tried, then how much askew; a text that is so sure then is taken. It
# takes as long as twenty plates, so that in each look at a photo only so many are tried.
_DOUBT, _MOVED, _SURE_MOVED, _MOST_MOVED = 0.75, 0.6, 0.85, 4
_LENGTHS, _TURNS = np.arange(0.03, 0.16, 0.008), np.exp(1j * np.radians((-14, -7, 7, 14)))
_SHIFTS = ((0.03, 0.0), (-0.03, 0.0), (0.0, 0.06), (0.0, -0.06))  # of a box's width and height

Point = tuple[float, float]


@dataclass(frozen=True)
class PipelineConfig:
    """What the nets at hand need around them: their specs, a grammar, a calibration."""

    specs: Specs = DEFAULTS
    grammar: Grammar = DEFAULT_GRAMMAR
    calibration: Calibration = UNCALIBRATED
    # A photo is all there is: plates in doubt are read from further crops, doubtful boxes with too
    # little text for a plate are left out, and texts that are not of home are not readable in them.
    # Frames of a camera, which are joined later, want each plate as one crop shows it.
    still: bool = True
    square_pixels: bool = True  # not stretched: a plate's proportions tell of its format

    @classmethod
    def of(cls, specs: Specs, calibration: Calibration) -> "PipelineConfig":
        """What weights need; a FormatError if their countries' formats are not at hand."""
        return cls(specs, grammar_of(*specs.recognizer.countries), calibration)


DEFAULT_CONFIG = PipelineConfig()


@dataclass(frozen=True)
class Plate:
    """One plate of a photo."""

    # x0, y0, x1, y1 in pixels of the upright photo: around the quad of a readable plate, the
    # detector's where nothing was read.
    box: Box
    quad: tuple[Point, ...]  # corners TL, TR, BR, BL of the plate's own orientation
    detection_score: float  # in [0, 1]
    lines: int  # of text, 1 or 2
    reading: Reading
    crop: NDArray[np.uint8]  # (48, 188, 3) RGB, rectified
    # (C, T) as of `Predictions`, which gave the reading; in doubt those of shifted crops did, too.
    log_probs: ctc.Array


@dataclass(frozen=True)
class Predictions:
    """What the nets say of given boxes, before any text is chosen; N plates, on the host."""

    quads: Floats  # (N, 4, 2), corners TL, TR, BR, BL in photo pixels
    log_probs: list[ctc.Array]  # N of (C, T), the rows of two-line plates joined
    crops: NDArray[np.uint8]  # (N, 48, 188, 3) RGB, rectified
    lines: list[int]  # of text, 1 or 2, as they were read
    colourless: bool  # whether the photo is grey

    def followed_by(self, others: "Predictions") -> "Predictions":
        """These and others, of the same photo."""
        quads = np.concatenate((self.quads, others.quads))
        crops = np.concatenate((self.crops, others.crops))
        texts = self.log_probs + others.log_probs, crops, self.lines + others.lines
        return Predictions(quads, *texts, self.colourless)


Read = Callable[..., Predictions]  # `read_regions` of one photo by given nets


def read_plates(
    image: Any,
    detect: Detect,
    rectify: Rectify,
    recognize: Recognize,
    config: PipelineConfig = DEFAULT_CONFIG,
) -> list[Plate]:
    """Find and read every plate in a photo; the most certain detection comes first.

    The image is (H, W, 3) uint8 RGB, upright: an array, or a tensor on the device where the work
    shall be done; another one is a ValueError. The nets take and give the like: see their types.
    The config is what they were made for.
    """
    detection.check_image(image)
    read = partial(_read_found, image, rectify, recognize, config)
    spec = config.specs.detector
    plates = read(detection.find_boxes(image, detect, spec))
    if not config.still:
        return plates
    # Plates that take up much of a photo are found whole where it is smaller. What is surely a
    # plate and surely read is no part of one.
    unsure = [p.box for p in plates if not (_is_read(p) and _is_known(p.reading))]
    widest = max((x1 - x0 for x0, _, x1, _ in unsure), default=0) / image.shape[1]
    readable = any(plate.reading.readable for plate in plates)
    if not readable or widest > _WIDE:
        near = read(detection.find_boxes(image, detect, spec, _NEAR))
        plates += [plate for plate in near if _is_plate(plate, _SURE_NEAR)]
    known = [plate.box for plate in plates if _is_read(plate)]
    plates += read(detection.find_small_boxes(image, detect, spec, known))
    plates.sort(key=lambda plate: (-plate.reading.readable, -plate.detection_score))
    kept = detection.keep_apart([plate.box for plate in plates], spec.iou_threshold)
    plates = _without_parts([plates[row] for row in np.flatnonzero(kept)])
    return sorted(plates, key=lambda plate: -plate.detection_score)


def _read_found(
    image: Any, rectify: Rectify, recognize: Recognize, config: PipelineConfig, found: Found
) -> list[Plate]:
    """Read what the detector found in one look at a photo."""
    boxes, scores, lines = found
    if not config.still:
        enough = scores >= _FRAME_BOX
        boxes, scores, lines = boxes[enough], scores[enough], lines[enough]
    if not len(boxes):
        return []
    # Each plate is read as what the detector took it for, and a second time with the other number
    # of lines if it is said to have two, or one in a box too short for it.
    widths, heights = (boxes[:, 2:] - boxes[:, :2]).T
    short = widths < config.specs.detector.long_aspect * heights
    doubtful = np.flatnonzero((lines == 2) | short)
    rows = np.concatenate((np.arange(len(boxes)), doubtful))
    boxes, scores = boxes[rows], scores[rows]
    lines = np.concatenate((lines, 3 - lines[doubtful]))
    read = partial(read_regions, image, rectify=rectify, recognize=recognize, config=config)
    predictions = read(boxes, lines)
    readings = choose_readings(predictions, config)
    if config.still:
        _look_again(read, predictions, readings, rows.tolist(), config)
        sure = rows[[reading.score > _DOUBT for reading in readings]]
        for row in np.flatnonzero((scores >= _SURE_BOX) & ~np.isin(rows, sure))[:_MOST_MOVED]:
            if len(readings[row].best) in LENGTHS:
                _undo_motion(read, predictions, readings, row, config)
    # A short plate that can't be read yet is read once more, without words around low characters.
    # None of the weights' first country is such a plate: those were learnt as they are.
    read_already = rows[np.array([each.readable for each in readings])]
    aspects = np.array(aspects_of(predictions.quads))
    maybe_low = (lines == 1) & (aspects < _LOW_ASPECT) & (scores >= _LOW_BOX)
    if len(low := np.flatnonzero(maybe_low & ~np.isin(rows, read_already))):
        middles = read(boxes[low], lines[low], span=_LOW_SPAN)
        learnt = config.specs.recognizer.countries[0]
        for each in choose_readings(middles, config):
            wrong = len(each.best) < _LOW_LENGTH or country_of(each.format) == learnt
            readings.append(replace(each, text="", readable=False) if wrong else each)
        predictions = predictions.followed_by(middles)
        rows, boxes, scores = (np.concatenate((a, a[low])) for a in (rows, boxes, scores))
    home, hulls = config.grammar.name, rectification.hulls_of(predictions.quads)
    if config.still:
        near, far = np.sort((hulls[:, 0], image.shape[1] - hulls[:, 2]), axis=0)
        heights = hulls[:, 3] - hulls[:, 1]
        cut = (near < _EDGE * heights) & (far > heights)
        for row, (score, reading) in enumerate(zip(scores.tolist(), readings, strict=True)):
            abroad = country_of(reading.format) != home
            sign = score < _DOUBTFUL_BOX and abroad and not _is_known(reading)
            if sign or cut[row]:
                readings[row] = replace(reading, text="", readable=False)
    hulls = hulls.clip(0, tuple(image.shape[1::-1]) * 2)
    best: dict[int, Plate] = {}
    for row, (plate, reading) in enumerate(zip(rows.tolist(), readings, strict=True)):
        if plate in best and not _is_better(reading, best[plate].reading, home):
            continue
        # The quad of a plate that was read is exact; where nothing was, it may be anything.
        x0, y0, x1, y1 = (hulls if reading.readable else boxes)[row].tolist()
        best[plate] = Plate(
            box=(x0, y0, x1, y1),
            quad=tuple((x, y) for x, y in predictions.quads[row].tolist()),
            detection_score=float(scores[row]),
            lines=predictions.lines[row],
            reading=reading,
            crop=predictions.crops[row],
            log_probs=predictions.log_probs[row],
        )
    plates = _without_parts(list(best.values()))
    return [plate for plate in plates if _is_plate(plate)] if config.still else plates


def _is_plate(plate: Plate, sure_box: float = _SURE_BOX) -> bool:
    """Whether the detector is sure, or there is text enough; wheels and lamps have none."""
    text = len(plate.reading.best) >= LENGTHS.start and plate.reading.score >= _LEAST_SCORE
    return plate.detection_score >= sure_box or text


def _look_again(
    read: Read,
    seen: Predictions,
    readings: list[Reading],
    plates: list[int],
    config: PipelineConfig,
) -> None:
    """Where no reading of a plate is sure, read it from shifted crops, too, and from all together.

    The readings, of which several may be of one plate, are replaced.
    """
    by_plate = list(zip(plates, readings, strict=True))
    sure = {plate for plate, reading in by_plate if reading.score > _SURE}
    rows = [
        row
        for row, (plate, reading) in enumerate(by_plate)
        if plate not in sure and reading.score > _HOPELESS and len(reading.best) in LENGTHS
    ]
    if not rows:
        return
    hulls, lines = rectification.hulls_of(seen.quads[rows]), [seen.lines[row] for row in rows]
    sides = np.tile(hulls[:, 2:] - hulls[:, :2], 2)
    boxes = [hulls + sides * np.array(shift * 2, hulls.dtype) for shift in _SHIFTS]
    further = read(np.concatenate(boxes), np.array(lines * len(boxes))).log_probs
    log_probs = [seen.log_probs[row] for row in rows]
    crops, views = seen.crops[rows], [further[place :: len(rows)] for place in range(len(rows))]
    doubtful = Predictions(seen.quads[rows], log_probs, crops, lines, seen.colourless)
    for row, reading in zip(rows, choose_readings(doubtful, config, views), strict=True):
        readings[row] = reading


def _undo_motion(
    read: Read, seen: Predictions, readings: list[Reading], row: int, config: PipelineConfig
) -> None:
    """If a plate may have moved, read it without that blur; what is surer replaces the rest."""
    motion, sharpness = blur_of(seen.crops[row], seen.quads[row])
    if sharpness >= _MOVED:
        return
    hull = rectification.hulls_of(seen.quads[[row]])
    motion *= hull[0, 2] - hull[0, 0]
    for tries in (_LENGTHS, _TURNS):
        tried = motion * tries
        motions = np.stack((tried.real, tried.imag), axis=1).astype(np.float32)
        lines = np.full(len(tried), seen.lines[row])
        views = read(hull.repeat(len(tried), axis=0), lines, motions=motions)
        found = choose_readings(views, config)
        best = max(range(len(found)), key=lambda view: found[view].score)
        motion = tried[best]
        if found[best].readable and found[best].score > max(readings[row].score, _SURE_MOVED):
            readings[row] = found[best]
            seen.quads[row], seen.crops[row] = views.quads[best], views.crops[best]
            seen.log_probs[row] = views.log_probs[best]


def _without_parts(plates: list[Plate]) -> list[Plate]:
    """Drop what lies inside a larger readable plate, such as its region found once more."""
    boxes = [plate.box for plate in plates]
    shared = detection.shared_areas(boxes, boxes)
    area, readable = shared.diagonal(), np.array([plate.reading.readable for plate in plates], bool)
    part = (shared > _PART * area[:, None]) & (area > area[:, None]) & readable
    return [plate for plate, drop in zip(plates, part.any(axis=1), strict=True) if not drop]


def _is_read(plate: Plate) -> bool:
    return plate.detection_score >= _SURE_BOX and plate.reading.readable


def _is_known(reading: Reading) -> bool:
    """Whether the best candidate is a sure one of a known format."""
    return reading.format != UNKNOWN and reading.score > _SURE


def _is_better(reading: Reading, than: Reading, home: str) -> bool:
    """Compare two readings of one plate: formats of home first, then known ones, then the score."""
    if not (reading.readable and than.readable):
        return reading.readable
    new, before = (
        (country_of(each.format) == home, each.format != UNKNOWN, each.score)
        for each in (reading, than)
    )
    return new > before


def read_regions(
    image: Any,
    boxes: Floats,
    lines: Lines,
    rectify: Rectify,
    recognize: Recognize,
    config: PipelineConfig = DEFAULT_CONFIG,
    span: tuple[float, float] | None = None,
    motions: Floats | None = None,
) -> Predictions:
    """Crop, rectify and recognize the plates in N >= 1 given boxes of a photo.

    The boxes are (N, 4) float x0, y0, x1, y1 in its pixels, the lines (N,) int64 lines of text on
    each plate; a span (from, to) is what is read of one line's height; for the motions see
    `rectification.straighten`. The rest: see `read_plates`.
    """
    spec = config.specs.rectifier
    found = rectification.straighten(image, boxes, lines, rectify, spec, motions)
    counts, read = lines.tolist(), []
    for row, count in enumerate(counts):
        if count == 1 and not span:
            read.append(found.plates[row : row + 1])
            continue
        spans = [span] if span and count == 1 else spec.row_spans
        theta = rectification.theta_of_rows(found.theta[row : row + 1], spans)
        crops = join([found.crops[row : row + 1]] * len(theta))
        read.append(resample(crops, theta, spec.rectified_hw))
    batches = rectification.parts_of(join(read), config.specs.recognizer.max_batch_size)
    logits = np.concatenate([to_host(recognize(batch)) for batch in batches])
    steps = map(ctc.log_softmax, logits)
    log_probs = [
        next(steps) if count == 1 else ctc.join_rows(next(steps), next(steps)) for count in counts
    ]
    crops = rectification.rectified_rgb(found, spec)
    return Predictions(found.quads, log_probs, crops, counts, is_colourless(image))


def choose_readings(
    predictions: Predictions,
    config: PipelineConfig = DEFAULT_CONFIG,
    further: Sequence[Sequence[ctc.Array]] = (),
) -> list[Reading]:
    """Choose the text of each of N plates from what the nets say.

    `further` are N lists of log-probabilities of further views, or none; see `choose_reading`.
    """
    context = config.grammar, config.calibration, config.specs.recognizer
    seen = predictions.crops, predictions.quads, predictions.lines, predictions.colourless
    evidence = evidence_of(*seen)
    if not config.square_pixels:
        evidence = [each._replace(aspect=None) for each in evidence]
    rows = zip(predictions.log_probs, evidence, further or [()] * len(evidence), strict=True)
    return [choose_reading(log_probs, each, *context, views) for log_probs, each, views in rows]
