"""The published pipeline's architecture, to measure its speed, not its accuracy.

The recognizer is the published one. The weights of the published detector aren't available: the
project's own YOLOv5 with random weights replaces it.
"""

from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from plate_models.detection import letterbox, select_boxes
from plate_models.nets.yolov5 import YOLOv5, YOLOv5Graph
from plate_models.recognition import ctc
from plate_models.spec import DetectorSpec

_ALPHABET = "0123456789ABEKMHOPCTYX"
_PLATE_WH, _PHOTO_WH = (94, 24), (1920, 1080)
# 1280 pixels on the long side; the short side is rounded up to a multiple of the largest stride.
_CANVAS_HW = (736, 1280)
# Margin of crops above and below, as a share of the box's height, as in the published article.
_MORE = 0.2

Pixels = NDArray[np.uint8]


class PublishedShape:
    """The computation of the published pipeline, in eager float32.

    It resizes the photo to 1920x1080 without keeping the aspect ratio, runs YOLOv5s at 1280, then
    reads one crop at a time: TorchScript STN and LPRNet, greedy decoding.
    """

    def __init__(self, folder: Path) -> None:
        """Load ``stn.pt`` and ``lprnet.pt``."""
        spec = DetectorSpec(classes=("plate",), width_multiple=0.5)
        self._spec = spec
        self._detect = YOLOv5Graph(YOLOv5(spec), spec).eval().requires_grad_(False)
        # The files were saved on a GPU: loading without map_location requires a GPU.
        nets = [torch.jit.load(folder / f"{n}.pt", "cpu").eval() for n in ("stn", "lprnet")]
        self._stn, self._lprnet = nets

    @torch.inference_mode()
    def read(self, image: Pixels, boxes: Iterable[tuple[float, float, float, float]]) -> list[str]:
        """Process a photo, (H, W, 3) uint8; returns the text of each given box, in photo pixels."""
        pixels = np.asarray(cv2.resize(image, _PHOTO_WH, interpolation=cv2.INTER_LINEAR), np.uint8)
        canvas = torch.from_numpy(letterbox(pixels, _CANVAS_HW)[0])
        select_boxes(self._detect(canvas[None])[0].numpy(), self._spec)
        scale = np.tile(np.divide(_PHOTO_WH, image.shape[1::-1]), 2)
        return [self._read_plate(pixels, *(scale * box).tolist()) for box in boxes]

    def _read_plate(self, image: Pixels, x0: float, y0: float, x1: float, y1: float) -> str:
        more = (y1 - y0) * _MORE
        crop = image[max(0, int(y0 - more)) : int(y1 + more), max(0, int(x0)) : int(x1)]
        resized = cv2.resize(crop, _PLATE_WH, interpolation=cv2.INTER_CUBIC)
        plate = torch.from_numpy(resized).permute(2, 0, 1)[None].float()
        logits = self._lprnet(self._stn((plate - 127.5) * 0.0078125))
        return ctc.greedy_decode(ctc.log_softmax(logits[0].numpy()), _ALPHABET)
