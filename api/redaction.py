"""Photos with their plates made unreadable for good; nothing is stored."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from api.answers import Recognition
from api.errors import PHOTO_PROBLEMS, Overloaded
from plate_models.images import ImageError, check_header, decode
from plate_models.spec import Limits

Pixels = NDArray[np.uint8]

_JPEG_QUALITY = 95
# A JPEG's header has 16 bits for a side, of which libjpeg reserves some.
_JPEG_MAX_SIDE = 65_500
# Of the box's height, on every side: detectors cut corners, and letters reach the edge.
_MARGIN = 0.25
# Of a channel's 256 values. With cells as large as several letters, what is left of a
# plate is its colour.
_VALUES = 16

# One at a time, also when clients give up in between: a progressive JPEG of 64 megapixels takes
# up to 800 MB.
_THREADS = ThreadPoolExecutor(1, thread_name_prefix="redaction")


async def redact(
    photo: bytes, recognition: Recognition, limits: Limits, timeout_s: float
) -> tuple[bytes, str]:
    """Blur the plates of a photo off the event loop, few photos at a time.

    Returns the upright photo as a file without any metadata, and its type: image/png for a
    PNG and for what is too long for a JPEG, else image/jpeg. Raises `PhotoProblem`, or `Overloaded`
    if it takes too long.
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
    import cv2  # when the first photo is redacted: most gateways never need it

    header = check_header(photo, limits)
    is_png = header.format == "PNG" or max(header.width, header.height) > _JPEG_MAX_SIDE
    pixels = decode(photo, limits)
    boxes = np.array([plate.box for plate in recognition.plates], np.float32)
    quads = np.array([plate.quad for plate in recognition.plates], np.float32)
    blur_plates(pixels, boxes, quads)
    bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    options = [] if is_png else [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY]
    encoded = cv2.imencode(".png" if is_png else ".jpg", bgr, options)[1]
    return encoded.tobytes(), "image/png" if is_png else "image/jpeg"


def blur_plates(pixels: Pixels, boxes: NDArray[np.float32], quads: NDArray[np.float32]) -> None:
    """Make plates unreadable, in place.

    Each plate's rectangle, margin included, is reduced to cells as high as itself, whose
    mean colours are rounded and then blended into each other. Every cell covers several
    letters, so that different texts leave the same colours behind. Pixels are (H, W, 3); boxes
    (N, 4), x0 y0 x1 y1, and quads (N, 4, 2) are in pixels of the photo.
    """
    import cv2

    # All rectangles are known before the first is blurred: they may overlap.
    for x0, y0, x1, y1 in [_area(*plate, pixels.shape) for plate in zip(boxes, quads, strict=True)]:
        width, height = x1 - x0, y1 - y0
        if width < 1 or height < 1:
            continue
        cells = max(1, min(round(width / height), 4)), max(1, min(round(height / width), 4))
        means = cv2.resize(pixels[y0:y1, x0:x1], cells, interpolation=cv2.INTER_AREA)
        step = 256 // _VALUES
        rounded = (means // step * step + step // 2).astype(np.uint8).reshape(*cells[::-1], 3)
        pixels[y0:y1, x0:x1] = cv2.resize(rounded, (width, height), interpolation=cv2.INTER_LINEAR)


def _area(
    box: NDArray[np.float32], quad: NDArray[np.float32], shape: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """The rectangle around box and quad with a margin, inside the photo."""
    size = box[2:] - box[:2]
    # The corners of a plate that could not be read may be anywhere.
    corners = np.clip(quad, box[:2] - size, box[2:] + size)
    points = np.concatenate([corners, box.reshape(2, 2)])
    margin = max(2.0, _MARGIN * float(size[1]))
    low = np.floor(points.min(axis=0) - margin)
    high = np.ceil(points.max(axis=0) + margin)
    (x0, y0), (x1, y1) = np.clip(np.stack([low, high]), 0, (shape[1], shape[0])).astype(int)
    return int(x0), int(y0), int(x1), int(y1)
