"""The pipeline: detect, crop, rectify, recognize, decode. Written once, for every transport.

The three nets are passed in as functions: graphs or torch modules in this process, or calls to
Triton inside ``plate_recognition``. Nothing here depends on which.

Pixels and crops stay on the photo's device: NumPy arrays on the host, or torch tensors on a GPU
(see ``pixels.py``). Small results (candidates, theta, logits) are copied to the host when they are
needed, and so are the small rectified plates at the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plate_models import detection, rectification
from plate_models.detection import Box, Detect, Detections
from plate_models.formats import UnknownCountry, available_countries, grammar_of
from plate_models.motion import blur_of
from plate_models.pixels import Floats, Lines, concatenate, resample, to_host
from plate_models.recognition import ctc
from plate_models.recognition.appearance import aspects_of, evidence_of, is_colourless
from plate_models.recognition.calibration import UNCALIBRATED, Calibration
from plate_models.recognition.decoding import DEFAULT_GRAMMAR, LENGTHS, choose_reading
from plate_models.recognition.grammar import UNKNOWN, Grammar, Reading, country_of
from plate_models.rectification import Rectify
from plate_models.spec import DEFAULTS, Specs

# (N, 3, h, w) float32 rectified plates to (N, C, T) float32 logits.
Recognize = Callable[[Any], Any]

# Plates whose characters are low, with words above and below: the rows to read as shares of the
# height (from, to), the largest aspect ratio of such a plate, the shortest text (a shorter one is a
# row of a two-line plate), and the lowest detection score.
_LOW_SPAN, _LOW_ASPECT, _LOW_LENGTH, _LOW_BOX = (0.2, 0.8), 3.7, 5, 0.25
# A box is part of another plate if at least this share of its area lies inside that plate's box.
_PART = 0.8
# The photo's left or right side may cut a plate whose quad (or whose detector box) is nearer to it
# than this share of the plate's height; a text that is cut off reads like another valid text. A
# plate that is near both sides fills the photo and is not cut.
_EDGE, _BOX_EDGE = 0.08, 0.1
# A box with this detection score is a plate even if it can't be read; with a lower one, its text
# must have at least this score.
_SURE_BOX, _LEAST_SCORE = 0.55, 0.08
# If no plate is readable, or an unsure one is wider than this share of the photo, the detector runs
# again on the photo at this scale; a box without a text is a plate there from this score on.
_WIDE, _NEAR, _SURE_NEAR = 0.2, 1 / 3, 0.7
# Below this detection score a text must match a format of the home country, or be sure and match
# another known format: most other texts stand on signs and lorries.
_DOUBTFUL_BOX = 0.5
# Camera frames ignore boxes with a lower detection score: a plate appears in other frames, too.
_FRAME_BOX = 0.25
# A plate is also read from shifted crops if its text score lies between the first two numbers: with
# less it never becomes readable, with more it is sure. Texts that are not in a format of the home
# country, such as registrations of boats, are sure only from the third number on.
_HOPELESS, _SURE, _SURE_ABROAD = 0.1, 0.9, 0.95
# A plate has motion blur if its text score is below the first number, and its sharpness along one
# direction less than the second one times that across it. Deblurring is slow: the third number
# limits the plates per run of the detector.
_DOUBT, _MOVED, _MOST_MOVED = 0.75, 0.6, 4
# Deblurring tries these lengths of the blur (shares of the plate's width), then these rotations of
# the best one. Texts are chosen for the clearest results; a reading needs at least _SURE_MOVED.
_CLEAREST, _SURE_MOVED = 6, 0.85
_LENGTHS, _TURNS = np.arange(0.03, 0.16, 0.008), np.exp(1j * np.radians((-14, -7, 7, 14)))
_SHIFTS = ((0.03, 0.0), (-0.03, 0.0), (0.0, 0.06), (0.0, -0.06))  # of a box's width and height


@dataclass(frozen=True)
class PipelineConfig:
    """What the pipeline needs beside the nets: their specs, a grammar, a calibration."""

    specs: Specs = DEFAULTS
    grammar: Grammar = DEFAULT_GRAMMAR
    calibration: Calibration = UNCALIBRATED
    # True for a single photo: uncertain plates are read from further crops, and doubtful boxes are
    # dropped or made unreadable. False for a camera's frames, which are fused later and need each
    # plate as one crop shows it.
    still: bool = True
    square_pixels: bool = True  # False if stretched: aspect ratios are no evidence of formats then

    @classmethod
    def of(cls, specs: Specs, calibration: Calibration) -> "PipelineConfig":
        """The config for given weights; raises FormatError if a country of theirs has no file."""
        return cls(specs, grammar_of(*specs.recognizer.countries), calibration)

    def with_countries(self, names: Sequence[str]) -> "PipelineConfig":
        """The config for the formats of given countries, the home country first.

        These are the weights' own countries, and any whose letters the weights have. Raises
        UnknownCountry for others. With a "*" in the list, others are ignored, and the weights' own
        are appended. Raises FormatError if a country's file is malformed.
        """
        own, alphabet = self.specs.recognizer.countries, {*self.specs.recognizer.alphabet}
        others = [name for name in names if name in available_countries() and name not in own]
        readable = {*own, *(name for name in others if {*grammar_of(name).letters} <= alphabet)}
        if "*" in names:
            names = [*(name for name in names if name in readable), *own]
        if wrong := [name for name in names if name not in readable]:
            raise UnknownCountry(
                f"expected some of {','.join(own)}, or a country whose letters these weights read, "
                f"got {','.join(wrong)!r:.80}"
            )
        return replace(self, grammar=grammar_of(*dict.fromkeys(names)))


@dataclass(frozen=True)
class Plate:
    """One plate of a photo."""

    # x0, y0, x1, y1 in pixels of the upright photo: the bounding box of the quad if the plate is
    # readable, else the detector's box.
    box: Box
    quad: tuple[tuple[float, float], ...]  # corners TL, TR, BR, BL of the plate's own orientation
    detection_score: float  # in [0, 1]
    lines: int  # of text, 1 or 2
    reading: Reading
    crop: NDArray[np.uint8]  # (48, 188, 3) RGB, rectified
    # (C, T) of the view that was read; the reading of an uncertain plate also uses shifted crops.
    log_probs: ctc.Array


@dataclass(frozen=True)
class Prediction:
    """The nets' output for one box, before a text is chosen; on the host."""

    quad: Floats  # (4, 2), corners TL, TR, BR, BL in photo pixels
    log_probs: ctc.Array  # (C, T), the rows of a two-line plate joined
    crop: NDArray[np.uint8]  # (48, 188, 3) RGB, rectified
    lines: int  # of text, 1 or 2, as assumed by this reading
    colourless: bool  # whether the photo is grey


@dataclass
class _View:
    """One way to read a detected plate; a plate may have several."""

    plate: int  # its index among the boxes
    box: Floats  # (4,) x0, y0, x1, y1, the detector's
    score: float  # of the detection
    prediction: Prediction
    reading: Reading

    @property
    def hull(self) -> Floats:
        """(4,) x0, y0, x1, y1: the quad's bounding box."""
        return np.asarray(rectification.bounding_boxes_of(self.prediction.quad[None])[0])


Read = Callable[..., list[Prediction]]  # `read_regions` of one photo by given nets


def read_plates(
    image: Any,
    detect: Detect,
    rectify: Rectify,
    recognize: Recognize,
    config: PipelineConfig = PipelineConfig(),
) -> list[Plate]:
    """Find and read every plate in a photo, in descending order of detection score.

    The image is (H, W, 3) uint8 RGB, upright: an array, or a tensor on the device that does the
    work. The nets take and return arrays or tensors of the same device; see their types. The config
    is that of the nets' weights. Raises ValueError if the image has another shape or type.
    """
    detection.check_image(image)
    read = partial(_read_found, image, rectify, recognize, config)
    spec = config.specs.detector
    plates = read(detection.find_boxes(image, detect, spec))
    if not config.still:
        return plates
    # The detector finds parts of a plate that fills much of the photo; in a smaller photo it finds
    # the whole plate. A box that is surely a plate and surely read is not a part of another one.
    unsure = [p.box for p in plates if not (_is_read(p) and _is_known(p.reading))]
    widest = max((x1 - x0 for x0, _, x1, _ in unsure), default=0) / image.shape[1]
    readable = any(plate.reading.readable for plate in plates)
    if not readable or widest > _WIDE:
        near = read(detection.find_boxes(image, detect, spec, _NEAR))
        plates += [plate for plate in near if _is_plate(plate, _SURE_NEAR)]
    known = [plate.box for plate in plates if _is_read(plate)]
    plates += read(detection.find_boxes_in_tiles(image, detect, spec, known))
    plates.sort(key=lambda plate: (-plate.reading.readable, -plate.detection_score))
    kept = detection.non_max_suppression([plate.box for plate in plates], spec.iou_threshold)
    plates = _without_parts([plates[row] for row in np.flatnonzero(kept)])
    return sorted(plates, key=lambda plate: -plate.detection_score)


def _read_found(
    image: Any, rectify: Rectify, recognize: Recognize, config: PipelineConfig, found: Detections
) -> list[Plate]:
    """Read the boxes of one run of the detector."""
    boxes, scores, lines = found
    if not config.still:
        enough = scores >= _FRAME_BOX
        boxes, scores, lines = boxes[enough], scores[enough], lines[enough]
    if not len(boxes):
        return []
    # Each plate is read with the detector's number of lines, and once more with the other number if
    # that is two, or if the box is short for one line.
    widths, heights = (boxes[:, 2:] - boxes[:, :2]).T
    short = widths < config.specs.detector.long_aspect * heights
    doubtful = np.flatnonzero((lines == 2) | short)
    numbers = np.concatenate((np.arange(len(boxes)), doubtful))
    boxes, scores = boxes[numbers], scores[numbers]
    lines = np.concatenate((lines, 3 - lines[doubtful]))
    read = partial(read_regions, image, rectify=rectify, recognize=recognize, config=config)
    predictions = read(boxes, lines)
    readings = choose_readings(predictions, config)
    views = list(map(_View, numbers.tolist(), boxes, scores.tolist(), predictions, readings))
    if config.still:
        _read_shifted(read, views, config)
        _read_deblurred(read, views, config)
    views += _low_characters(read, views, config)
    home = config.grammar.name
    if config.still:
        _reject_signs_and_cut_plates(views, image.shape[1], home)
    best: dict[int, _View] = {}
    for view in views:
        before = best.setdefault(view.plate, view)
        if _rank(view.reading, home) > _rank(before.reading, home):
            best[view.plate] = view
    plates = _without_parts([_plate_of(view, image.shape) for view in best.values()])
    return [plate for plate in plates if _is_plate(plate)] if config.still else plates


def _read_shifted(read: Read, views: list[_View], config: PipelineConfig) -> None:
    """Read plates without a sure reading from shifted crops as well; update them in place."""
    of_home = (v for v in views if country_of(v.reading.format) == config.grammar.name)
    done = {view.plate for view in of_home if view.reading.score > _SURE}
    doubtful = [view for view in _in_doubt(views, _SURE_ABROAD) if view.plate not in done]
    views = [view for view in doubtful if view.reading.score > _HOPELESS]
    if not views:
        return
    hulls = np.stack([view.hull for view in views])
    sides = np.tile(hulls[:, 2:] - hulls[:, :2], 2)
    boxes = [hulls + sides * np.array(shift * 2, hulls.dtype) for shift in _SHIFTS]
    lines = np.array([view.prediction.lines for view in views] * len(boxes))
    further = [each.log_probs for each in read(np.concatenate(boxes), lines)]
    of_each = [further[place :: len(views)] for place in range(len(views))]
    readings = choose_readings([view.prediction for view in views], config, of_each)
    for view, reading in zip(views, readings, strict=True):
        view.reading = reading


def _read_deblurred(read: Read, views: list[_View], config: PipelineConfig) -> None:
    """Deblur and read uncertain plates with motion blur; keep readings that are surer, in place."""
    doubtful = [view for view in _in_doubt(views, _DOUBT) if view.score >= _SURE_BOX]
    blurs = [(view, *blur_of(view.prediction.crop, view.prediction.quad)) for view in doubtful]
    moved = [(view, way) for view, way, sharpness in blurs if sharpness < _MOVED]
    for view, motion in moved[:_MOST_MOVED]:
        hull, lines = view.hull, view.prediction.lines
        motion *= hull[2] - hull[0]
        for shares in (_LENGTHS, _TURNS):
            tried = motion * shares
            motions = np.stack((tried.real, tried.imag), axis=1).astype(np.float32)
            boxes = hull[None].repeat(len(tried), axis=0)
            predictions = read(boxes, np.full(len(tried), lines), motions=motions)
            clarity = [each.log_probs.max(axis=0).sum() for each in predictions]
            clearest = np.argsort(clarity)[-_CLEAREST:]
            readings = choose_readings([predictions[row] for row in clearest], config)
            row, reading = max(zip(clearest, readings, strict=True), key=lambda it: it[1].score)
            motion = tried[row]
            if reading.readable and reading.score > max(view.reading.score, _SURE_MOVED):
                view.prediction, view.reading = predictions[row], reading


def _in_doubt(views: list[_View], sure: float) -> list[_View]:
    """Views with a plausible length of text, of plates that have no sure reading."""
    done = {view.plate for view in views if view.reading.score > sure}
    return [v for v in views if v.plate not in done and len(v.reading.best) in LENGTHS]


def _low_characters(read: Read, views: list[_View], config: PipelineConfig) -> list[_View]:
    """Read short plates that are unreadable so far once more, without words above and below."""
    done = {view.plate for view in views if view.reading.readable}
    low = [
        view
        for view in views
        if view.plate not in done
        and view.prediction.lines == 1
        and view.score >= _LOW_BOX
        and aspects_of([view.prediction.quad])[0] < _LOW_ASPECT
    ]
    if not low:
        return []
    boxes = np.stack([view.box for view in low])
    predictions = read(boxes, np.ones(len(low), np.int64), span=_LOW_SPAN)
    # Plates of the weights' first country have no such words: the nets learnt them as a whole.
    learnt = config.specs.recognizer.countries[0]
    further = []
    readings = choose_readings(predictions, config)
    for view, middle, reading in zip(low, predictions, readings, strict=True):
        wrong = len(reading.best) < _LOW_LENGTH or country_of(reading.format) == learnt
        reading = replace(reading, text="") if wrong else reading
        further.append(replace(view, prediction=middle, reading=reading))
    return further


def _reject_signs_and_cut_plates(views: list[_View], width: int, home: str) -> None:
    """Make probable signs, and plates that the photo's sides may cut off, unreadable, in place."""
    for view in views:
        abroad = country_of(view.reading.format) != home
        sign = view.score < _DOUBTFUL_BOX and abroad and not _is_known(view.reading)
        x0, y0, x1, y1 = view.hull.tolist()
        height = y1 - y0
        near, far = sorted((x0, width - x1))
        beside = min(view.box[0], width - view.box[2])
        cut = near < _EDGE * height or beside < _BOX_EDGE * height
        if sign or (cut and far > height):
            view.reading = replace(view.reading, text="")


def _plate_of(view: _View, shape: tuple[int, ...]) -> Plate:
    """Make a plate of a view; the shape is the photo's, (H, W, 3)."""
    # The quad of a readable plate is exact; that of an unreadable one may be anywhere.
    read = view.hull.clip(0, (shape[1], shape[0]) * 2)
    x0, y0, x1, y1 = (read if view.reading.readable else view.box).tolist()
    shown = view.prediction
    quad = tuple((x, y) for x, y in shown.quad.tolist())
    box = x0, y0, x1, y1
    return Plate(box, quad, view.score, shown.lines, view.reading, shown.crop, shown.log_probs)


def _is_plate(plate: Plate, sure_box: float = _SURE_BOX) -> bool:
    """Whether the detector is sure, or there is enough text: wheels and lamps have none."""
    text = len(plate.reading.best) >= LENGTHS.start and plate.reading.score >= _LEAST_SCORE
    return plate.detection_score >= sure_box or text


def _without_parts(plates: list[Plate]) -> list[Plate]:
    """Drop plates inside a larger readable one, such as its region, detected separately."""
    boxes = [plate.box for plate in plates]
    shared = detection.intersection_areas(boxes, boxes)
    area, readable = shared.diagonal(), np.array([plate.reading.readable for plate in plates], bool)
    part = (shared > _PART * area[:, None]) & (area > area[:, None]) & readable
    return [plate for plate, drop in zip(plates, part.any(axis=1), strict=True) if not drop]


def _is_read(plate: Plate) -> bool:
    """Whether the detector is sure, and the plate is readable."""
    return plate.detection_score >= _SURE_BOX and plate.reading.readable


def _is_known(reading: Reading) -> bool:
    """Whether the best candidate is sure and has a known format."""
    return reading.format != UNKNOWN and reading.score > _SURE


def _rank(reading: Reading, home: str) -> tuple[bool, bool, bool, float]:
    """Rank the readings of a plate: readable, home format, known format, then score."""
    if not reading.readable:
        return False, False, False, 0.0
    return True, country_of(reading.format) == home, reading.format != UNKNOWN, reading.score


def read_regions(
    image: Any,
    boxes: Floats,
    lines: Lines,
    rectify: Rectify,
    recognize: Recognize,
    config: PipelineConfig,
    span: tuple[float, float] | None = None,
    motions: Floats | None = None,
) -> list[Prediction]:
    """Crop, rectify and recognize the plates in N >= 1 given boxes of a photo.

    The boxes are (N, 4) float x0, y0, x1, y1 in pixels of the photo, `lines` (N,) int64 numbers of
    lines of text. With a `span` (from, to), only these shares of the height of one-line plates are
    read. For the motions see `rectification.straighten`, for the others `read_plates`.
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
        crops = concatenate([found.crops[row : row + 1]] * len(theta))
        read.append(resample(crops, theta, spec.rectified_hw))
    batches = rectification.batches_of(concatenate(read), config.specs.recognizer.max_batch_size)
    logits = np.concatenate([to_host(recognize(batch)) for batch in batches])
    steps = map(ctc.log_softmax, logits)
    log_probs = [
        next(steps) if count == 1 else ctc.join_rows(next(steps), next(steps)) for count in counts
    ]
    shown, grey = rectification.rectified_rgb(found, spec), is_colourless(image)
    predictions = zip(found.quads, log_probs, shown, counts, strict=True)
    return [Prediction(*each, colourless=grey) for each in predictions]


def choose_readings(
    predictions: Sequence[Prediction],
    config: PipelineConfig,
    further: Sequence[Sequence[ctc.Array]] = (),
) -> list[Reading]:
    """Choose the text of each of N >= 1 plates of a photo from the nets' output.

    `further` has the log-probabilities of each plate's further views: N lists, or none at all; see
    `choose_reading`.
    """
    context = config.grammar, config.calibration, config.specs.recognizer
    crops, quads = np.stack([it.crop for it in predictions]), [it.quad for it in predictions]
    lines, colourless = [it.lines for it in predictions], predictions[0].colourless
    evidence = evidence_of(crops, quads, lines, colourless)
    if not config.square_pixels:
        evidence = [each._replace(aspect=None) for each in evidence]
    plates = zip(predictions, evidence, further or [()] * len(predictions), strict=True)
    return [choose_reading(it.log_probs, beside, *context, more) for it, beside, more in plates]
