"""Two ways to read the same plates: where they differ, and how far.

An engine is compared with the float32 reference on single crops and on whole photos; Triton
is compared with this process on whole photos. The crops are those that scores are calibrated
with, of another seed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plate_models.detection import box_iou_xyxy
from plate_models.engines.nets import Nets
from plate_models.images import decode
from plate_models.pipeline import Plate
from plate_models.training.benchmark import BenchmarkPhoto
from plate_models.training.evaluation.labelled import Progress, labelled_folder
from plate_models.training.evaluation.results import Answer, boxes_of, read_boxes
from plate_models.training.figures import Count, proportion
from plate_models.training.known_crops import DEFAULT_MIX, Block, KnownCrop, lay_out, plan
from plate_models.training.labels import LabelledPhoto
from plate_models.training.worker_pool import map_ahead

# Boxes of two ways that overlap this much are the same plate.
_SAME_BOX_IOU = 0.5
# Texts that may differ from the reference's, as a share of the crops.
ACCEPTED_SHARE = 0.001
SEED = 10_000
_AHEAD = 2  # blocks that may wait for each worker

CropProgress = Callable[[Iterator[list[KnownCrop]], int], Iterable[list[KnownCrop]]]


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
        """Whether both give the same text; a plate that was not found has none."""
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
        moved = "" if np.isinf(self.moved_px) else f", box moved {self.moved_px:.2f} px"
        expected, found = self.expected or "not found", self.found or "not found"
        return f"  {self.photo:<40} {expected}  ->  {found}{moved}"

    def to_dict(self) -> dict[str, Any]:
        """Both answers as JSON-ready values."""
        sides = {"expected": self.expected, "found": self.found}
        return {name: answer.to_dict() if answer else None for name, answer in sides.items()}


@dataclass
class PhotoAgreement:
    """Photos read in two ways: how many, and every plate that one of the two found."""

    photos: int = 0
    pairs: list[Pair] = field(default_factory=list)

    def add(self, photo: str, expected: Iterable[Plate], found: Iterable[Plate]) -> None:
        """Take one photo's plates into account."""
        self.photos += 1
        self.pairs += _pair_up(*([Answer.of(photo, p) for p in side] for side in (expected, found)))

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
        return {p: float(np.percentile(moved, p)) for p in (50, 95, 99, 100)} if moved else {}

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


def _pair_up(expected: Sequence[Answer], found: Sequence[Answer]) -> list[Pair]:
    """Match two ways' answers to one photo, best overlap first; unmatched ones come last."""
    overlaps = box_iou_xyxy(boxes_of(expected), boxes_of(found))
    pairs, left, right = [], set(range(len(expected))), set(range(len(found)))
    for place in overlaps.flatten().argsort(descending=True).tolist():
        i, j = divmod(place, len(found))
        if i in left and j in right and overlaps[i, j] >= _SAME_BOX_IOU:
            pairs.append(Pair(expected[i], found[j]))
            left.remove(i)
            right.remove(j)
    pairs += [Pair(expected[i], None) for i in sorted(left)]
    return pairs + [Pair(None, found[j]) for j in sorted(right)]


@dataclass(frozen=True)
class DifferingCrop:
    """A crop whose text the engines don't agree on, and the largest difference of its logits.

    What each engine answers stands in brackets where it is held back.
    """

    name: str
    kind: str
    text: str
    expected: str
    found: str
    logit_difference: float


@dataclass
class CropAgreement:
    """Crops read by the reference and by another engine."""

    # Crops of each source, "rendered" and "painted".
    sources: Counter[str] = field(default_factory=Counter)
    differing: list[DifferingCrop] = field(default_factory=list)  # those whose texts differ
    largest: float = 0.0  # of all differences between logits
    summed: float = 0.0  # all of them
    logits: int = 0  # how many there are

    @property
    def count(self) -> Count:
        """Texts that differ."""
        total = self.sources.total()
        return proportion("texts that differ", [n < len(self.differing) for n in range(total)])

    @property
    def passed(self) -> bool:
        """Whether no more texts differ than may, and every logit is a number."""
        few = len(self.differing) <= ACCEPTED_SHARE * self.sources.total()
        return few and not np.isnan(self.largest)

    @property
    def _mean(self) -> float:
        return self.summed / self.logits if self.logits else 0.0

    def lines(self) -> list[str]:
        """The counts for a terminal, then every crop that differs."""
        if not self.sources.total():
            return ["Crops in given boxes: not compared"]
        sources = ", ".join(f"{count} {name}" for name, count in sorted(self.sources.items()))
        verdict = "kept" if self.passed else "MISSED"
        count = self.count
        low, high = count.interval_95 or (0.0, 1.0)
        return [
            f"Crops in given boxes: {sources}",
            f"  texts that differ: {count.hits} of {count.total}, 95 % interval {low:.3%} to "
            f"{high:.3%}; at most {ACCEPTED_SHARE:.1%} may: {verdict}",
            f"  logits differ by {self.largest:.2g} at most, by {self._mean:.2g} on average",
            *(
                f"  {c.name:<16} {c.kind:<15} {c.text:<10} {c.expected}  ->  {c.found}, "
                f"logits differ by {c.logit_difference:.2g}"
                for c in self.differing
            ),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "sources": dict(self.sources),
            "count": self.count.to_dict(),
            "passed": self.passed,
            "largest_logit_difference": self.largest,
            "mean_logit_difference": self._mean,
            "differing": [asdict(crop) for crop in self.differing],
        }

    def add(self, crops: Sequence[KnownCrop], reference: Nets, nets: Nets) -> None:
        """Read some crops on both engines and take note of what differs."""
        for part, photo, boxes in lay_out(crops, reference.config.specs):
            lines = [crop.lines for crop in part]
            expected, one = _read(photo, boxes, lines, reference)
            found, other = _read(photo, boxes, lines, nets)
            differences = np.abs(expected - found)
            self.summed += float(differences.sum())
            self.logits += differences.size
            # NaN must not pass as no difference, as it would in Python's max.
            self.largest = float(np.max([self.largest, *differences.ravel()]))
            # One-line plates come first, then both rows of the others.
            rows = np.repeat(np.argsort(lines, kind="stable"), sorted(lines))
            for number, (crop, a, b) in enumerate(zip(part, one, other, strict=True)):
                name = f"{crop.source}-{self.sources[crop.source]}"
                self.sources[crop.source] += 1
                if (a.text, a.guess) != (b.text, b.guess):
                    largest = float(differences[rows == number].max())
                    about = name, crop.kind, crop.text
                    self.differing.append(DifferingCrop(*about, str(a), str(b), largest))


def compare_crops(
    reference: Nets,
    nets: Nets,
    crops: int,
    data: Path | None = None,
    workers: int = 2,
    progress: CropProgress = lambda blocks, _: blocks,
) -> CropAgreement:
    """Make crops and read them on both engines, block by block.

    Args:
        reference: In float32.
        nets: What is compared with it.
        crops: How many.
        data: Holds ``world_photos/``, whose held-out photos half of the plates are painted
            into; all are rendered where it does not.
        workers: Processes that make crops; 0 makes them in this one.
        progress: Wraps the blocks of crops, given their number.

    Raises:
        FileNotFoundError: The labels name a photo that is not there.
        LabelError: The labels of ``world_photos`` are broken.
        ValueError: None of its plates can be painted over.
    """
    painted = data is not None and (data / "world_photos").is_dir()
    mix = DEFAULT_MIX if painted else replace(DEFAULT_MIX, painted_share=0.0)
    blocks = plan(data or Path(), "measure", crops, mix)
    agreement = CropAgreement()
    for made in progress(map_ahead(_make_block, blocks, workers, _AHEAD), len(blocks)):
        agreement.add(made, reference, nets)
    return agreement


def _make_block(block: Block) -> list[KnownCrop]:
    return block.make(SEED, DEFAULT_MIX)


def _read(
    image: Tensor, boxes: Tensor, lines: list[int], nets: Nets
) -> tuple[NDArray[np.float32], list[Answer]]:
    """(M, C, T) logits of all rows of N plates, and the N answers."""
    logits: list[Tensor] = []

    def recognize(plates: Tensor) -> Tensor:
        logits.append(nets.recognize(plates))
        return logits[-1]

    watched = replace(nets, recognize=recognize)
    answers = read_boxes("", image, boxes.tolist(), lines, watched)
    return torch.cat(logits).float().cpu().numpy(), answers


@dataclass(frozen=True)
class EngineReport:
    """What an engine reads differently from the reference; None for what was not asked for."""

    engine: str
    crops: CropAgreement
    photos: PhotoAgreement | None = None
    rendered: PhotoAgreement | None = None

    @property
    def passed(self) -> bool:
        """Whether no more texts of crops differ than may."""
        return self.crops.passed

    def lines(self) -> list[str]:
        """The report for a terminal."""
        lines = [f"{self.engine}, against the reference: torch, float32", "", *self.crops.lines()]
        parts = (("Real photos", self.photos), ("Rendered benchmark", self.rendered))
        for name, part in parts:
            lines += ["", f"{name}: not compared"] if part is None else ["", name, *part.lines()]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "engine": self.engine,
            "passed": self.passed,
            "crops": self.crops.to_dict(),
            "photos": self.photos.to_dict() if self.photos else None,
            "rendered": self.rendered.to_dict() if self.rendered else None,
        }


def photos_of(data: Path) -> list[LabelledPhoto]:
    """List every photo of a data folder, those without plates as well.

    Raises:
        FileNotFoundError: There is no folder of photos.
    """
    files = sorted((labelled_folder(data) / "images").iterdir())
    return [LabelledPhoto(file) for file in files + sorted((data / "no_plates").glob("*.jpg"))]


def compare_photos(
    photos: list[LabelledPhoto], reference: Nets, nets: Nets, progress: Progress = iter
) -> PhotoAgreement:
    """Read photos on both engines; ``progress`` wraps the list, for a progress bar."""
    agreement = PhotoAgreement()
    for photo in progress(photos):
        image = torch.from_numpy(decode(photo.path.read_bytes()))
        agreement.add(photo.path.name, reference.read(image), nets.read(image))
    return agreement


def compare_rendered(
    photos: Iterable[BenchmarkPhoto], reference: Nets, nets: Nets
) -> PhotoAgreement:
    """Read photos of the rendered benchmark on both engines."""
    agreement = PhotoAgreement()
    for photo in photos:
        image = torch.from_numpy(decode(photo.file))
        agreement.add(photo.name, reference.read(image), nets.read(image))
    return agreement
