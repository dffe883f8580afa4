"""The table of `plates eval`: what became of every labelled plate, and of every other box."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch

from plate_models.engines.nets import Nets
from plate_models.training.evaluation.results import (
    FAILURES,
    FOUND,
    METRICS,
    NO_WRONG,
    READ,
    Answer,
    Pixels,
    PlateResult,
    plain,
    score_photo,
)
from plate_models.training.evaluation.sets import Photo
from plate_models.training.figures import Count, bootstrap_95, edit_distance, proportion

# A property with more values than this tells photos apart, not groups.
_MOST_GROUPS = 8
# What the detector alone is asked.
_BOXES = (FOUND, "found, IoU 0.7")


@dataclass
class Scoreboard:
    """One row of the table: a set of photos, or a part of it."""

    complete: bool = False  # whether every plate of these photos is labelled
    photos: int = 0
    plates: list[PlateResult] = field(default_factory=list)  # one result per labelled plate
    # Answers that overlap no label. Where plates may have been left unlabelled, a person has to
    # look at them.
    elsewhere: list[Answer] = field(default_factory=list)
    # What loads the photos that a sheet may show.
    loads: dict[str, Callable[[], Pixels]] = field(default_factory=dict, repr=False)

    def add(self, photo: Photo, nets: Nets) -> None:
        """Read a photo, compare it with its labels, and read the labelled boxes, too."""
        pixels, labels = photo.open()
        image = torch.from_numpy(pixels)
        plates, elsewhere = score_photo(photo.name, image, labels, nets, photo.o_is_0)
        self.photos += 1
        self.elsewhere += elsewhere
        for plate in plates:
            shown = plate.failure or not plate.label.legible
            self.plates.append(plate if shown else plate.without_crops())
            if shown:
                self.loads[photo.name] = lambda: photo.open()[0]
        if elsewhere:
            self.loads[photo.name] = lambda: photo.open()[0]

    @property
    def failures(self) -> list[PlateResult]:
        """The plates that went wrong somewhere, in the order of `FAILURES`, then by photo."""
        order = list(FAILURES)
        failed = [plate for plate in self.plates if plate.failure]
        return sorted(failed, key=lambda plate: (order.index(plate.failure), plate.photo))

    @property
    def wrong_texts(self) -> list[tuple[PlateResult | None, Answer]]:
        """Every readable answer that is known to be wrong, with its plate if there is one."""
        wrong: list[tuple[PlateResult | None, Answer]] = [
            (plate, answer) for plate in self.plates for answer in plate.wrong_texts
        ]
        return wrong + [(None, a) for a in self.elsewhere if a.text and self.complete]

    @property
    def unverified(self) -> list[Answer]:
        """Readable answers that no label confirms or refutes: a person has to look."""
        illegible = [a for plate in self.plates if not plate.label.legible for a in plate.answers]
        unlabelled = [] if self.complete else self.elsewhere
        return [answer for answer in [*illegible, *unlabelled] if answer.text]

    def counts(self) -> list[Count]:
        """Everything that is counted, by name."""
        rows = count_plates(self.plates)
        legible = [plate for plate in self.plates if plate.label.legible]
        for name in legible[0].others if legible else ():
            rows.append(
                proportion(f"labelled box, {name}", [p.right(p.others[name]) for p in legible])
            )
        if self.complete:
            answers = [*self.elsewhere, *(a for plate in self.plates for a in plate.answers)]
            rows.append(proportion("precision", [a.iou >= 0.5 for a in answers]))
        readable = sum(bool(answer.text) for answer in self.elsewhere)
        rows.append(Count("other boxes per photo", len(self.elsewhere), self.photos))
        rows.append(Count("readable texts there per photo", readable, self.photos))
        return rows

    def lines(self) -> list[str]:
        """Every readable text that is wrong or that no label decides, by photo."""
        notes = [
            (a, f"right {plate.label.text}, IoU {a.iou:.2f}" if plate else "no plate is there")
            for plate, a in self.wrong_texts
        ]
        notes += [
            (a, "labelled as illegible" if a.iou else "not labelled") for a in self.unverified
        ]
        return [
            f"  {a.photo:<40} read {a.text:<10} {note}, score {a.score:.3f}" for a, note in notes
        ]

    def failure_lines(self) -> list[str]:
        """Every failure: where, why, and what was read instead."""
        lines = [f"Failures: {len(self.failures)}"]
        for plate in self.failures:
            answers = ", ".join(a.text or f"({a.guess or '-'})" for a in plate.answers) or "-"
            lines.append(
                f"  {plate.failure:<13} {plate.photo:<40} {plate.label.text or '?':<10} end to end "
                f"{answers}, labelled box {plate.in_label.guess or '-'}, IoU {plate.iou:.2f}"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "complete": self.complete,
            "photos": self.photos,
            "counts": [count.to_dict() for count in self.counts()],
            "plates": [plate.to_dict() for plate in self.plates],
            "elsewhere": [plain(answer) for answer in self.elsewhere],
        }


def score(photos: Iterable[Photo], nets: Nets) -> dict[str, Scoreboard]:
    """Read photos at the operating point that ships; a scoreboard for each row of the table.

    Raises:
        ImageError: A photo can't be read; the message names it.
    """
    boards: dict[str, Scoreboard] = {}
    for photo in photos:
        board = boards.setdefault(photo.row, Scoreboard(photo.complete))
        board.add(photo, nets)
    return boards


def count_plates(plates: Sequence[PlateResult]) -> list[Count]:
    """One count for each metric that asks about any plate, and the share of wrong characters."""
    rows = []
    for metric in METRICS:
        if asked := [plate for plate in plates if metric.asks(plate)]:
            rows.append(proportion(metric.name, [metric.right(plate) for plate in asked]))
    if legible := [plate for plate in plates if plate.label.legible]:
        errors = sum(edit_distance(plate.in_label.guess, plate.label.text) for plate in legible)
        length = sum(len(plate.label.text) for plate in legible)
        rows.append(Count("character error rate, labelled box", errors, length))
    return rows


def table(boards: Mapping[str, Scoreboard]) -> list[str]:
    """The one table, in two sections: what the detector finds, and what is read end to end."""
    boxes, texts = {}, {}
    for row, board in boards.items():
        counts = {count.name: count for count in board.counts()}
        cells = {name: count.cell for name, count in counts.items() if count.total}
        errors = [p.corner_error for p in board.plates if p.corner_error is not None]
        others = len(board.elsewhere)
        boxes[row] = {
            "photos": board.photos,
            **{name: cells.get(name, "") for name in (*_BOXES, "precision")},
            "no plates": others if board.complete else "",
            "unlabelled": "" if board.complete else others,
            "per photo": f"{others / max(board.photos, 1):.3f}",
            "readable there": counts["readable texts there per photo"].hits,
            "corners off by": "",
        }
        if errors:
            low, high = bootstrap_95(lambda drawn: drawn.mean(axis=1), errors)
            boxes[row]["corners off by"] = f"{np.mean(errors):.2%} {100 * low:.2f}-{100 * high:.2f}"
        if READ in counts:
            wrong = sum(bool(plate.wrong_texts) for plate in board.plates)
            shown = [m.name for m in METRICS if m.name not in (*_BOXES, READ, NO_WRONG)]
            texts[row] = {
                "plates": counts[READ].total,
                "read right": counts[READ].hits,
                "rate": f"{counts[READ].rate:.1%}",
                "95 %": cells[READ].split()[1],
                "wrong": wrong,
                **{name: cells.get(name, "") for name in shown},
            }
    return [
        "Detector, at the shipped threshold: what is found, and boxes where no plate is",
        "",
        *_frame(boxes),
        "",
        "End to end: the readable text is right; `wrong` counts plates with a wrong one",
        "",
        *_frame(texts),
        "",
        "Rates carry the 95 % interval in per cent. Where not every plate is labelled, other boxes",
        "may be plates: they are counted as unlabelled, not as wrong.",
    ]


def _frame(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not rows:
        return ["nothing to count"]
    frame = pd.DataFrame.from_dict(rows, orient="index").fillna("")
    return list(frame.loc[:, (frame != "").any()].to_string().splitlines())


def group_lines(plates: Sequence[PlateResult]) -> list[str]:
    """Plates by width (terciles), light, source and lines: one line per group; may be empty.

    A property with one value only is left out: it would say the same as the whole.
    """
    if not plates:
        return []
    about = [(p.width, p.label.light or "not labelled", p.source, p.label.lines) for p in plates]
    frame = pd.DataFrame(about, columns=["width", "light", "source", "lines"])
    bounds = {-np.inf, *frame["width"].quantile([1 / 3, 2 / 3]).round(), np.inf}
    frame["width"] = pd.cut(frame["width"], sorted(bounds))
    rows = {}
    for by in frame:
        groups = frame.groupby(by, observed=True).indices
        for name, places in groups.items() if 1 < len(groups) <= _MOST_GROUPS else ():
            counts = count_plates([plates[place] for place in places])
            rows[f"{by}: {name}"] = {count.name: count.cell for count in counts}
    return ["By group: count, and the 95 % interval of the rate in per cent", *_frame(rows)]


def grammar_lines(plates: Sequence[PlateResult]) -> list[str]:
    """What the grammar wins and breaks beside the best path and the beam, in labelled boxes."""
    changed = {"wins": list[str](), "breaks": list[str]()}
    for plate in plates:
        steps = [plate.others["greedy"], plate.others["beam"], plate.in_label.guess]
        right = [plate.right(step) for step in steps]
        if plate.label.legible and any(right) and not all(right):
            verdict = "wins" if right[2] else "breaks"
            shown = "greedy {}, beam {}, grammar {}".format(*steps)
            changed[verdict].append(f"  {verdict} {plate.label.text}: {shown}")
    counted = ", ".join(f"{verdict} {len(lines)}" for verdict, lines in changed.items())
    return [f"In the labelled boxes the grammar {counted}", *changed["wins"], *changed["breaks"]]
