"""The results of every plate, their counts, and the table of `plates eval`."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from plate_models.detection import box_iou_xyxy
from plate_models.engines.loaded import Nets
from plate_models.pipeline import Plate, choose_readings, read_regions
from plate_models.training.evaluation.sets import LEAST_IOU, Photo
from plate_models.training.figures import Count, proportion
from plate_models.training.labels import Box, LabelledPlate

# A found box with at least this overlap counts as that label's plate, even if it is a poor box.
_SAME_PLATE_IOU = 0.1
_O_IS_0 = str.maketrans("O", "0")
FOUND, WELL_FOUND = "found, IoU 0.5", "found, IoU 0.7"
IN_LABEL, READ, NO_WRONG = "labelled box, exact match", "read right, end to end", "no wrong text"
# Names of failed verdicts, the worst first.
FAILURES = {
    NO_WRONG: "misread",
    READ: "unreadable",
    IN_LABEL: "labelled box",
    WELL_FOUND: "loose box",
}
NOT_FOUND = "not found"
OTHERS, READABLE = "other boxes per photo", "readable texts there per photo"
# The table's columns about the detector; the others are about texts.
_BOXES = (FOUND, WELL_FOUND, "precision", OTHERS, READABLE)


@dataclass(frozen=True)
class Answer:
    """The pipeline's answer for one plate."""

    photo: str  # file name
    box: Box  # x0, y0, x1, y1 in pixels of the upright photo
    text: str  # "" if the plate is not readable
    guess: str  # the best candidate, readable or not; "" if there is none
    score: float  # probability that the guess is right, in [0, 1]
    format: str  # of the guess, such as "ru.car"
    lines: int  # of text, as the plate was read: 1 or 2
    detection_score: float  # the detector's confidence, in [0, 1]
    iou: float = 0.0  # overlap with the answer's label, in [0, 1]; 0 without a label

    @classmethod
    def of(cls, photo: str, plate: Plate, iou: float = 0.0) -> "Answer":
        """Extract the values that the reports need."""
        reading = plate.reading
        about = reading.text, reading.best, reading.score, reading.format, plate.lines
        return cls(photo, plate.box, *about, plate.detection_score, iou)


@dataclass(frozen=True)
class PlateResult:
    """One labelled plate and its answers."""

    photo: str  # file name
    label: LabelledPlate
    in_label: Answer  # the answer for the labelled box, without the detector
    answers: tuple[Answer, ...]  # of the whole pipeline for this label, best overlap first
    o_is_0: bool = False  # whether the label doesn't distinguish O and 0
    least_iou: float = LEAST_IOU  # least overlap of an answer that counts as this plate

    @property
    def iou(self) -> float:
        """The best overlap of an answer."""
        return max((answer.iou for answer in self.answers), default=0.0)

    @property
    def found(self) -> tuple[Answer, ...]:
        """The answers that count as this plate."""
        return tuple(answer for answer in self.answers if answer.iou >= self.least_iou)

    def right(self, text: str) -> bool:
        """Whether a text equals the label's."""
        if self.o_is_0:
            return text.translate(_O_IS_0) == self.label.text.translate(_O_IS_0)
        return text == self.label.text

    @property
    def wrong_texts(self) -> tuple[Answer, ...]:
        """Readable answers that are wrong, with any overlap; () if the label is illegible."""
        wrong = (a for a in self.answers if a.text and not self.right(a.text))
        return tuple(wrong) if self.label.legible else ()

    @property
    def verdicts(self) -> dict[str, bool]:
        """Whether each result is right, by name; only those that this label can decide."""
        label, found = self.label, self.found
        verdicts = {FOUND: self.iou >= 0.5, WELL_FOUND: self.iou >= 0.7}
        if label.legible:
            verdicts |= {
                IN_LABEL: self.right(self.in_label.guess),
                READ: any(self.right(answer.text) for answer in found),
                "best candidate": any(self.right(answer.guess) for answer in found),
                NO_WRONG: not self.wrong_texts,
            }
        if "." in label.kind:
            verdicts |= {
                "lines": bool(found) and found[0].lines == label.lines,
                "format": bool(found) and found[0].format == label.kind,
            }
        return verdicts

    @property
    def failure(self) -> str:
        """The worst failure, or "" if there is none. An illegible plate need only be found."""
        if not self.found:
            return NOT_FOUND
        failed = [verdict for verdict, right in self.verdicts.items() if not right]
        return next((name for verdict, name in FAILURES.items() if verdict in failed), "")

    def to_dict(self) -> dict[str, Any]:
        """All fields, verdicts and the failure as JSON-ready values."""
        kept = asdict(self)
        return {**kept.pop("label"), **kept, "verdicts": self.verdicts, "failure": self.failure}


def match(
    labels: Sequence[Box], plates: Sequence[Plate]
) -> tuple[list[list[tuple[Plate, float]]], list[Plate]]:
    """Assign each found plate to the label with the best overlap.

    Returns each label's plates with their IoU, best overlap first, and the plates without a label.
    """
    matched: list[list[tuple[Plate, float]]] = [[] for _ in labels]
    elsewhere = []
    overlaps = box_iou_xyxy([plate.box for plate in plates], labels).tolist()
    for plate, row in zip(plates, overlaps, strict=True):
        best = max(row, default=0.0)
        if best >= _SAME_PLATE_IOU:
            matched[row.index(best)].append((plate, best))
        else:
            elsewhere.append(plate)
    return [sorted(found, key=lambda pair: -pair[1]) for found in matched], elsewhere


def score_photo(photo: Photo, nets: Nets) -> tuple[list[PlateResult], list[Answer]]:
    """Read a photo and compare the answers with its labels; read the labelled boxes, too.

    Returns one result per label, and the answers that overlap no known plate, labelled or not.
    """
    pixels, labels, unlabelled = photo.open()
    matched, elsewhere = match([label.box for label in labels], nets.read(pixels))
    elsewhere = match(unlabelled, elsewhere)[1]
    name, others = photo.name, [Answer.of(photo.name, plate) for plate in elsewhere]
    if not labels:
        return [], others
    boxes, lines = (np.array([getattr(p, name) for p in labels]) for name in ("box", "lines"))
    where = nets.place(pixels), boxes, lines
    predictions = read_regions(*where, nets.rectify, nets.recognize, nets.config)
    readings = choose_readings(predictions, nets.config)
    results = []
    for label, reading, shown, found in zip(labels, readings, predictions, matched, strict=True):
        known = Plate(label.box, (), 1.0, label.lines, reading, shown.crop, shown.log_probs)
        answer = Answer.of(name, known, 1.0)
        answers = tuple(Answer.of(name, plate, iou) for plate, iou in found)
        results.append(PlateResult(name, label, answer, answers, photo.o_is_0, photo.least_iou))
    return results, others


@dataclass
class Scoreboard:
    """One row of the table: a set of photos, or a part of it."""

    complete: bool = False  # whether every plate of these photos is labelled
    photos: int = 0
    plates: list[PlateResult] = field(default_factory=list)  # one result per labelled plate
    # Answers that overlap no known plate. In an incomplete set, a person has to check them.
    elsewhere: list[Answer] = field(default_factory=list)

    def counts(self) -> list[Count]:
        """All counts of the row."""
        verdicts = defaultdict[str, list[bool]](list)
        for plate in self.plates:
            for name, right in plate.verdicts.items():
                verdicts[name].append(right)
        rows = [proportion(name, hits) for name, hits in verdicts.items()]
        if self.complete:
            answers = [*self.elsewhere, *(a for plate in self.plates for a in plate.answers)]
            rows.append(proportion("precision", [a.iou >= 0.5 for a in answers]))
        readable = sum(bool(answer.text) for answer in self.elsewhere)
        rows.append(Count(OTHERS, len(self.elsewhere), self.photos))
        rows.append(Count(READABLE, readable, self.photos))
        return rows

    def lines(self) -> list[str]:
        """A line for each readable text that is wrong, or that no label decides."""
        notes = []
        for plate in self.plates:
            right = f"right {plate.label.text}"
            notes += [(a, f"{right}, IoU {a.iou:.2f}") for a in plate.wrong_texts]
            if not plate.label.legible:
                notes += [(a, "labelled as illegible") for a in plate.answers if a.text]
        about = "no plate is there" if self.complete else "not labelled"
        notes += [(a, about) for a in self.elsewhere if a.text]
        return [
            f"  {a.photo:<40} read {a.text:<10} {note}, score {a.score:.3f}" for a, note in notes
        ]

    def failure_lines(self) -> list[str]:
        """A line for each failed plate, the worst first: why, and what was read instead."""
        order = [NOT_FOUND, *FAILURES.values()]
        failed = [plate for plate in self.plates if plate.failure]
        failed.sort(key=lambda plate: (order.index(plate.failure), plate.photo))
        lines = [f"Failures: {len(failed)}"]
        for plate in failed:
            read = ", ".join(answer.text or f"({answer.guess or '-'})" for answer in plate.answers)
            lines.append(
                f"  {plate.photo:<40} {plate.failure}, IoU {plate.iou:.2f}, "
                f"right {plate.label.text or '?'}, labelled box {plate.in_label.guess or '-'}, "
                f"end to end {read or '-'}"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON-ready values."""
        return {
            "complete": self.complete,
            "photos": self.photos,
            "counts": [count.to_dict() for count in self.counts()],
            "plates": [plate.to_dict() for plate in self.plates],
            "elsewhere": [asdict(answer) for answer in self.elsewhere],
        }


def score(photos: Iterable[Photo], nets: Nets) -> dict[str, Scoreboard]:
    """Read photos at the shipped thresholds; returns a scoreboard for each row of the table."""
    boards: dict[str, Scoreboard] = {}
    for photo in photos:
        board = boards.setdefault(photo.row, Scoreboard(photo.complete))
        plates, elsewhere = score_photo(photo, nets)
        board.photos += 1
        board.plates += plates
        board.elsewhere += elsewhere
    return boards


def table(boards: Mapping[str, Scoreboard]) -> list[str]:
    """Format the table, in two sections: the detector's results, and texts end to end."""
    rows = {
        row: {count.name: count.cell for count in board.counts() if count.total}
        for row, board in boards.items()
    }
    frame = pd.DataFrame.from_dict(rows, orient="index").fillna("")
    boxes = frame.filter(_BOXES)
    texts = frame.drop(columns=boxes)
    sections = {
        "Detector, at the shipped threshold: plates found, and boxes without a plate": boxes,
        "End to end: plates with the right readable text, and without a wrong one": texts,
    }
    lines = []
    for heading, section in sections.items():
        shown = section[(section != "").any(axis=1)]
        body = "nothing to count" if shown.empty else shown.to_string()
        lines += [heading, "", *body.splitlines(), ""]
    return [
        *lines,
        "Each count is followed by the 95 % interval of its rate in per cent. Sets without labels",
        "of all plates have no precision, because other boxes may be plates.",
    ]
