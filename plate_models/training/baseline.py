"""The published pipeline, run the way its article runs it, to compare with.

Its recognizer is the published one. Its detector's weights are not to be had: its shape is
rebuilt from our own YOLOv5, for what it costs, not for what it finds.
"""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from plate_models.detection import letterbox, select_boxes
from plate_models.nets.yolov5 import YOLOv5, YOLOv5Graph
from plate_models.recognition import ctc
from plate_models.spec import DETECTOR

ALPHABET = "0123456789ABEKMHOPCTYX"
_SIZE_WH = (94, 24)
_PHOTO_WH = (1920, 1080)
# 1280 pixels on the long side, the other one rounded up to the coarsest stride.
_CANVAS_HW = (736, 1280)
# As the article crops: a fifth of the box's height more, above and below.
_ARTICLE_SHARE = 0.2

Box = tuple[float, float, float, float]
Pixels = NDArray[np.uint8]


class Baseline:
    """TorchScript STN and LPRNet, one plate at a time, greedy decoding.

    A plate is cut out in two ways: the labelled box as it is, and with a share of its height
    added above and below, as the article does.
    """

    crops: ClassVar = {"labelled box": 0.0, "as the article crops it": _ARTICLE_SHARE}

    def __init__(self, folder: Path) -> None:
        """Load ``stn.pt`` and ``lprnet.pt``."""
        self._stn, self._lprnet = (_load(folder / name) for name in ("stn.pt", "lprnet.pt"))

    def read(self, image: Pixels, box: Box) -> dict[str, str]:
        """Read one labelled plate: its text for each way of cropping in ``crops``."""
        return {name: self.read_crop(image, box, share) for name, share in self.crops.items()}

    @torch.inference_mode()
    def read_crop(self, image: Pixels, box: Box, share: float = _ARTICLE_SHARE) -> str:
        """Read one plate, cut out of (H, W, 3) uint8 with a share of the box's height more."""
        x0, y0, x1, y1 = box
        extra = (y1 - y0) * share
        crop = image[max(0, int(y0 - extra)) : int(y1 + extra), max(0, int(x0)) : int(x1)]
        resized = cv2.resize(crop, _SIZE_WH, interpolation=cv2.INTER_CUBIC)
        pixels = torch.from_numpy(resized).permute(2, 0, 1)[None].float()
        logits = self._lprnet(self._stn((pixels - 127.5) * 0.0078125))
        return ctc.greedy_decode(ctc.log_softmax(logits[0].numpy()), ALPHABET)


class PublishedShape:
    """What the published pipeline computes for a photo, in eager float32.

    Squeeze the photo to 1920×1080, run YOLOv5s at 1280, then read one crop at a time. The
    detector's weights are random, so it finds nothing: the boxes to read are given.
    """

    def __init__(self, recognizer: Baseline) -> None:
        spec = replace(DETECTOR, classes=("plate",), width_multiple=0.5, depth_multiple=0.33)
        self._spec = spec
        self._detect = YOLOv5Graph(YOLOv5(spec), spec).eval().requires_grad_(False)
        self._recognizer = recognizer

    @torch.inference_mode()
    def read(self, image: Pixels, boxes: Iterable[Box]) -> list[str]:
        """Do all the work of a photo; returns one text per box."""
        squeezed = cv2.resize(image, _PHOTO_WH, interpolation=cv2.INTER_LINEAR)
        pixels = np.asarray(squeezed, np.uint8)
        canvas, _ = letterbox(torch.from_numpy(pixels), _CANVAS_HW)
        select_boxes(self._detect(canvas[None])[0], self._spec)
        scale = np.tile(np.divide(_PHOTO_WH, image.shape[1::-1]), 2)
        return [self._recognizer.read_crop(pixels, tuple(scale * box)) for box in boxes]


def _load(path: Path) -> torch.jit.ScriptModule:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the published recognizer is not there")
    with warnings.catch_warnings():
        # TorchScript is deprecated, but it is what was published.
        warnings.simplefilter("ignore", DeprecationWarning)
        # Saved on a GPU: without map_location it asks for one.
        net: torch.jit.ScriptModule = torch.jit.load(str(path), map_location="cpu")
    return net.eval()
