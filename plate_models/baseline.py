"""The published recognizer, run the way its article runs it, to compare with."""

from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from plate_models import ctc

ALPHABET = "0123456789ABEKMHOPCTYX"
_SIZE_WH = (94, 24)


class Baseline:
    """TorchScript STN and LPRNet, one plate at a time, greedy decoding.

    Attributes:
        crops: Names of the ways a plate is cut out: the labelled box as it is, and with
            a fifth of its height added above and below, as the article does.
    """

    crops = ("labelled box", "as the article crops it")

    def __init__(self, folder: Path) -> None:
        """Load ``stn.pt`` and ``lprnet.pt``.

        Raises:
            FileNotFoundError: One of them is not in the folder.
        """
        for name in ("stn.pt", "lprnet.pt"):
            if not (folder / name).is_file():
                raise FileNotFoundError(f"{folder / name}: the published recognizer is not there")
        self._stn, self._lprnet = (_load(folder / name) for name in ("stn.pt", "lprnet.pt"))

    def read(
        self, image: NDArray[np.uint8], box: tuple[float, float, float, float]
    ) -> dict[str, str]:
        """Read one labelled plate.

        Args:
            image: (H, W, 3) uint8 RGB.
            box: x0, y0, x1, y1 in its pixels.

        Returns:
            The text for each way of cropping in ``crops``.
        """
        return {
            name: self._read_crop(_cut(image, box, share))
            for name, share in zip(self.crops, (0.0, 0.2), strict=True)
        }

    @torch.inference_mode()
    def _read_crop(self, crop: NDArray[np.uint8]) -> str:
        resized = cv2.resize(crop, _SIZE_WH, interpolation=cv2.INTER_CUBIC)
        pixels = torch.from_numpy(resized).permute(2, 0, 1)[None].float()
        logits = self._lprnet(self._stn((pixels - 127.5) * 0.0078125))
        return ctc.greedy_decode(ctc.log_softmax(logits[0].numpy()), ALPHABET)


def _load(path: Path) -> torch.jit.ScriptModule:
    # Saved on a GPU: without map_location it asks for one.
    net: torch.jit.ScriptModule = torch.jit.load(str(path), map_location="cpu")
    return net.eval()


def _cut(
    image: NDArray[np.uint8], box: tuple[float, float, float, float], share: float
) -> NDArray[np.uint8]:
    x0, y0, x1, y1 = box
    extra = (y1 - y0) * share
    top, bottom = max(0, int(y0 - extra)), int(y1 + extra)
    return image[top:bottom, max(0, int(x0)) : int(x1)]
