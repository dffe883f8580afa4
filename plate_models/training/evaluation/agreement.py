"""Two ways to read the same photos, plate by plate: where they differ, and how far."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from plate_models.detection import box_iou_xyxy
from plate_models.pipeline import Plate
from plate_models.training.evaluation.answers import answer_from
from plate_models.training.evaluation.results import Answer

# Boxes of two ways that overlap this much are the same plate.
_SAME_BOX_IOU = 0.5
_PERCENTILES = (50, 95, 99, 100)


@dataclass(frozen=True)
class Pair:
    """One plate as two ways answer it; None for the way that has not found it."""

    expected: Answer | None
    found: Answer | None

    @property
    def photo(self) -> str:
        """Name of the photo."""
        return next(answer.photo for answer in (self.expected, self.found) if answer)

    @property
    def same_text(self) -> bool:
        """Whether both found it, answer the same text, and have the same best candidate."""
        if self.expected is None or self.found is None:
            return False
        one, other = ((a.text, a.guess) for a in (self.expected, self.found))
        return one == other

    @property
    def same_answer(self) -> bool:
        """Whether whoever asks gets the same text; a plate not found has none."""
        one, other = (answer.text if answer else "" for answer in (self.expected, self.found))
        return one == other

    @property
    def moved_px(self) -> float:
        """How far the side of the box moved that moved most; infinity for one box only."""
        if self.expected is None or self.found is None:
            return float("inf")
        return float(np.abs(np.subtract(self.expected.box, self.found.box)).max())

    def line(self) -> str:
        """The pair for a terminal."""
        one, other = map(_said, (self.expected, self.found))
        moved = "" if np.isinf(self.moved_px) else f", box moved {self.moved_px:.2f} px"
        return f"  {self.photo:<40} {one}  ->  {other}{moved}"

    def to_dict(self) -> dict[str, Any]:
        """Both answers as JSON-ready values."""
        return {
            "expected": self.expected.to_dict() if self.expected else None,
            "found": self.found.to_dict() if self.found else None,
        }


@dataclass
class PhotoAgreement:
    """Photos read in two ways.

    Attributes:
        photos: How many.
        pairs: Every plate that one of the two found.
    """

    photos: int = 0
    pairs: list[Pair] = field(default_factory=list)

    def add(self, photo: str, expected: Iterable[Plate], found: Iterable[Plate]) -> None:
        """Take one photo's plates into account."""
        self.photos += 1
        one, other = ([answer_from(photo, p) for p in plates] for plates in (expected, found))
        self.pairs += pair_up(one, other)

    @property
    def differing(self) -> list[Pair]:
        """Plates with different texts, and those that only one way found."""
        return [pair for pair in self.pairs if not pair.same_text]

    @property
    def found_by_one(self) -> tuple[int, int]:
        """Plates that only the first, and only the second way found."""
        return sum(p.found is None for p in self.pairs), sum(p.expected is None for p in self.pairs)

    @property
    def moved_px(self) -> dict[int, float]:
        """Percentiles, in pixels, of how far boxes moved; empty without a common plate."""
        moved = [pair.moved_px for pair in self.pairs if not np.isinf(pair.moved_px)]
        return {p: float(np.percentile(moved, p)) for p in _PERCENTILES} if moved else {}

    def disagreeing(self, within_px: float) -> list[Pair]:
        """Plates with different texts, or boxes further apart than so many pixels."""
        return [p for p in self.pairs if not (p.same_text and p.moved_px <= within_px)]

    def lines(self) -> list[str]:
        """The counts for a terminal, then every plate whose answered text differs.

        What is held back is mostly no plate at all, and what is guessed there is chance:
        it is counted here, and listed in `to_dict`.
        """
        answered = [pair for pair in self.pairs if not pair.same_answer]
        held_back = [pair for pair in self.differing if pair.same_answer]
        alone = sum(np.isinf(pair.moved_px) for pair in held_back)
        moved = ", ".join(f"p{p} {px:.3f}" for p, px in self.moved_px.items()) or "no plates"
        return [
            f"{self.photos} photos with {len(self.pairs)} plates, end to end",
            f"  texts that differ: {len(answered)}",
            f"  held back by both, but with other best candidates: {len(held_back)}; of these "
            f"found by one only: {alone}",
            f"  boxes moved by px: {moved.replace('p100', 'at most')}",
            *(pair.line() for pair in answered),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The counts, and every plate that differs, as JSON-ready values."""
        return {
            "photos": self.photos,
            "plates": len(self.pairs),
            "answers_that_differ": sum(not pair.same_answer for pair in self.pairs),
            "found_by_one": self.found_by_one,
            "box_moved_px": {f"p{p}": px for p, px in self.moved_px.items()},
            "differing": [pair.to_dict() for pair in self.differing],
        }


def pair_up(expected: Sequence[Answer], found: Sequence[Answer]) -> list[Pair]:
    """Bring together the answers of two ways to one photo, best overlap first.

    Returns:
        A pair for each plate; those that only one of the two found come last.
    """
    boxes = [torch.tensor([a.box for a in side]).reshape(-1, 4) for side in (expected, found)]
    overlaps = box_iou_xyxy(*boxes)
    pairs, left, right = [], set(range(len(expected))), set(range(len(found)))
    for place in overlaps.flatten().argsort(descending=True).tolist():
        i, j = divmod(place, len(found))
        if i in left and j in right and overlaps[i, j] >= _SAME_BOX_IOU:
            pairs.append(Pair(expected[i], found[j]))
            left.remove(i)
            right.remove(j)
    pairs += [Pair(expected[i], None) for i in sorted(left)]
    return pairs + [Pair(None, found[j]) for j in sorted(right)]


def _said(answer: Answer | None) -> str:
    if answer is None:
        return "not found"
    return f"{answer.text or f'({answer.guess})'} {answer.score:.3f}"
