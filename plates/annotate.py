"""Draws plates onto a photo, for people to see."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from api.answers import Plate
from plates.cameras.frames import SeenPlate

READABLE_RGB = (40, 220, 90)
UNREADABLE_RGB = (255, 170, 30)
_FONT = cv2.FONT_HERSHEY_DUPLEX
_JPEG_QUALITY = 92
# OpenCV takes corners as integers with that many bits of fraction.
_SHIFT = 4


def annotate(image: NDArray[np.uint8], plates: Iterable[Plate | SeenPlate]) -> NDArray[np.uint8]:
    """Draw each plate's outline with its text above, on a copy of an (H, W, 3) RGB image."""
    drawn = image.copy()
    line = max(1, round(max(image.shape[:2]) / 640))
    for plate in plates:
        colour = READABLE_RGB if plate.text else UNREADABLE_RGB
        corners = np.round(np.asarray(plate.quad, np.float64) * 2**_SHIFT).astype(np.int32)
        cv2.polylines(drawn, [corners], True, colour, line, cv2.LINE_AA, _SHIFT)
        _label(drawn, plate, colour, line)
    return drawn


def _label(
    drawn: NDArray[np.uint8], plate: Plate | SeenPlate, colour: tuple[int, int, int], line: int
) -> None:
    """Write the text on a filled strip above the plate, or below where there is no room."""
    text = plate.text or "?"
    height, width = drawn.shape[:2]
    size = max(0.45, min(height, width) / 1100)
    stroke = max(1, round(1.4 * size))
    (text_width, text_height), below = cv2.getTextSize(text, _FONT, size, stroke)
    pad = 2 + 2 * line
    xs, ys = [x for x, _ in plate.quad], [y for _, y in plate.quad]
    strip = text_height + below + pad
    left = round(min(max(0, min(xs)), max(0, width - text_width - 2 * pad)))
    top = round(min(ys)) - line - strip
    if top < 0:
        top = round(max(ys)) + 2 * line
    right = left + text_width + 2 * pad
    cv2.rectangle(drawn, (left, top), (right, top + strip), colour, cv2.FILLED)
    place = (left + pad, top + strip - below)
    cv2.putText(drawn, text, place, _FONT, size, (0, 0, 0), stroke, cv2.LINE_AA)


def straighten(image: NDArray[np.uint8], quad: Sequence[Sequence[float]]) -> NDArray[np.uint8]:
    """Cut a plate out at the photo's own resolution, upright and without its slant.

    The quad is a parallelogram, as the rectifier gives it: TL, TR, BR, BL in photo pixels. The
    result is (h, w, 3) uint8 RGB in the plate's own proportions, at least one pixel a side.
    """
    top_left, top_right, _, bottom_left = np.asarray(quad, np.float32)
    sides = top_right - top_left, bottom_left - top_left
    width, height = (max(1, round(float(np.hypot(*side)))) for side in sides)
    # Between centres of pixels, from the cut-out's to the photo's.
    corners = np.array([(0, 0), (width, 0), (0, height)], np.float32) - 0.5
    matrix = cv2.getAffineTransform(corners, np.stack((top_left, top_right, bottom_left)) - 0.5)
    flags, border = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, cv2.BORDER_REPLICATE
    cut = cv2.warpAffine(image, matrix, (width, height), flags=flags, borderMode=border)
    return np.asarray(cut, np.uint8)


def write_jpeg(path: Path, image: NDArray[np.uint8]) -> None:
    """Write an (H, W, 3) uint8 RGB picture; raise OSError if that is not possible."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    if not done:
        raise OSError(f"{path}: the picture can't be encoded as JPEG")
    path.write_bytes(data.tobytes())
