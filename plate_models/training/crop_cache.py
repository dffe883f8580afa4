"""Rendered crops on disk: rendered once by several processes, read many times."""

import json
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plate_models.recognition import ctc
from plate_models.spec import RECOGNIZER, RECTIFIER
from plate_models.training.synthetic.crops import DEFAULT_CROPS, render_crop
from plate_models.training.worker_pool import map_ahead


@dataclass(frozen=True)
class CropBatch:
    """Rendered crops with what is written on them."""

    images: NDArray[np.uint8]  # (N, H, W, 3) uint8 RGB crops
    quads: NDArray[np.float32]  # (N, 4, 2) float32 corners TL, TR, BR, BL in crop pixels
    # (N, 2, L) int64 classes of each row, -1 after a row's end; the second row of a one-line plate
    # is empty.
    labels: NDArray[np.int64]

    @property
    def lines(self) -> NDArray[np.int64]:
        """(N,) int64 lines of text, 1 or 2."""
        return 1 + (self.labels[:, 1, 0] >= 0).astype(np.int64)

    def part(self, rows: slice) -> "CropBatch":
        """Some of the crops."""
        return CropBatch(self.images[rows], self.quads[rows], self.labels[rows])


_ARRAYS = ("images", "quads", "labels")


class CropCache:
    """A folder of blocks of rendered crops; block k is made from seed + k alone."""

    def __init__(self, folder: Path, seed: int, block: int = 500) -> None:
        self.folder = folder
        self.seed = seed
        self.block = block
        folder.mkdir(parents=True, exist_ok=True)
        self._blocks: dict[int, CropBatch] = {}
        self._check_settings()

    def _check_settings(self) -> None:
        names = ("crop_hw", "crop_margin_hw", "two_line_margin_hw")
        contract = {name: getattr(RECTIFIER, name) for name in names}
        style = repr(DEFAULT_CROPS)
        settings = {"seed": self.seed, "block": self.block, **contract, "style": style}
        path = self.folder / "settings.json"
        if not path.exists():
            path.write_text(json.dumps(settings))
        if json.loads(path.read_text()) != json.loads(json.dumps(settings)):
            raise ValueError(f"{self.folder} was rendered with other settings: delete it first")

    def _path(self, block: int) -> Path:
        return self.folder / f"{block:06d}"

    def fill(self, crops: int, workers: int) -> Generator[int, None, None]:
        """Render what is missing for so many crops; yields the crops ready so far.

        Closing the generator stops after the blocks that are being rendered.
        """
        missing = [b for b in range(-(-crops // self.block)) if not self._path(b).is_dir()]
        jobs = ((self._path(b), self.seed + b, self.block) for b in missing)
        with closing(map_ahead(_render_block, jobs, workers)) as rendered:
            for done, _ in enumerate(rendered, 1):
                yield crops - (len(missing) - done) * self.block

    def refresh(self) -> int:
        """Open blocks rendered since the last call; returns the crops now at hand."""
        for path in self.folder.glob("??????"):
            block = int(path.name)
            if block not in self._blocks:
                # Mapped, not read: the set is larger than many machines' memory.
                arrays = (np.load(path / f"{name}.npy", mmap_mode="r") for name in _ARRAYS)
                self._blocks[block] = CropBatch(*arrays)
        return len(self._blocks) * self.block

    def draw(self, rng: np.random.Generator, count: int) -> CropBatch:
        """Take random crops from all blocks opened so far."""
        blocks = sorted(self._blocks)
        chosen = rng.integers(0, self.block, count)
        homes = [self._blocks[blocks[b]] for b in rng.integers(0, len(blocks), count)]
        pairs = list(zip(homes, chosen, strict=True))
        return CropBatch(
            np.stack([home.images[i] for home, i in pairs]),
            np.stack([home.quads[i] for home, i in pairs]),
            np.stack([home.labels[i] for home, i in pairs]),
        )


def _render_block(job: tuple[Path, int, int]) -> None:
    path, seed, count = job
    batch = render_batch(np.random.default_rng(seed), count)
    partial = path.with_suffix(".partial")
    partial.mkdir(exist_ok=True)
    for name in _ARRAYS:
        np.save(partial / f"{name}.npy", getattr(batch, name))
    partial.rename(path)


def render_batch(rng: np.random.Generator, count: int) -> CropBatch:
    """Render crops now, without a cache."""
    samples = [render_crop(rng) for _ in range(count)]
    labels = np.full((count, 2, RECOGNIZER.max_text_length), -1, dtype=np.int64)
    for label, sample in zip(labels, samples, strict=True):
        for line, text in enumerate(sample.rows):
            label[line, : len(text)] = ctc.encode(text)
    return CropBatch(
        np.stack([sample.image for sample in samples]),
        np.stack([sample.quad for sample in samples]),
        labels,
    )
