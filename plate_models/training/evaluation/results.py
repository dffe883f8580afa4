"""What was read on each plate: plain values that can be kept, counted and compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plate_models.detection import box_iou_xyxy
from plate_models.engines.nets import Nets
from plate_models.pipeline import Plate, choose_readings, read_regions
from plate_models.recognition import ctc
from plate_models.training.labels import Box, LabelledPlate

Pixels = NDArray[np.uint8]

# A found box that overlaps a label this much answers for that plate, though badly.
_SAME_PLATE_IOU = 0.1
_O_IS_0 = str.maketrans("O", "0")
# Why a plate is a failure, the worst first.
FAILURES = {
    "not found": "no box overlaps the label by half (IoU 0.5)",
    "misread": "a wrong text was given, and the labelled box is not read right either",
    "cut": "no right text, but the labelled box is read right: the box found is at fault",
    "unreadable": "no text was given, from the labelled box neither",
    "labelled box": "read right end to end, but not from the labelled box",
    "loose box": "the box found overlaps the label by less than 0.7",
}


@dataclass(frozen=True)
class Answer:
    """One plate as the pipeline answers it."""

    photo: str  # file name
    box: Box  # x0, y0, x1, y1 in pixels of the upright photo
    text: str  # the answer, "" where it is not readable
    guess: str  # the best candidate, readable or not; "" if there is none
    score: float  # probability that the guess is right, in [0, 1]
    format: str  # of the guess, such as "ru.car"
    lines: int  # of text, as the detector sees them: 1 or 2
    detection_score: float  # the detector's confidence, in [0, 1]
    iou: float = 0.0  # overlap with the label it belongs to, in [0, 1]; 0 without a label
    # (h, w, 3) uint8 RGB, the rectified plate.
    crop: Pixels | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, photo: str, plate: Plate, iou: float = 0.0) -> "Answer":
        """Keep of a plate what the reports need."""
        reading = plate.reading
        guess = reading.candidates[0][0] if reading.candidates else ""
        about = reading.text, guess, reading.score, reading.format, plate.lines
        return cls(photo, plate.box, *about, plate.detection_score, iou, plate.crop)


def plain(report: Any) -> dict[str, Any]:
    """A dataclass as JSON-ready values, without the pictures of its plates."""
    return asdict(report, dict_factory=lambda items: {k: v for k, v in items if k != "crop"})


@dataclass(frozen=True)
class PlateResult:
    """One labelled plate and what was read there."""

    photo: str  # file name
    label: LabelledPlate
    in_label: Answer  # the answer where the labelled box is given
    # Those of the whole pipeline that overlap this label, best overlap first.
    answers: tuple[Answer, ...]
    # What others read from the labelled box: "greedy", "beam".
    others: Mapping[str, str] = field(default_factory=dict)
    # Mean distance of the quad's corners from the true ones, as a share of the plate's width; None
    # where it isn't known, or nothing was found.
    corner_error: float | None = None
    o_is_0: bool = False  # whether the label mixes up O and 0

    @property
    def width(self) -> float:
        """Of the labelled box, in pixels."""
        return self.label.box[2] - self.label.box[0]

    @property
    def source(self) -> str:
        """Where the photo comes from: its name up to the first "_", "" without one."""
        return self.photo.partition("_")[0] if "_" in self.photo else ""

    @property
    def iou(self) -> float:
        """Best overlap with a found box."""
        return max((answer.iou for answer in self.answers), default=0.0)

    @property
    def found(self) -> tuple[Answer, ...]:
        """The answers that count as this plate: IoU of at least 0.5."""
        return tuple(answer for answer in self.answers if answer.iou >= 0.5)

    def right(self, text: str) -> bool:
        """Whether a text is the label's."""
        if self.o_is_0:
            return text.translate(_O_IS_0) == self.label.text.translate(_O_IS_0)
        return text == self.label.text

    @property
    def read(self) -> bool:
        """Whether a box on the plate carries exactly its text."""
        return any(self.right(answer.text) for answer in self.found)

    @property
    def wrong_texts(self) -> tuple[Answer, ...]:
        """Readable answers that are wrong, on however bad a box; none if not legible."""
        wrong = (a for a in self.answers if a.text and not self.right(a.text))
        return tuple(wrong) if self.label.legible else ()

    @property
    def failure(self) -> str:
        """A key of `FAILURES`, or "" if all is well. An illegible plate need only be found."""
        if self.iou < 0.5:
            return "not found"
        if self.label.legible and (self.wrong_texts or not self.read):
            if self.right(self.in_label.text):
                return "cut"
            return "misread" if self.wrong_texts else "unreadable"
        if self.label.legible and not self.right(self.in_label.guess):
            return "labelled box"
        return "" if self.iou >= 0.7 else "loose box"

    def without_crops(self) -> "PlateResult":
        """The same without its pictures."""
        answers = tuple(replace(answer, crop=None) for answer in self.answers)
        return replace(self, in_label=replace(self.in_label, crop=None), answers=answers)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values, with the verdicts for those who read the file."""
        verdicts = {m.name: m.right(self) for m in METRICS if m.asks(self)}
        kept = plain(self)
        return {**kept.pop("label"), **kept, "verdicts": verdicts, "failure": self.failure}


@dataclass(frozen=True)
class Metric:
    """A question with yes or no for those plates that it asks about."""

    name: str
    right: Callable[[PlateResult], bool]
    asks: Callable[[PlateResult], bool] = lambda _: True


def _legible(plate: PlateResult) -> bool:
    return plate.label.legible


def _of_format(plate: PlateResult) -> bool:
    return "." in plate.label.kind


FOUND, READ, NO_WRONG = "found, IoU 0.5", "read right, end to end", "no wrong text"
METRICS = (
    Metric(FOUND, lambda plate: plate.iou >= 0.5),
    Metric("found, IoU 0.7", lambda plate: plate.iou >= 0.7),
    Metric("labelled box, exact match", lambda plate: plate.right(plate.in_label.guess), _legible),
    Metric(READ, lambda plate: plate.read, _legible),
    Metric("best candidate", lambda p: any(p.right(a.guess) for a in p.found), _legible),
    Metric(NO_WRONG, lambda plate: not plate.wrong_texts, _legible),
    Metric("lines", lambda p: bool(p.found) and p.found[0].lines == p.label.lines, _of_format),
    Metric("format", lambda p: bool(p.found) and p.found[0].format == p.label.kind, _of_format),
)


def match(
    labels: Sequence[Box], plates: Sequence[Plate]
) -> tuple[list[list[tuple[Plate, float]]], list[Plate]]:
    """Give each found plate to the label it overlaps most.

    Returns:
        For each label its plates with their IoU, best overlap first; and the plates that
        overlap no label.
    """
    matched: list[list[tuple[Plate, float]]] = [[] for _ in labels]
    elsewhere = []
    found = torch.tensor([plate.box for plate in plates]).reshape(-1, 4)
    overlaps = box_iou_xyxy(found, torch.tensor(labels).reshape(-1, 4)).tolist()
    for plate, row in zip(plates, overlaps, strict=True):
        best = max(row, default=0.0)
        if best >= _SAME_PLATE_IOU:
            matched[row.index(best)].append((plate, best))
        else:
            elsewhere.append(plate)
    return [sorted(found, key=lambda pair: -pair[1]) for found in matched], elsewhere


def score_photo(
    name: str, image: Tensor, labels: Sequence[LabelledPlate], nets: Nets, o_is_0: bool = False
) -> tuple[list[PlateResult], list[Answer]]:
    """Read a photo, (H, W, 3) uint8 RGB, and compare it with its labels.

    Returns one result per label, and the answers that overlap none.
    """
    matched, elsewhere = match([label.box for label in labels], nets.read(image))
    others = [Answer.of(name, plate) for plate in elsewhere]
    if not labels:
        return [], others
    boxes, lines = torch.tensor([p.box for p in labels]), [label.lines for label in labels]
    with torch.inference_mode():
        where = image.to(nets.device), boxes, torch.tensor(lines)
        seen = read_regions(*where, nets.rectify, nets.recognize, nets.config)
    readings = choose_readings(seen, lines, nets.config)
    alphabet, results = nets.config.specs.recognizer.alphabet, []
    for row, label in enumerate(labels):
        known = Plate(
            label.box, (), 1.0, label.lines, readings[row], seen.crops[row], seen.log_probs[row]
        )
        log_probs, error = seen.log_probs[row], None
        texts = {"greedy": ctc.greedy_decode(log_probs, alphabet)}
        beam = ctc.beam_decode(log_probs, alphabet)
        texts["beam"] = next((text for text, _ in beam), "")
        found = matched[row]
        if label.quad and found and found[0][1] >= 0.5:
            quad = np.array(label.quad)
            width = np.hypot(*(quad[[1, 2]] - quad[[0, 3]]).T).mean()
            error = float(np.hypot(*(np.array(found[0][0].quad) - quad).T).mean() / width)
        answer = Answer.of(name, known, 1.0)
        answers = tuple(Answer.of(name, plate, iou) for plate, iou in found)
        results.append(PlateResult(name, label, answer, answers, texts, error, o_is_0))
    return results, others
