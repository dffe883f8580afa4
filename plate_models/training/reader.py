"""Rectifier and recognizer as one net to train: input, loss, exact match."""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.recognition import ctc
from plate_models.rectification import corners_in_crop, resample, sample_rows
from plate_models.spec import RECOGNIZER, RECTIFIER
from plate_models.training.crop_cache import CropBatch


class Reader(nn.Module):
    """Rectifier and recognizer in one module, for one optimizer and one average."""

    def __init__(self) -> None:
        super().__init__()
        self.stn = STN(RECTIFIER)
        self.lprnet = LPRNet(RECOGNIZER)

    def forward(
        self, crops: Tensor, lines: Tensor, theta_noise: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Read crops.

        Args:
            crops: (N, 3, H, W) float32, normalised.
            lines: (N,) int64 lines of text, 1 or 2.
            theta_noise: Standard deviation added to theta before resampling.

        Returns:
            (R, C, T) float32 logits of all rows in the order of :func:`row_labels`, and
            (N, 2, 3) float32 theta, without the noise.
        """
        theta = self.stn.locate(crops).float()
        # Detached: the rectifier learns from corners alone. The text's gradient through the
        # sampler is so noisy that it undoes what the corners teach (EXPERIMENTS.md).
        noisy = theta.detach() + theta_noise * torch.randn_like(theta)
        whole = resample(crops, noisy, RECTIFIER.rectified_hw)[lines == 1]
        rows = sample_rows(crops[lines == 2], noisy[lines == 2])
        return self.lprnet(torch.cat((whole, rows))).float(), theta


def row_labels(batch: CropBatch) -> NDArray[np.int64]:
    """(R, L) int64 classes: all one-line plates, then both rows of each two-line plate."""
    two = batch.lines == 2
    flat = batch.labels[two].reshape(-1, batch.labels.shape[2])
    return np.concatenate((batch.labels[~two, 0], flat))


def text_loss(logits: Tensor, batch: CropBatch) -> Tensor:
    """Mean CTC loss per character.

    Args:
        logits: (R, C, T) float32, of all rows.
        batch: What was rendered.

    Returns:
        A scalar.
    """
    labels = torch.from_numpy(row_labels(batch))
    lengths = (labels >= 0).sum(dim=1)
    log_probs = logits.permute(2, 0, 1).log_softmax(dim=2)
    steps = torch.full_like(lengths, log_probs.shape[0])
    return F.ctc_loss(
        log_probs, labels.clamp_min(0), steps, lengths, logits.shape[1] - 1, zero_infinity=True
    )


def corner_loss(theta: Tensor, batch: CropBatch) -> Tensor:
    """Mean distance of the corners along either axis.

    Args:
        theta: (N, 2, 3) float32.
        batch: What was rendered.

    Returns:
        A scalar, as a share of half the crop's width or height.
    """
    height, width = RECTIFIER.crop_hw
    scale = torch.tensor([2 / width, 2 / height])
    corners = torch.from_numpy(batch.quads) * scale - 1
    return (corners_in_crop(theta) - corners).abs().mean()


def to_input(images: NDArray[np.uint8], rng: np.random.Generator | None = None) -> Tensor:
    """Normalise crops; with a generator, vary their light and contrast as well.

    Args:
        images: (N, H, W, 3) uint8 RGB.
        rng: Source of the variation, None for none.

    Returns:
        (N, 3, H, W) float32, channels last in memory.
    """
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    if rng is None:
        return pixels.sub_(RECTIFIER.mean).div_(RECTIFIER.std)
    count = (len(images), 1, 1, 1)
    gain = rng.uniform(0.6, 1.25, count) * rng.uniform(0.95, 1.05, (len(images), 3, 1, 1))
    shift = rng.uniform(-20, 20, count) - RECTIFIER.mean
    # One multiplication and one addition over all pixels; this is on the hot path.
    return pixels.mul_(_float(gain / RECTIFIER.std)).add_(_float(shift / RECTIFIER.std))


def _float(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(values).float()


@torch.no_grad()
def exact_match(reader: nn.Module, batch: CropBatch) -> dict[int, float]:
    """Share of plates whose greedy text is right, by lines of text."""
    right: dict[int, list[bool]] = {1: [], 2: []}
    for start in range(0, len(batch.images), 100):
        part = batch.part(slice(start, start + 100))
        lines = torch.from_numpy(part.lines)
        logits, _ = reader(to_input(part.images), lines)
        rows = [
            ctc.greedy_decode(ctc.log_softmax(row)) == _text(label)
            for row, label in zip(logits.numpy(), row_labels(part), strict=True)
        ]
        ones = int((part.lines == 1).sum())
        right[1] += rows[:ones]
        right[2] += [a and b for a, b in zip(rows[ones::2], rows[ones + 1 :: 2], strict=True)]
    return {count: float(np.mean(hits)) if hits else 0.0 for count, hits in right.items()}


def _text(label: NDArray[np.int64]) -> str:
    return "".join(RECOGNIZER.alphabet[i] for i in label if i >= 0)
