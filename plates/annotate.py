"""Draws plates onto photos, and cuts plates out of them."""

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
_JPEG_QUALITY, _JPEG_MAX_SIDE = 92, 65_500
# OpenCV takes corners as integers with this many fractional bits.
_SHIFT = 4


def annotate(image: NDArray[np.uint8], plates: Iterable[Plate | SeenPlate]) -> NDArray[np.uint8]:
    """Draw each plate's outline with its text above, on a copy of an (H, W, 3) RGB image."""
    drawn = image.copy()
    height, width = image.shape[:2]
    line = max(1, round(min(height, width) / 480))
    size = max(0.45, min(height, width) / 1100)
    stroke, pad = max(1, round(1.4 * size)), 2 + 2 * line
    for plate in plates:
        colour = READABLE_RGB if plate.text else UNREADABLE_RGB
        corners = np.round(np.asarray(plate.quad, np.float64) * 2**_SHIFT).astype(np.int32)
        cv2.polylines(drawn, [corners], True, colour, line, cv2.LINE_AA, _SHIFT)
        # The text is on a filled strip above the plate, or below it if there is no room above.
        text = plate.text or "?"
        (text_width, text_height), below = cv2.getTextSize(text, _FONT, size, stroke)
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
    return drawn


def straighten(image: NDArray[np.uint8], quad: Sequence[Sequence[float]]) -> NDArray[np.uint8]:
    """Cut a plate out of an (H, W, 3) RGB photo at full resolution, upright and without shear.

    The quad is a parallelogram, as the rectifier's: TL, TR, BR, BL in photo pixels. The result is
    (h, w, 3) uint8 RGB with the plate's aspect ratio, at least one pixel per side.
    """
    corners = np.asarray(quad, np.float32)
    # OpenCV can't warp images of 32,767 pixels or more per side: crop to the plate's surroundings.
    area = np.stack([corners.min(axis=0) - 2, corners.max(axis=0) + 2])
    (x0, y0), (x1, y1) = area.clip(0, np.array(image.shape[1::-1]) - 1).astype(int)
    image = image[y0 : y1 + 1, x0 : x1 + 1]
    top_left, top_right, _, bottom_left = corners - np.array([x0, y0], np.float32)
    sides = top_right - top_left, bottom_left - top_left
    width, height = (max(1, round(float(np.hypot(*side)))) for side in sides)
    # Maps from the result to the photo, between the centres of pixels (hence the 0.5).
    flat = np.array([(0, 0), (width, 0), (0, height)], np.float32) - 0.5
    matrix = cv2.getAffineTransform(flat, np.stack((top_left, top_right, bottom_left)) - 0.5)
    flags, border = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, cv2.BORDER_REPLICATE
    cut = cv2.warpAffine(image, matrix, (width, height), flags=flags, borderMode=border)
    return np.asarray(cut, np.uint8)


def write_jpeg(path: Path, image: NDArray[np.uint8]) -> None:
    """Write an (H, W, 3) uint8 RGB picture, scaled down if it is too large for a JPEG."""
    if (shrink := max(image.shape[:2]) / _JPEG_MAX_SIDE) > 1:
        size = [max(1, int(side / shrink)) for side in image.shape[1::-1]]
        image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    encoded = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])[1]
    path.write_bytes(encoded.tobytes())
