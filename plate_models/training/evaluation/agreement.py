"""Two ways to read the same plates: where they differ, and how far.

An engine is compared with the float32 reference on single crops and on whole photos; Triton
is compared with this process on whole photos. The crops are those that scores are calibrated
with, of another seed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from plate_models.training.evaluation.results import Answer, boxes_of, plain, read_boxes
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
        return self.same_answer and self.expected.guess == self.found.guess

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
        moved = f", box moved {self.moved_px:.2f} px" if 0 < self.moved_px < np.inf else ""
        expected, found = self.expected or "not found", self.found or "not found"
        return f"  {self.photo:<40} {expected}  ->  {found}{moved}"


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
    def moved_px(self) -> dict[int, float]:
        """Percentiles, in pixels, of how far boxes moved; empty without a common plate."""
        moved = [pair.moved_px for pair in self.pairs if not np.isinf(pair.moved_px)]
        return {p: float(np.percentile(moved, p)) for p in (50, 95, 99, 100)} if moved else {}

    def disagreeing(self, within_px: float) -> list[Pair]:
        """Plates with different texts, or boxes further apart than so many pixels."""
        return [p for p in self.pairs if not (p.same_text and p.moved_px <= within_px)]

    def lines(self) -> list[str]:
        """The counts for a terminal, then every plate whose answered text differs.

        A plate that both hold back is mostly no plate at all, and its best candidate is chance:
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
            "box_moved_px": {f"p{p}": px for p, px in self.moved_px.items()},
            "differing": [plain(pair) for pair in self.differing],
        }


def _pair_up(expected: Sequence[Answer], found: Sequence[Answer]) -> list[Pair]:
    """Match two ways' answers to one photo, best overlap first; unmatched ones come last."""
    overlaps = box_iou_xyxy(boxes_of(expected), boxes_of(found))
    pairs, left, right = [], dict(enumerate(expected)), dict(enumerate(found))
    for place in overlaps.flatten().argsort(descending=True).tolist():
        i, j = divmod(place, len(found))
        if i in left and j in right and overlaps[i, j] >= _SAME_BOX_IOU:
            pairs.append(Pair(left.pop(i), right.pop(j)))
    pairs += [Pair(answer, None) for answer in left.values()]
    return pairs + [Pair(None, answer) for answer in right.values()]


@dataclass
class CropAgreement:
    """Crops read by the reference and by another engine."""

    # Crops of each source, "rendered" and "painted".
    sources: Counter[str] = field(default_factory=Counter)
    differing: list[Pair] = field(default_factory=list)  # those whose texts differ
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

    def lines(self) -> list[str]:
        """The counts for a terminal, then every crop that differs."""
        count = self.count
        if not count.interval_95:
            return ["Crops in given boxes: not compared"]
        low, high = count.interval_95
        sources = ", ".join(f"{count} {name}" for name, count in sorted(self.sources.items()))
        return [
            f"Crops in given boxes: {sources}",
            f"  texts that differ: {count.hits} of {count.total}, 95 % interval {low:.3%} to "
            f"{high:.3%}; at most {ACCEPTED_SHARE:.1%} may: {'kept' if self.passed else 'MISSED'}",
            f"  logits differ by {self.largest:.2g} at most, "
            f"by {self.summed / self.logits:.2g} on average",
            *(pair.line() for pair in self.differing),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "sources": dict(self.sources),
            "count": self.count.to_dict(),
            "passed": self.passed,
            "largest_logit_difference": self.largest,
            "mean_logit_difference": self.summed / max(self.logits, 1),
            "differing": [plain(pair) for pair in self.differing],
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
            for crop, *answers in zip(part, one, other, strict=True):
                name = f"{crop.source}-{self.sources[crop.source]} {crop.kind} {crop.text}"
                self.sources[crop.source] += 1
                pair = Pair(*(replace(answer, photo=name) for answer in answers))
                self.differing += [] if pair.same_text else [pair]


def compare_crops(
    reference: Nets,
    nets: Nets,
    crops: int,
    data: Path | None = None,
    workers: int = 2,
    progress: CropProgress = lambda blocks, _: blocks,
) -> CropAgreement:
    """Make so many crops and read them on both engines, block by block.

    Half of the plates are painted into held-out photos of ``data/world_photos``; all are
    rendered where there are none. No workers make the crops in this process; ``progress`` wraps
    the blocks of crops, given their number.

    Raises:
        FileNotFoundError, LabelError: The labels of ``world_photos`` are broken.
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
        for name, part in (("Real photos", self.photos), ("Rendered benchmark", self.rendered)):
            lines += ["", f"{name}: not compared"] if part is None else ["", name, *part.lines()]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        parts = {"crops": self.crops, "photos": self.photos, "rendered": self.rendered}
        kept = {name: part.to_dict() if part else None for name, part in parts.items()}
        return {"engine": self.engine, "passed": self.passed, **kept}


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
    """Read photos on both engines; ``progress`` wraps the list."""
    files = ((photo.path.name, photo.path.read_bytes()) for photo in progress(photos))
    return _compare(files, reference, nets)


def compare_rendered(
    photos: Iterable[BenchmarkPhoto], reference: Nets, nets: Nets
) -> PhotoAgreement:
    """Read photos of the rendered benchmark on both engines."""
    return _compare(((photo.name, photo.file) for photo in photos), reference, nets)


def _compare(files: Iterable[tuple[str, bytes]], reference: Nets, nets: Nets) -> PhotoAgreement:
    agreement = PhotoAgreement()
    for name, file in files:
        image = torch.from_numpy(decode(file))
        agreement.add(name, reference.read(image), nets.read(image))
    return agreement
