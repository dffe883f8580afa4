"""What became of each labelled plate: plain values that can be kept and compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Box = tuple[float, float, float, float]
Pixels = NDArray[np.uint8]
LogProbs = NDArray[np.float64]

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
    """One plate as the pipeline answers it.

    Attributes:
        photo: File name.
        box: x0, y0, x1, y1 in pixels of the upright photo.
        text: The answer, "" where it is not readable.
        guess: The best candidate, readable or not; "" if there is none.
        score: Probability that the guess is right, in [0, 1].
        format: Of the guess, such as "ru.car".
        lines: Of text, as the detector sees them: 1 or 2.
        detection_score: The detector's confidence, in [0, 1].
        iou: Overlap with the label it belongs to, in [0, 1]; 0 without a label.
        crop: (h, w, 3) uint8 RGB, the rectified plate; None in an answer read from a file.
        log_probs: (C, T) float64, what the recognizer saw; None unless its box was given.
    """

    photo: str
    box: Box
    text: str
    guess: str
    score: float
    format: str
    lines: int
    detection_score: float
    iou: float = 0.0
    crop: Pixels | None = field(default=None, compare=False, repr=False)
    log_probs: LogProbs | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the arrays, as JSON-ready values."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.compare}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Answer":
        """The inverse of `to_dict`; a KeyError or TypeError if something is missing."""
        return cls(**{**values, "box": tuple(values["box"])})


@dataclass(frozen=True)
class PlateResult:
    """One labelled plate and what was read there.

    Attributes:
        photo: File name.
        box: The label, x0, y0, x1, y1 in pixels of the photo.
        text: The label.
        light: "day", "dark" or "".
        legible: Whether a person can read it.
        lines: 1 or 2.
        in_label: The answer where the labelled box is given.
        answers: Those of the whole pipeline that overlap this label, best overlap first.
        published: What the published recognizer reads, by the way it crops.
    """

    photo: str
    box: Box
    text: str
    light: str
    legible: bool
    lines: int
    in_label: Answer
    answers: tuple[Answer, ...]
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
        if not self.legible:
            return ()
        return tuple(answer for answer in self.answers if answer.text not in ("", self.text))

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
        kept = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **kept,
            "in_label": self.in_label.to_dict(),
            "answers": [answer.to_dict() for answer in self.answers],
            "published": dict(self.published),
            "verdicts": {m.name: m.right(self) for m in METRICS if m.counts(self)},
            "failure": self.failure,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PlateResult":
        """The inverse of `to_dict`; a KeyError or TypeError if something is missing."""
        kept = {f.name: values[f.name] for f in fields(cls)}
        kept["box"] = tuple(values["box"])
        kept["in_label"] = Answer.from_dict(values["in_label"])
        kept["answers"] = tuple(Answer.from_dict(answer) for answer in values["answers"])
        return cls(**kept)


@dataclass(frozen=True)
class Metric:
    """A question with yes or no for each labelled plate.

    Attributes:
        name: As it stands in the tables.
        right: The answer for one plate.
        legible_only: Whether only plates count that a person can read.
    """

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
