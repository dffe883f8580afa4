"""The recognizer on two engines: the same crops, their logits and texts side by side.

The crops are those that scores are calibrated with, from chance of their own: every kind of
plate, with one line and two, in boxes that err as the detector's do; half of them painted
into real photos where there are any.
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

from plate_models.engines.nets import Nets
from plate_models.pipeline import choose_readings, read_regions
from plate_models.recognition.decoding import Reading
from plate_models.training.calibrating.mix import DEFAULT_MIX, CalibrationCrop
from plate_models.training.calibrating.trials import Block, as_photo, plan
from plate_models.training.figures import Count, proportion
from plate_models.training.worker_pool import map_ahead

# Texts that may differ from the reference's, as a share of the crops.
ACCEPTED_SHARE = 0.001
SEED = 10_000
_BATCH = 32
_AHEAD = 2  # blocks that may wait for each worker

Progress = Callable[[Iterator[list[CalibrationCrop]], int], Iterable[list[CalibrationCrop]]]


@dataclass(frozen=True)
class DifferingCrop:
    """A crop whose text the engines don't agree on.

    Attributes:
        name: Its source and number.
        kind: Name of the plate's format.
        text: What stands on it.
        expected: What the reference answers: the text, in brackets if it is held back.
        found: What the engine answers.
        logit_difference: The largest of this crop.
    """

    name: str
    kind: str
    text: str
    expected: str
    found: str
    logit_difference: float


@dataclass
class CropAgreement:
    """Crops read by the reference and by another engine.

    Attributes:
        sources: Crops of each source, "rendered" and "painted".
        differing: Those whose texts differ.
        largest: Of all differences between logits.
        summed: All of them.
        logits: How many there are.
    """

    sources: Counter[str] = field(default_factory=Counter)
    differing: list[DifferingCrop] = field(default_factory=list)
    largest: float = 0.0
    summed: float = 0.0
    logits: int = 0

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

    @property
    def _mean(self) -> float:
        return self.summed / self.logits if self.logits else 0.0

    def add(self, crops: Sequence[CalibrationCrop], reference: Nets, nets: Nets) -> None:
        """Read some crops on both engines and take note of what differs."""
        lines = [crop.lines for crop in crops]
        expected, found = (_read(crops, lines, side) for side in (reference, nets))
        differences = np.abs(expected.logits - found.logits)
        self.summed += float(differences.sum())
        self.logits += differences.size
        # NaN must not pass as no difference, as it would in Python's max.
        self.largest = float(np.max([self.largest, *differences.ravel()]))
        rows = np.array(_rows_of(lines))
        for number, crop in enumerate(crops):
            name = f"{crop.source}-{self.sources[crop.source]}"
            self.sources[crop.source] += 1
            one, other = expected.readings[number], found.readings[number]
            if (one.text, _guess(one)) != (other.text, _guess(other)):
                largest = float(differences[rows == number].max())
                said = _said(one), _said(other)
                self.differing.append(DifferingCrop(name, crop.kind, crop.text, *said, largest))


def compare_crops(
    reference: Nets,
    nets: Nets,
    crops: int,
    data: Path | None = None,
    workers: int = 2,
    progress: Progress = lambda blocks, _: blocks,
) -> CropAgreement:
    """Make crops and read them on both engines, block by block.

    Args:
        reference: In float32.
        nets: What is held against it.
        crops: How many.
        data: Holds ``world_photos/``, whose held-out photos half of the plates are painted
            into; all are rendered where it does not.
        workers: Processes that make crops; 0 makes them in this one.
        progress: Wraps the blocks of crops, of which it is told the number.

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
        for start in range(0, len(made), _BATCH):
            agreement.add(made[start : start + _BATCH], reference, nets)
    return agreement


def _make_block(block: Block) -> list[CalibrationCrop]:
    return block.make(SEED, DEFAULT_MIX)


@dataclass(frozen=True)
class _Seen:
    """What one engine made of N crops: (M, C, T) logits of M plates and rows, N readings."""

    logits: NDArray[np.float32]
    readings: list[Reading]


def _read(crops: Sequence[CalibrationCrop], lines: list[int], nets: Nets) -> _Seen:
    counts = torch.tensor(lines)
    image, boxes = as_photo(
        np.stack([crop.image for crop in crops]), counts, nets.config.specs.rectifier
    )
    logits: list[Tensor] = []

    def recognize(plates: Tensor) -> Tensor:
        logits.append(nets.recognize(plates))
        return logits[-1]

    with torch.inference_mode():
        photo, places, counts = (t.to(nets.device) for t in (image, boxes, counts))
        seen = read_regions(photo, places, counts, nets.rectify, recognize, nets.config)
    values = torch.cat(logits).float().cpu().numpy()
    return _Seen(values, choose_readings(seen, lines, nets.config))


def _rows_of(lines: Sequence[int]) -> list[int]:
    """Which crop each row of the logits belongs to: one-line plates come first."""
    single = [number for number, count in enumerate(lines) if count == 1]
    return single + [n for n, count in enumerate(lines) if count == 2 for _ in range(2)]


def _guess(reading: Reading) -> str:
    return reading.candidates[0][0] if reading.candidates else ""


def _said(reading: Reading) -> str:
    return f"{reading.text or f'({_guess(reading)})'} {reading.score:.3f}"
