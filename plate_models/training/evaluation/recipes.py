"""How photos are made worse, to measure what a reader takes: each recipe is a pure function."""

from collections.abc import Callable

import cv2
import numpy as np

from plate_models.training.imaging import Floats, Image, apply_homography, box_corners, compress
from plate_models.training.labels import Box

# From a photo, (H, W, 3) uint8 RGB, to a worse one, and where its pixels went: (3, 3).
Recipe = Callable[[Image], tuple[Image, Floats]]


def _in_place(change: Callable[[Image], Image]) -> Recipe:
    """A recipe that leaves everything where it is."""
    return lambda image: (change(image), np.eye(3))


def _channel(image: Image, channel: int) -> Image:
    return np.repeat(image[..., channel : channel + 1], 3, axis=2)


def _grey(image: Image) -> Image:
    return np.asarray(cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB))


def _halved(image: Image) -> tuple[Image, Floats]:
    height, width = (max(1, side // 2) for side in image.shape[:2])
    small = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    return np.asarray(small), np.diag((width / image.shape[1], height / image.shape[0], 1.0))


def _turned(degrees: float) -> Recipe:
    """Turn counter-clockwise about the middle, onto black, as large as it takes to keep all."""

    def turn(image: Image) -> tuple[Image, Floats]:
        height, width = image.shape[:2]
        view = np.vstack((cv2.getRotationMatrix2D((0, 0), degrees, 1), (0, 0, 1)))
        corners = apply_homography(view, box_corners(width, height))
        view[:2, 2] -= corners.min(axis=0)
        size = np.ceil(np.ptp(corners, axis=0)).astype(int).tolist()
        return np.asarray(cv2.warpAffine(image, view[:2], size, flags=cv2.INTER_CUBIC)), view

    return turn


_MOTION = np.full((1, 9), 1 / 9, np.float32)
RECIPES: dict[str, Recipe] = {
    "grey": _in_place(_grey),
    "JPEG quality 20": _in_place(lambda image: compress(image, 20)),
    "half size": _halved,
    "turned by 15 degrees": _turned(15),
    "turned by -15 degrees": _turned(-15),
    "turned by 20 degrees": _turned(20),
    "turned by -20 degrees": _turned(-20),
    "brightness x 0.25": _in_place(lambda image: np.rint(image * 0.25).astype(np.uint8)),
    "blur sigma 1.5": _in_place(lambda image: np.asarray(cv2.GaussianBlur(image, (0, 0), 1.5))),
    "motion blur 9 px": _in_place(lambda image: np.asarray(cv2.filter2D(image, -1, _MOTION))),
    "red alone": _in_place(lambda image: _channel(image, 0)),
    "green alone": _in_place(lambda image: _channel(image, 1)),
    "blue alone": _in_place(lambda image: _channel(image, 2)),
}


def move_box(box: Box, view: Floats) -> Box:
    """The box around a box whose pixels went where ``view``, (3, 3), sends them."""
    x0, y0, x1, y1 = box
    moved = apply_homography(view, box_corners(x1 - x0, y1 - y0) + np.array((x0, y0)))
    low, high = moved.min(axis=0).tolist(), moved.max(axis=0).tolist()
    return low[0], low[1], high[0], high[1]
