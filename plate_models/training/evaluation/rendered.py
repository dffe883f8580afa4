"""Scores the whole pipeline on the rendered benchmark: every kind of plate, no photo needed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np
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
    read_boxes,
)
from plate_models.training.figures import Count, events, proportion
from plate_models.training.synthetic.kinds import KINDS

Progress = Callable[[Iterator[BenchmarkPhoto], int], Iterable[BenchmarkPhoto]]

_RESAMPLES = 2000


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
    def best(self) -> Answer | None:
        """The answer whose box overlaps the label most; None if none does by half."""
        return next(iter(self.result.found), None)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        own = {"lines_found": self.lines_found, "corner_error": self.corner_error}
        return {**self.result.to_dict(), "kind": self.kind, **own}


# Head of the column, what it means, and the question asked of each plate.
QUESTIONS: tuple[tuple[str, str, Callable[[RenderedPlate], bool]], ...] = (
    ("found", "a box overlaps the plate by half (IoU 0.5)", lambda p: p.best is not None),
    (
        "lines",
        "found, and with the right number of lines",
        lambda p: p.lines_found == p.result.lines,
    ),
    ("read", "exact match end to end: the readable text is right", lambda p: p.result.read),
    (
        "candidate",
        "the best candidate is right, readable or not",
        lambda p: any(answer.guess == p.result.text for answer in p.result.found),
    ),
    (
        "format",
        "the format is named right",
        lambda p: p.best is not None and p.best.format == p.kind,
    ),
    ("no wrong", "no wrong text was given", lambda p: not p.result.wrong_texts),
)


@dataclass(frozen=True)
class CornerError:
    """Mean error of the quads' corners in shares of the plate's width, over found plates."""

    plates: int
    mean: float
    interval_95: tuple[float, float]
    percentile_95: float


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
        heads = "".join(f"{head:>19}" for head, _, _ in QUESTIONS)
        false = self.false_texts
        return [
            f"Rendered benchmark, seed {SEED}, {self.per_kind} photos of each kind: end to end",
            "Count, and the 95 % interval of the rate in per cent",
            "",
            f"{'':<14}{heads}{'corners':>18}",
            *(_row(kind, plates) for kind, plates in self.kinds.items()),
            "",
            *(f"  {head:<10} {meaning}" for head, meaning, _ in QUESTIONS),
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
            "elsewhere": [answer.to_dict() for answer in self.elsewhere],
        }


def count_questions(plates: Sequence[RenderedPlate]) -> list[Count]:
    """One count for each question."""
    return [
        proportion(head, [question(plate) for plate in plates]) for head, _, question in QUESTIONS
    ]


def corner_error(plates: Sequence[RenderedPlate]) -> CornerError | None:
    """Mean over the plates found, with a bootstrap interval; None if none was."""
    errors = np.array([p.corner_error for p in plates if p.corner_error is not None])
    if not len(errors):
        return None
    rng = np.random.default_rng(0)
    means = [errors[rng.integers(0, len(errors), len(errors))].mean() for _ in range(_RESAMPLES)]
    low, high = np.percentile(means, (2.5, 97.5)).tolist()
    worst = float(np.percentile(errors, 95))
    return CornerError(len(errors), float(errors.mean()), (low, high), worst)


def evaluate_rendered(
    nets: Nets,
    per_kind: int = PER_KIND,
    workers: int = 2,
    kinds: Sequence[str] = tuple(KINDS),
    progress: Progress = lambda photos, _: photos,
) -> RenderedReport:
    """Render the benchmark and read it.

    Args:
        nets: The nets.
        per_kind: Photos of each kind.
        workers: Processes that render; 0 renders in this one.
        kinds: Of plates, keys of ``KINDS``.
        progress: Wraps the photos, given their number, for a progress bar.
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
        result = PlateResult(
            photo=photo.name,
            box=label.box,
            text=label.text,
            light="dark" if photo.dark else "day",
            legible=True,
            lines=label.lines,
            in_label=in_label,
            answers=tuple(Answer.of(photo.name, plate, iou) for plate, iou in found),
        )
        lines_found, error = 0, None
        if result.found:
            best, _ = found[0]
            distances = np.hypot(*(np.array(best.quad) - label.quad).T)
            lines_found, error = best.lines, float(distances.mean()) / label.width
        plates.append(RenderedPlate(label.kind, result, lines_found, error))
    return plates, [Answer.of(photo.name, plate) for plate in elsewhere]


def _row(name: str, plates: Sequence[RenderedPlate]) -> str:
    cells = "".join(f"{_cell(count):>19}" for count in count_questions(plates))
    error = corner_error(plates)
    if error is None:
        return f"{name:<14}{cells}{'nothing found':>18}"
    low, high = error.interval_95
    return f"{name:<14}{cells}{f'{error.mean:.2%} {100 * low:.2f}-{100 * high:.2f}':>18}"


def _cell(count: Count) -> str:
    low, high = count.interval_95 or (0.0, 1.0)
    return f"{count.hits}/{count.total} {100 * low:.1f}-{100 * high:.1f}"


def _summary(plates: Sequence[RenderedPlate]) -> dict[str, Any]:
    error = corner_error(plates)
    return {
        "counts": [count.to_dict() for count in count_questions(plates)],
        "corner_error": asdict(error) if error else None,
    }
