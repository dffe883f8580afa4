"""Photos as files: accept or refuse them, and decode their pixels.

    ImageError
    ├── EmptyImage        no bytes
    ├── UnsupportedType   not an image, or of a type that is not read (AVIF, PDF, …)
    ├── BrokenImage       truncated or damaged
    ├── TooManyBytes      the file is larger than allowed
    └── TooManyPixels     the picture is larger than allowed; refused before it is decoded

The header is checked first, so that a small file with a header of a huge picture costs nothing.
Decoders get only the part of the file that makes its first picture (see `outline.py`). OpenCV
decodes JPEG, WebP and BMP: it gives the same pixels as Pillow in less than half the time. libheif
decodes HEIC. Pillow decodes the others: OpenCV decompresses more rows of a PNG than its header
says, a gigabyte for each megabyte of the file, turns only some rotated TIFFs upright, blends their
transparency into black, and reads no GIF.
"""

import io
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pi_heif
from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from plate_models.images import containers, heic, jpeg, tiff
from plate_models.images.files import ACCEPTED, type_of
from plate_models.images.outline import SIDEWAYS, Defect, NotRead, Outline
from plate_models.spec import LIMITS, Limits

# Pillow's warnings quote the file's content: clients could fill the log, and Python's registry of
# warnings already shown.
warnings.filterwarnings("ignore", module=r"PIL\.")
# Photos are already read in parallel: libheif's own threads would slow down the other photos.
pi_heif.options.DECODE_THREADS = 1

# Pillow's classes are called directly: `Image.open` has a pixel limit of its own, which is global
# and only warns, and it would also try types that are not accepted here.
_OPENERS: dict[str, tuple[Callable[[bytes], Outline], Callable[[io.BytesIO], Any]]] = {
    "JPEG": (jpeg.outline, JpegImagePlugin.JpegImageFile),
    "PNG": (containers.png, PngImagePlugin.PngImageFile),
    "WEBP": (containers.webp, WebPImagePlugin.WebPImageFile),
    "BMP": (containers.bmp, BmpImagePlugin.BmpImageFile),
    "TIFF": (tiff.outline, TiffImagePlugin.TiffImageFile),
    "GIF": (containers.gif, GifImagePlugin.GifImageFile),
    "HEIC": (heic.outline, pi_heif.open_heif),
}
_TYPES = "JPEG, PNG, WebP, HEIC, BMP, TIFF or GIF"  # for messages


class ImageError(ValueError):
    """A photo that can't be read: has a message for the client and a stable slug for its kind."""

    slug: ClassVar[str] = "image-error"

    def __init_subclass__(cls, slug: str) -> None:
        cls.slug = slug


class EmptyImage(ImageError, slug="empty-image"):
    """There are no bytes."""


class UnsupportedType(ImageError, slug="unsupported-type"):
    """Not an image, or an image of a type that is not read."""


class BrokenImage(ImageError, slug="broken-image"):
    """The file is truncated or damaged."""


class TooManyBytes(ImageError, slug="too-many-bytes"):
    """The file is larger than allowed."""


class TooManyPixels(ImageError, slug="too-many-pixels"):
    """The picture is larger than allowed."""


class ImageHeader(NamedTuple):
    """The file's type, the size of the upright photo, and how `decode` will turn it."""

    format: str
    width: int
    height: int
    orientation: int  # by EXIF, 1 to 8; any other value means upright


def check_header(data: bytes, limits: Limits = LIMITS) -> ImageHeader:
    """Accept or refuse a photo by its bytes, without decoding it.

    Raises:
        ImageError: Of any kind; damage behind the header is found only by `decode`.
    """
    return _open(data, limits)[0]


def decode(data: bytes, limits: Limits = LIMITS) -> NDArray[np.uint8]:
    """Decode a photo's bytes to pixels as a viewer shows them: upright, in RGB.

    EXIF orientation is applied. Transparent parts become white, as on a page, so that no text
    is read that a viewer would not show. 16-bit samples are truncated to 8; only the first of
    several pictures is decoded. Colour profiles are not applied.

    Returns:
        (H, W, 3) uint8 RGB in [0, 255], C-contiguous.

    Raises:
        ImageError: As `check_header`; `BrokenImage` also if the pixels can't be decoded.
    """
    # Imported here, because the gateway, which only checks headers, does not have OpenCV.
    from plate_models.images import decoders

    header, outline, file = _open(data, limits)
    width, height = file.size
    try:
        if not outline.ended:
            jpeg.check_last_scan(outline.core)
        if header.format == "HEIC":
            pixels = decoders.with_libheif(file)
        elif header.format in ("JPEG", "WEBP", "BMP"):
            pixels = decoders.with_opencv(outline.core, file.mode)
        else:
            pixels = decoders.with_pillow(file)
    except Exception as error:  # Decoders raise errors of any type on damaged bytes.
        raise BrokenImage(_damaged(header.format)) from error
    if pixels.shape[:2] != (height, width):
        raise BrokenImage(
            f"The file's header says {width}x{height} pixels, "
            f"its picture has {pixels.shape[1]}x{pixels.shape[0]}."
        )
    return np.ascontiguousarray(decoders.turn_upright(pixels, outline.orientation))


def _open(data: bytes, limits: Limits) -> tuple[ImageHeader, Outline, Any]:
    if not data:
        raise EmptyImage("The photo is empty: 0 bytes came.")
    if len(data) > limits.max_bytes:
        raise TooManyBytes(too_many_bytes_message(limits))
    image_type = type_of(data)
    if image_type is None:
        raise UnsupportedType(f"These bytes are not an image. Send a {_TYPES} file.")
    if image_type not in ACCEPTED:
        raise UnsupportedType(
            f"{image_type} files are not read. Convert the photo to JPEG ({_TYPES} are accepted)."
        )
    read_outline, opener = _OPENERS[image_type]
    try:
        outline = read_outline(data)
    except NotRead as error:
        raise UnsupportedType(str(error)) from error
    except Defect as error:
        raise BrokenImage(f"The {image_type} file is truncated or damaged: it {error}.") from error
    width, height = outline.width, outline.height
    if width < 1 or height < 1:
        raise BrokenImage(f"The {image_type} file says {width}x{height} pixels.")
    # Checked before any library parses the file.
    if width * height > limits.max_pixels:
        raise TooManyPixels(
            f"The picture has {width}x{height} pixels; at most "
            f"{limits.max_pixels / 1e6:g} megapixels are read. Scale it down."
        )
    try:
        file = opener(io.BytesIO(outline.core))
        size_wh = file.size
    except Exception as error:  # Parsers raise errors of any type on damaged bytes.
        raise BrokenImage(_damaged(image_type)) from error
    # libheif crops and turns a HEIC, which makes it no larger.
    cut = image_type == "HEIC" and 0 < size_wh[0] * size_wh[1] <= width * height
    if size_wh != (width, height) and not cut:
        raise BrokenImage(_damaged(image_type))
    if file.mode in ("I", "F"):
        raise UnsupportedType("Samples of 32 bits are not read. Convert the picture to JPEG.")
    width, height = size_wh[::-1] if outline.orientation in SIDEWAYS else size_wh
    return ImageHeader(image_type, width, height, outline.orientation), outline, file


def too_many_bytes_message(limits: Limits) -> str:
    """The message of `TooManyBytes`, for all places that count bytes."""
    return f"The photo is larger than {limits.max_bytes / 2**20:g} MB. Scale it down."


def _damaged(image_type: str) -> str:
    return f"The {image_type} file is damaged or truncated: it can't be decoded."
