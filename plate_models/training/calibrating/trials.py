"""Makes crops and reads them, in several processes; keeps what was claimed and whether it is true.

A crop depends on the seed, its set, its source and its place alone: not on the number of
processes, and on no seed of a training, which use no spawn keys.
"""

import csv
import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plate_models.images import decode
from plate_models.pipeline import Box, PipelineConfig, choose_readings, read_regions
from plate_models.recognition.calibration import UNCALIBRATED
from plate_models.rectification import box_cxcywh_to_xyxy
from plate_models.spec import RectifierSpec
from plate_models.training.calibrating.metrics import Bools, Floats
from plate_models.training.calibrating.mix import CalibrationCrop, CalibrationMix, paint, render
from plate_models.training.detection_photos import validation_names
from plate_models.training.labels import load_labels
from plate_models.weights import Modules, load_modules

SETS = ("fit", "measure")
_BLOCK = 100
_BATCH = 32


@dataclass(frozen=True)
class Trial:
    """One reading of a crop whose text is known.

    Attributes:
        source: "rendered" or "painted".
        kind: Name of the plate's format.
        width_px: Of the plate in its photo.
        text: What stands on the plate.
        read: The best candidate, readable or not.
        eligible: Whether it is readable but for the threshold: its format is known, and no
            character is too doubtful.
        raw: The score before calibration, in [0, 1].
    """

    source: str
    kind: str
    width_px: float
    text: str
    read: str
    eligible: bool
    raw: float

    @property
    def right(self) -> bool:
        """Whether the whole text is."""
        return self.read == self.text


def raw_scores(trials: Sequence[Trial]) -> Floats:
    """(N,) float64 in [0, 1]."""
    return np.array([trial.raw for trial in trials], np.float64)


def rights(trials: Sequence[Trial]) -> Bools:
    """(N,) bool: whether each text is right."""
    return np.array([trial.right for trial in trials], np.bool_)


def eligibles(trials: Sequence[Trial]) -> Bools:
    """(N,) bool: whether each text is readable but for the threshold."""
    return np.array([trial.eligible for trial in trials], np.bool_)


def write_csv(trials: Sequence[Trial], path: Path) -> None:
    """Keep trials, one row each."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(Trial)])
        writer.writerows(astuple(trial) for trial in trials)


def read_crops(crops: Sequence[CalibrationCrop], modules: Modules) -> list[Trial]:
    """Read crops by the very code that serves photos, without a calibration.

    Args:
        crops: Any number.
        modules: The nets.
    """
    config = PipelineConfig.of(modules.specs, UNCALIBRATED)
    spec = modules.specs.rectifier
    trials = []
    for start in range(0, len(crops), _BATCH):
        part = crops[start : start + _BATCH]
        lines = torch.tensor([crop.lines for crop in part])
        image, boxes = as_photo(np.stack([crop.image for crop in part]), lines, spec)
        seen = read_regions(image, boxes, lines, modules.rectify, modules.recognize, config)
        readings = choose_readings(seen, lines.tolist(), config)
        for crop, reading in zip(part, readings, strict=True):
            read = reading.candidates[0][0] if reading.candidates else ""
            about = crop.source, crop.kind, round(crop.width_px, 1), crop.text
            trials.append(Trial(*about, read, reading.readable, reading.score))
    return trials


def as_photo(
    images: NDArray[np.uint8], lines: Tensor, spec: RectifierSpec
) -> tuple[Tensor, Tensor]:
    """Lay crops under one another, with boxes that cut out exactly these crops again.

    Args:
        images: (N, h, w, 3) uint8 RGB crops.
        lines: (N,) int64 lines of text.
        spec: The crops' size and margins.

    Returns:
        The (3 * N * h, w, 3) photo and (N, 4) float64 boxes x0, y0, x1, y1. Above and below
        each crop its edge is repeated, as beyond a photo's edge: the pipeline may look
        again, and wider, and then must not see another plate.
    """
    height, width = images.shape[1:3]
    apart = np.pad(images, ((0, 0), (height, height), (0, 0), (0, 0)), mode="edge")
    margins = torch.tensor([spec.margin_hw(int(n)) for n in lines], dtype=torch.float64)
    count, pitch = apart.shape[:2]
    middles = torch.arange(count, dtype=torch.float64) * pitch + pitch / 2
    centres = torch.stack((torch.full_like(middles, width / 2), middles), dim=1)
    sizes = torch.tensor([width, height], dtype=torch.float64) / (1 + margins.flip(1))
    photo = torch.from_numpy(apart.reshape(count * pitch, width, 3))
    return photo, box_cxcywh_to_xyxy(torch.cat((centres, sizes), dim=1))


@dataclass(frozen=True)
class Block:
    """Crops that one process makes at a time.

    Attributes:
        key: Spawn key of its chance: set, source, place.
        count: Crops to render; 0 where plates are painted.
        photo: File to paint into.
        boxes: Boxes of that photo, one for each plate to paint.
    """

    key: tuple[int, int, int]
    count: int = 0
    photo: Path | None = None
    boxes: tuple[Box, ...] = ()

    def make(self, seed: int, mix: CalibrationMix) -> list[CalibrationCrop]:
        """Make its crops."""
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=self.key))
        if self.photo is None:
            return [render(rng, mix) for _ in range(self.count)]
        image = decode(self.photo.read_bytes())
        return [paint(image, np.array(box), rng, mix) for box in self.boxes]


def plan(data: Path, part: str, crops: int, mix: CalibrationMix) -> list[Block]:
    """Say which crops a set has.

    Args:
        data: Holds ``world_photos/``. Plates to fit to are painted into the photos that the
            detector was trained on, plates to measure with into its validation photos.
        part: One of ``SETS``.
        crops: In the set.
        mix: The share of painted ones, and how small they may be.

    Raises:
        FileNotFoundError: There are no such photos.
        ValueError: No plate among them is large enough to be painted over.
    """
    index, painted = SETS.index(part), round(crops * mix.painted_share)
    rendered = crops - painted
    blocks = [
        Block((index, 0, place), count=min(_BLOCK, rendered - place * _BLOCK))
        for place in range(-(-rendered // _BLOCK))
    ]
    if not painted:
        return blocks
    photos = load_labels(data / "world_photos")
    held_out = validation_names(photo.path.name for photo in photos)
    chosen = [p for p in photos if (p.path.name in held_out) == (part == "measure")]
    places = [
        (photo.path, plate.box)
        for photo in chosen
        for plate in photo.plates
        if plate.box[2] - plate.box[0] >= mix.painted_over_px
    ]
    if not places:
        raise ValueError(f"{data}: no plate of world_photos is wide enough to be painted over")
    return blocks + list(_paint_blocks(places, painted, index))


def _paint_blocks(places: Sequence[tuple[Path, Box]], painted: int, index: int) -> Iterator[Block]:
    """Spread so many plates evenly over the places, photo by photo."""
    of_photo: dict[Path, list[Box]] = {}
    for number, (path, box) in enumerate(places):
        times = (number + 1) * painted // len(places) - number * painted // len(places)
        of_photo.setdefault(path, []).extend([box] * times)
    for place, (path, boxes) in enumerate(of_photo.items()):
        if boxes:
            yield Block((index, 1, place), photo=path, boxes=tuple(boxes))


# Of this process, once `_start` has run in it.
_modules: Modules | None = None


def _start(weights: Path) -> None:
    global _modules
    os.nice(10)
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    _modules = load_modules(weights, calibrated=False)


def _try(block: Block, seed: int, mix: CalibrationMix) -> list[Trial]:
    if _modules is None:
        raise RuntimeError("the process has no nets: it was not started by try_blocks")
    return read_crops(block.make(seed, mix), _modules)


def try_blocks(
    blocks: Sequence[Block], weights: Path, seed: int, mix: CalibrationMix, workers: int
) -> Generator[list[Trial]]:
    """Make and read blocks in so many processes; yields their trials in the given order."""
    spawn = get_context("spawn")
    pool = ProcessPoolExecutor(workers, spawn, initializer=_start, initargs=(weights,))
    try:
        yield from pool.map(partial(_try, seed=seed, mix=mix), blocks)
    finally:
        pool.shutdown(cancel_futures=True)
