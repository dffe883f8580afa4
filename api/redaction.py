"""Blurs the plates in photos irreversibly; stores nothing."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from api.answers import Recognition
from api.errors import PHOTO_PROBLEMS, Overloaded
from plate_models.images import ImageError, decode
from plate_models.images.files import type_of
from plate_models.spec import Limits

Pixels = NDArray[np.uint8]

_JPEG_QUALITY = 95
# A JPEG's header has 16 bits for each side; libjpeg reserves the largest values.
_JPEG_MAX_SIDE = 65_500
# Margin on every side, as a share of the box's height: detectors cut off corners, and letters may
# reach the edge.
_MARGIN = 0.25
# Values per channel that remain of 256. With cells as large as several letters, only the plate's
# colour remains.
_VALUES = 16

# One photo at a time, even if clients disconnect meanwhile: a progressive JPEG of 64 megapixels
# takes up to 800 MB.
_THREADS = ThreadPoolExecutor(1, thread_name_prefix="redaction")


async def redact(
    photo: bytes, recognition: Recognition, limits: Limits, timeout_s: float
) -> tuple[bytes, str]:
    """Blur the plates of a photo off the event loop, one photo at a time.

    Returns the upright photo as a file without metadata, and its type: image/png for a PNG and for
    photos too large for a JPEG, else image/jpeg. Raises `PhotoProblem`, or `Overloaded` after
    `timeout_s`.
    """
    work = asyncio.get_running_loop().run_in_executor(_THREADS, _redact, photo, recognition, limits)
    try:
        return await asyncio.wait_for(work, timeout_s)
    except TimeoutError as error:
        detail = "The plates were not blurred in time. Try again shortly."
        raise Overloaded(detail, reason="redaction") from error
    except ImageError as error:
        raise PHOTO_PROBLEMS[error.slug](str(error)) from error


def _redact(photo: bytes, recognition: Recognition, limits: Limits) -> tuple[bytes, str]:
    import cv2  # here, as most gateways never need it

    pixels = decode(photo, limits)
    is_png = type_of(photo) == "PNG" or max(pixels.shape) > _JPEG_MAX_SIDE
    for plate in recognition.plates:
        blur_plate(pixels, np.array(plate.box, np.float32), np.array(plate.quad, np.float32))
    bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    options = [] if is_png else [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY]
    encoded = cv2.imencode(".png" if is_png else ".jpg", bgr, options)[1]
    return encoded.tobytes(), "image/png" if is_png else "image/jpeg"


def blur_plate(pixels: Pixels, box: NDArray[np.float32], quad: NDArray[np.float32]) -> None:
    """Make a plate unreadable, in place.

    Reduces the plate's rectangle, margin included, to at most four cells as high as the plate,
    rounds their mean colours, and blends the cells into each other. Each cell covers several
    letters, so different texts leave the same colours. `pixels` are (H, W, 3); `box` (4,),
    x0 y0 x1 y1, and `quad` (4, 2) are in pixels of the photo.
    """
    import cv2

    area = _area(pixels, box, quad)
    if not area.size:
        return
    height, width = area.shape[:2]
    cells = max(1, min(round(width / height), 4)), max(1, min(round(height / width), 4))
    means = cv2.resize(area, cells, interpolation=cv2.INTER_AREA)
    step = 256 // _VALUES
    rounded = (means // step * step + step // 2).astype(np.uint8).reshape(*cells[::-1], 3)
    area[:] = cv2.resize(rounded, (width, height), interpolation=cv2.INTER_LINEAR)


def _area(pixels: Pixels, box: NDArray[np.float32], quad: NDArray[np.float32]) -> Pixels:
    """A view of the photo's rectangle around box and quad with a margin."""
    size = box[2:] - box[:2]
    # The corners of an unreadable plate may be anywhere.
    corners = np.clip(quad, box[:2] - size, box[2:] + size)
    points = np.concatenate([corners, box.reshape(2, 2)])
    margin = max(2.0, _MARGIN * float(size[1]))
    low = np.floor(points.min(axis=0) - margin)
    high = np.ceil(points.max(axis=0) + margin)
    (x0, y0), (x1, y1) = np.clip(np.stack([low, high]), 0, pixels.shape[1::-1]).astype(int)
    return pixels[y0:y1, x0:x1]
