"""Scores the whole pipeline on the rendered benchmark: every kind of plate, no photo needed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch

from plate_models.engines.nets import Nets
from plate_models.images import decode
from plate_models.training.benchmark import (
    PER_KIND,
    SEED,
    BenchmarkPhoto,
    photo_named,
    render_photos,
)
from plate_models.training.evaluation.labelled import Scoreboard
from plate_models.training.evaluation.results import (
    Answer,
    Pixels,
    PlateResult,
    match,
    plain,
    read_boxes,
)
from plate_models.training.figures import Count, Interval, bootstrap_95, events, proportion
from plate_models.training.synthetic.kinds import DRAWN, KINDS

Progress = Callable[[Iterator[BenchmarkPhoto], int], Iterable[BenchmarkPhoto]]


# Heads of the columns, and what they mean.
QUESTIONS = {
    "found": "a box overlaps the plate by half (IoU 0.5)",
    "lines": "found, and with the right number of lines",
    "read": "exact match end to end: the readable text is right",
    "candidate": "the best candidate is right, readable or not",
    "format": "the format is named right",
    "no wrong": "no wrong text was given",
}


@dataclass(frozen=True)
class RenderedPlate:
    """One plate of the benchmark and what was read there."""

    kind: str  # name of its format
    result: PlateResult  # as the scoreboard has it
    lines_found: int  # lines of text that the best box claims; 0 where none was found
    # Mean distance of the quad's corners from the true ones, as a share of the plate's width; None
    # where the plate was not found.
    corner_error: float | None

    @property
    def verdicts(self) -> dict[str, bool]:
        """The answer to each of `QUESTIONS`."""
        found = self.result.found
        return {
            "found": bool(found),
            "lines": self.lines_found == self.result.lines,
            "read": self.result.read,
            "candidate": any(answer.guess == self.result.text for answer in found),
            "format": bool(found) and found[0].format == self.kind,
            "no wrong": not self.result.wrong_texts,
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        own = {"lines_found": self.lines_found, "corner_error": self.corner_error}
        return {**self.result.to_dict(), "kind": self.kind, **own}


@dataclass(frozen=True)
class CornerError:
    """Mean error of the quads' corners in shares of the plate's width, over found plates."""

    plates: int
    mean: float
    interval_95: Interval
    percentile_95: float

    def __str__(self) -> str:
        low, high = (100 * bound for bound in self.interval_95)
        return f"{self.mean:.2%} {low:.2f}-{high:.2f}"


@dataclass
class RenderedReport:
    """What became of every plate of the benchmark."""

    per_kind: int  # photos of each kind
    # One for each plate; now and then a photo has two.
    plates: list[RenderedPlate] = field(default_factory=list)
    elsewhere: list[Answer] = field(default_factory=list)  # answers on no plate

    @property
    def board(self) -> Scoreboard:
        """The same plates as a scoreboard, for its list and sheet of failures."""
        return Scoreboard([plate.result for plate in self.plates], self.elsewhere)

    @property
    def kinds(self) -> dict[str, list[RenderedPlate]]:
        """The plates of each kind that there is any of, then all."""
        grouped = {kind: [p for p in self.plates if p.kind == kind] for kind in KINDS}
        return {kind: plates for kind, plates in grouped.items() if plates} | {"all": self.plates}

    @property
    def false_texts(self) -> Count:
        """Readable texts where no plate is, per photo."""
        photos = len({plate.result.photo for plate in self.plates})
        return events("readable texts elsewhere", sum(bool(a.text) for a in self.elsewhere), photos)

    def lines(self) -> list[str]:
        """The report for a terminal: a table by kind, and what its columns mean."""
        rows = {
            kind: [
                *(count.cell for count in count_questions(plates)),
                str(corner_error(plates) or "nothing found"),
            ]
            for kind, plates in self.kinds.items()
        }
        table = pd.DataFrame.from_dict(rows, orient="index", columns=[*QUESTIONS, "corners"])
        false = self.false_texts
        return [
            f"Rendered benchmark, seed {SEED}, {self.per_kind} photos of each kind: end to end",
            "Count, and the 95 % interval of the rate in per cent",
            "",
            *table.to_string().splitlines(),
            "",
            *(f"  {head:<10} {meaning}" for head, meaning in QUESTIONS.items()),
            "  corners    mean distance from the true corners, in per cent of the plate's width",
            f"Readable texts where no plate is: {false.hits} on {false.total} photos",
        ]

    def failure_lines(self) -> list[str]:
        """Every failure: where, why, and what was read instead."""
        return self.board.failure_lines()

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "seed": SEED,
            "per_kind": self.per_kind,
            "kinds": {name: _summary(plates) for name, plates in self.kinds.items()},
            "false_texts": self.false_texts.to_dict(),
            "plates": [plate.to_dict() for plate in self.plates],
            "elsewhere": [plain(answer) for answer in self.elsewhere],
        }


def count_questions(plates: Sequence[RenderedPlate]) -> list[Count]:
    """One count for each question."""
    verdicts = [plate.verdicts for plate in plates]
    return [proportion(head, [answers[head] for answers in verdicts]) for head in QUESTIONS]


def corner_error(plates: Sequence[RenderedPlate]) -> CornerError | None:
    """Mean over the plates found, with a bootstrap interval; None if none was."""
    errors = [p.corner_error for p in plates if p.corner_error is not None]
    if not errors:
        return None
    interval = bootstrap_95(lambda drawn: drawn.mean(axis=1), errors)
    worst = float(np.percentile(errors, 95))
    return CornerError(len(errors), float(np.mean(errors)), interval, worst)


def evaluate_rendered(
    nets: Nets,
    per_kind: int = PER_KIND,
    workers: int = 2,
    kinds: Sequence[str] = DRAWN,
    progress: Progress = lambda photos, _: photos,
) -> RenderedReport:
    """Render so many photos of each kind of plates and read them.

    No workers render in this process; ``progress`` wraps the photos, given their number.
    """
    numbered = [(kind, index) for index, kind in product(range(per_kind), kinds)]
    report = RenderedReport(per_kind)
    for photo in progress(render_photos(numbered, workers), len(numbered)):
        plates, elsewhere = score_rendered(photo, nets)
        report.plates += plates
        report.elsewhere += elsewhere
    return report


def load_rendered(name: str) -> Pixels:
    """A photo's pixels, (H, W, 3) uint8 RGB, made again from its name."""
    return decode(photo_named(name).file)


def score_rendered(photo: BenchmarkPhoto, nets: Nets) -> tuple[list[RenderedPlate], list[Answer]]:
    """Read one photo from its file: one result per plate, and the answers on no plate."""
    image = torch.from_numpy(decode(photo.file))
    boxes = [plate.box for plate in photo.plates]
    matched, elsewhere = match(boxes, nets.read(image))
    lines = [plate.lines for plate in photo.plates]
    in_labels = read_boxes(photo.name, image, boxes, lines, nets)
    plates = []
    for label, found, in_label in zip(photo.plates, matched, in_labels, strict=True):
        light = "dark" if photo.dark else "day"
        about = photo.name, label.box, label.text, light, True, label.lines
        answers = tuple(Answer.of(photo.name, plate, iou) for plate, iou in found)
        result = PlateResult(*about, in_label, answers)
        lines_found, error = 0, None
        if result.found:
            best, _ = found[0]
            distances = np.hypot(*(np.array(best.quad) - label.quad).T)
            lines_found, error = best.lines, float(distances.mean()) / label.width
        plates.append(RenderedPlate(label.kind, result, lines_found, error))
    return plates, [Answer.of(photo.name, plate) for plate in elsewhere]


def _summary(plates: Sequence[RenderedPlate]) -> dict[str, Any]:
    error = corner_error(plates)
    return {
        "counts": [count.to_dict() for count in count_questions(plates)],
        "corner_error": asdict(error) if error else None,
    }
