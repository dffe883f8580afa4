"""A cache of rendered crops on disk: several processes render them, trainings read them."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plate_models.recognition import ctc
from plate_models.spec import RECOGNIZER, RECTIFIER
from plate_models.training.synthetic.crops import DEFAULT_CROPS, CropSample, render_crop
from plate_models.training.worker_pool import start_pool


class CropBatch(NamedTuple):
    """Crops with their labels."""

    images: NDArray[np.uint8]  # (N, H, W, 3) uint8 RGB crops
    quads: NDArray[np.float32]  # (N, 4, 2) float32 corners TL, TR, BR, BL in crop pixels
    # (N, 2, L) int64 classes of each line of text, padded with -1; the second line of a one-line
    # plate is empty.
    labels: NDArray[np.int64]

    @property
    def lines(self) -> NDArray[np.int64]:
        """(N,) int64 lines of text, 1 or 2."""
        return 1 + (self.labels[:, 1, 0] >= 0).astype(np.int64)

    def part(self, rows: slice | list[int] | NDArray[np.int64]) -> "CropBatch":
        """The crops at these indices."""
        return CropBatch(self.images[rows], self.quads[rows], self.labels[rows])

    @staticmethod
    def of(parts: "Sequence[CropBatch]") -> "CropBatch":
        """Concatenate batches."""
        return CropBatch(*map(np.concatenate, zip(*parts, strict=True)))


class CropCache:
    """A folder of blocks of rendered crops; block k depends on seed + k alone.

    Raises FileExistsError: The folder holds crops of other settings.
    """

    def __init__(self, folder: Path, seed: int, block: int = 500) -> None:
        self.folder, self.seed, self.block = folder, seed, block
        self._blocks: dict[str, CropBatch] = {}
        folder.mkdir(parents=True, exist_ok=True)
        names = ("crop_hw", "crop_margin_hw", "two_line_margin_hw")
        contract = {name: getattr(RECTIFIER, name) for name in names}
        about = {"seed": seed, "block": block, **contract, "style": repr(DEFAULT_CROPS)}
        path, settings = folder / "settings.json", json.dumps(about)
        if not path.exists():
            path.write_text(settings)
        if path.read_text() != settings:
            raise FileExistsError(f"{folder} was rendered with other settings: delete it first")

    @contextmanager
    def rendering(self, crops: int, workers: int) -> Iterator[Callable[[], float]]:
        """Render those blocks of the first ``crops`` crops that are missing, in other processes.

        A context manager. Its body runs as soon as one block exists. At exit it waits for the
        blocks in progress and cancels the others. The body gets a function that returns the share
        of the crops that exist, or raises the error of a failed block, such as a full disk or a
        plate that can't be drawn.
        """
        paths = [self.folder / f"{block:06d}" for block in range(-(-crops // self.block))]
        missing = [(block, path) for block, path in enumerate(paths) if not path.is_dir()]
        pool = start_pool(workers)
        try:
            jobs = [
                pool.submit(_render_block, path, self.seed + block, self.block)
                for block, path in missing
            ]
            if len(missing) == len(paths):
                jobs[0].result()

            def rendered() -> float:
                finished = [job.result() for job in jobs if job.done()]
                return 1 - (len(jobs) - len(finished)) / len(paths)

            yield rendered
        finally:
            pool.shutdown(cancel_futures=True)

    def draw(self, rng: np.random.Generator, count: int) -> CropBatch:
        """Draw random crops of all blocks rendered so far."""
        for path in self.folder.glob("??????"):
            if path.name not in self._blocks:
                files = [path / f"{name}.npy" for name in CropBatch._fields]
                # Memory-mapped, because the set is larger than many machines' memory.
                self._blocks[path.name] = CropBatch(*(np.load(f, mmap_mode="r") for f in files))
        blocks = [self._blocks[name] for name in sorted(self._blocks)]
        chosen = rng.integers(0, (len(blocks), self.block), (count, 2)).tolist()
        return CropBatch.of([blocks[block].part([row]) for block, row in chosen])


def _render_block(path: Path, seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    batch = batch_of([render_crop(rng) for _ in range(count)])
    # Another training that shares the folder may render the same crops at the same time.
    with TemporaryDirectory(dir=path.parent) as partial:
        for name, array in batch._asdict().items():
            np.save(data := io.BytesIO(), array)  # NumPy would hide the cause, such as a full disk
            Path(partial, f"{name}.npy").write_bytes(data.getbuffer())
        if not path.is_dir():
            Path(partial).rename(path)


def batch_of(samples: Sequence[CropSample], alphabet: str = RECOGNIZER.alphabet) -> CropBatch:
    """Stack at least one crop, and encode the texts as classes of an alphabet."""
    labels = np.full((len(samples), 2, RECOGNIZER.max_text_length), -1, dtype=np.int64)
    for label, sample in zip(labels, samples, strict=True):
        for line, text in enumerate(sample.rows):
            label[line, : len(text)] = ctc.encode(text, alphabet)
    return CropBatch(
        np.stack([sample.image for sample in samples]),
        np.stack([sample.quad for sample in samples]),
        labels,
    )
