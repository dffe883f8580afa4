"""What was read on each plate: plain values that can be kept, counted and compared."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plate_models.detection import box_iou_xyxy
from plate_models.engines.nets import Nets
from plate_models.pipeline import Plate, Predictions, choose_readings, read_regions
from plate_models.training.figures import Count

Box = tuple[float, float, float, float]
Pixels = NDArray[np.uint8]

# A found box that overlaps a label this much answers for that plate, though badly.
_SAME_PLATE_IOU = 0.1
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

    def __str__(self) -> str:
        return f"{self.text or f'({self.guess})'} {self.score:.3f}"


def plain(report: Any) -> dict[str, Any]:
    """A dataclass as JSON-ready values, without the pictures of its plates."""
    return asdict(report, dict_factory=lambda items: {k: v for k, v in items if k != "crop"})


@dataclass(frozen=True)
class PlateResult:
    """One labelled plate and what was read there."""

    photo: str  # file name
    box: Box  # the label, x0, y0, x1, y1 in pixels of the upright photo
    text: str  # the label
    light: str  # "day", "dark" or ""
    legible: bool  # whether a person can read it
    lines: int  # 1 or 2
    in_label: Answer  # the answer where the labelled box is given
    # Those of the whole pipeline that overlap this label, best overlap first.
    answers: tuple[Answer, ...]
    # What the published recognizer reads, by the way it crops.
    published: Mapping[str, str] = field(default_factory=dict)

    @property
    def width(self) -> float:
        """Of the labelled box, in pixels."""
        return self.box[2] - self.box[0]

    @property
    def source(self) -> str:
        """Where the photo comes from: its name up to the first "_", "" without one."""
        return self.photo.partition("_")[0] if "_" in self.photo else ""

    @property
    def iou(self) -> float:
        """Best overlap with a found box."""
        return max((answer.iou for answer in self.answers), default=0.0)

    @property
    def read_in_label(self) -> str:
        """The best text with the labelled box, readable or not."""
        return self.in_label.guess

    @property
    def found(self) -> tuple[Answer, ...]:
        """The answers that count as this plate: IoU of at least 0.5."""
        return tuple(answer for answer in self.answers if answer.iou >= 0.5)

    @property
    def read(self) -> bool:
        """Whether a box on the plate carries exactly its text."""
        return any(answer.text == self.text for answer in self.found)

    @property
    def wrong_texts(self) -> tuple[Answer, ...]:
        """Readable answers that are wrong, on however bad a box; none if not legible."""
        wrong = (answer for answer in self.answers if answer.text not in ("", self.text))
        return tuple(wrong) if self.legible else ()

    @property
    def failure(self) -> str:
        """A key of `FAILURES`, or "" if all is well. An illegible plate need only be found."""
        if self.iou < 0.5:
            return "not found"
        if self.legible and (self.wrong_texts or not self.read):
            if self.in_label.text == self.text:
                return "cut"
            return "misread" if self.wrong_texts else "unreadable"
        if self.legible and self.read_in_label != self.text:
            return "labelled box"
        return "" if self.iou >= 0.7 else "loose box"

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values, with the verdicts for those who read the file."""
        verdicts = {m.name: m.right(self) for m in METRICS if m.counts(self)}
        return {**plain(self), "verdicts": verdicts, "failure": self.failure}


@dataclass(frozen=True)
class Metric:
    """A question with yes or no for each labelled plate, or for each legible one."""

    name: str
    right: Callable[[PlateResult], bool]
    legible_only: bool = False

    def counts(self, plate: PlateResult) -> bool:
        """Whether the plate is one of those asked."""
        return plate.legible or not self.legible_only


METRICS = (
    Metric("detector recall, IoU 0.5", lambda plate: plate.iou >= 0.5),
    Metric("detector recall, IoU 0.7", lambda plate: plate.iou >= 0.7),
    Metric(
        "recognizer exact match, labelled box",
        lambda plate: plate.read_in_label == plate.text,
        legible_only=True,
    ),
    Metric("end-to-end exact match", lambda plate: plate.read, legible_only=True),
    Metric("no wrong text end to end", lambda plate: not plate.wrong_texts, legible_only=True),
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
    overlaps = box_iou_xyxy(boxes_of(plates), torch.tensor(labels).reshape(-1, 4)).tolist()
    for plate, row in zip(plates, overlaps, strict=True):
        best = max(row, default=0.0)
        if best >= _SAME_PLATE_IOU:
            matched[row.index(best)].append((plate, best))
        else:
            elsewhere.append(plate)
    return [sorted(found, key=lambda pair: -pair[1]) for found in matched], elsewhere


def boxes_of(plates: Sequence[Plate] | Sequence[Answer]) -> Tensor:
    """(N, 4) float32 x0, y0, x1, y1."""
    return torch.tensor([plate.box for plate in plates]).reshape(-1, 4)


def predict_boxes(
    image: Tensor, boxes: Sequence[Box], lines: Sequence[int], nets: Nets
) -> Predictions:
    """What the nets say of N >= 1 plates of a photo, (H, W, 3) uint8 RGB, in given boxes."""
    with torch.inference_mode():
        where = image.to(nets.device), torch.tensor(boxes), torch.tensor(lines)
        return read_regions(*where, nets.rectify, nets.recognize, nets.config)


def answers_of(
    photo: str, boxes: Sequence[Box], lines: Sequence[int], seen: Predictions, nets: Nets
) -> list[Answer]:
    """Choose the texts of plates whose boxes and lines of text are known."""
    readings = choose_readings(seen, list(lines), nets.config)
    rows = zip(boxes, lines, readings, seen.crops, seen.log_probs, strict=True)
    return [Answer.of(photo, Plate(box, (), 1.0, *plate), 1.0) for box, *plate in rows]


def read_boxes(
    photo: str, image: Tensor, boxes: Sequence[Box], lines: Sequence[int], nets: Nets
) -> list[Answer]:
    """Read plates of a photo, (H, W, 3) uint8 RGB, whose boxes and lines of text are known."""
    if not boxes:
        return []
    return answers_of(photo, boxes, lines, predict_boxes(image, boxes, lines, nets), nets)


def count_lines(counts: Iterable[Count]) -> list[str]:
    """A table for the terminal: each count's name, rate and 95 % interval."""
    lines = [f"{'':<44} {'count':>12} {'rate':>7}   95 % interval"]
    for count in counts:
        shown = "  nothing to count"
        if count.interval_95:
            low, high = count.interval_95
            shown = f"{count.rate:>7.1%}   {low:.1%} to {high:.1%}"
        lines.append(f"{count.name:<44} {f'{count.hits} of {count.total}':>12} {shown}")
    return lines
