"""STN: finds the plate inside a crop and resamples it to fill the frame.

Spatial transformer after Jaderberg et al. 2015, "Spatial Transformer Networks",
with one affine transform per crop.
"""

import torch
from torch import Tensor, nn

from plate_models.pixels import resample
from plate_models.spec import RECTIFIER, RectifierSpec


class ConvNormAct(nn.Sequential):
    """Convolution without bias, batch normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class STN(nn.Module):
    """Localisation network, affine grid and bilinear sampler."""

    def __init__(self, spec: RectifierSpec = RECTIFIER) -> None:
        super().__init__()
        self.rectified_hw = spec.rectified_hw
        height, width = (size // 16 for size in spec.crop_hw)
        self.localization = nn.Sequential(
            ConvNormAct(3, 16, stride=2),
            ConvNormAct(16, 32, stride=2),
            ConvNormAct(32, 32),
            ConvNormAct(32, 64, stride=2),
            ConvNormAct(64, 64),
            ConvNormAct(64, 64, stride=2),
            nn.Flatten(),
            nn.Linear(64 * height * width, 64, bias=False),
            # Without this normalisation, a few large early steps of training silence most of these
            # units for good, and the net learns a plate's tilt but not its position.
            nn.BatchNorm1d(64),
            nn.ReLU(inplace=True),
            nn.Linear(64, 6),
        )
        # Initially predict an untilted plate: the crop without its margins.
        margin_h, margin_w = spec.crop_margin_hw
        last = self.localization[-1]
        nn.init.zeros_(last.weight)  # type: ignore[arg-type]
        start = [1 / (1 + margin_w), 0, 0, 0, 1 / (1 + margin_h), 0]
        with torch.no_grad():
            last.bias.copy_(torch.tensor(start))  # type: ignore[operator]

    def locate(self, crops: Tensor) -> Tensor:
        """Predict the plate's position: (N, 3, H, W) crops to (N, 2, 3) theta."""
        theta: Tensor = self.localization(crops)
        return theta.reshape(-1, 2, 3)

    def forward(self, crops: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 3, H, W) normalised crops to (N, 3, h, w) rectified plates and (N, 2, 3) theta.

        Theta maps rectified to crop coordinates, both in [-1, 1] with pixel edges at the ends
        (``align_corners=False``).
        """
        theta = self.locate(crops).float()
        return resample(crops, theta, self.rectified_hw), theta
