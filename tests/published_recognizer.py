"""Stand-ins for the published recognizer, which is not part of the project."""

import warnings
from pathlib import Path

import torch


class Reader(torch.nn.Module):
    """An LPRNet that reads "0" whatever the plate."""

    def forward(self, plates: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(plates.shape[0], 23, 18)
        logits[:, 0] = 1
        return logits


def save_stand_ins(folder: Path) -> Path:
    """Write stn.pt and lprnet.pt as `baseline.Baseline` wants them."""
    example = torch.zeros(1, 3, 24, 94)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # The published ones are TorchScript.
        torch.jit.trace(torch.nn.Identity(), example).save(folder / "stn.pt")
        torch.jit.trace(Reader(), example).save(folder / "lprnet.pt")
    return folder
