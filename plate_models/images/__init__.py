"""Photos as files: what is accepted, what is refused, and the pixels of the rest.

    ImageError
    ├── EmptyImage        no bytes
    ├── UnsupportedType   not an image, or of a type that is not read (AVIF, PDF, …)
    ├── BrokenImage       truncated or damaged
    ├── TooManyBytes      the file is larger than allowed
    └── TooManyPixels     the picture is larger than allowed; refused before it is decoded

The header is read first, so that a small file which claims to be a huge picture costs
nothing; and decoders get only the part of the file that makes its first picture (see
`outline.py`). OpenCV decodes JPEG, PNG, WebP and BMP: it takes less than half of Pillow's time
and gives the same pixels. Pillow decodes TIFF and GIF: OpenCV turns only some rotated
TIFFs upright and blends their transparency into black, and reads no GIF. It also decodes
PNGs that declare one colour transparent, of which OpenCV knows only some, and those of 16
bits with transparency, for which OpenCV needs twice the memory. libheif decodes HEIC.
"""

import io
import warnings
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from plate_models.images import containers, heic, jpeg, png
from plate_models.images.files import ACCEPTED, type_of
from plate_models.images.outline import Defect, NotRead, Outline
from plate_models.spec import LIMITS, Limits

# Pillow's warnings quote what the file says: clients would fill the log, and Python's
# memory of which warnings were shown.
warnings.filterwarnings("ignore", module=r"PIL\.")

# The classes are called directly because `Image.open` has its own pixel limit, a global
# one that warns, and would also try types that are not accepted here.
_OPENERS: dict[str, tuple[Callable[[bytes], Outline], type[ImageFile.ImageFile] | None]] = {
    "JPEG": (jpeg.outline, JpegImagePlugin.JpegImageFile),
    "PNG": (png.outline, PngImagePlugin.PngImageFile),
    "WEBP": (containers.webp, WebPImagePlugin.WebPImageFile),
    "BMP": (containers.bmp, BmpImagePlugin.BmpImageFile),
    "TIFF": (containers.tiff, TiffImagePlugin.TiffImageFile),
    "GIF": (containers.gif, GifImagePlugin.GifImageFile),
    "HEIC": (heic.outline, None),  # its core is written anew: there is nothing to try
}
_DECODED_BY_PILLOW = ("TIFF", "GIF")
_DEEP_MODES = ("I", "F")
_SIDEWAYS = (5, 6, 7, 8)


class ImageError(ValueError):
    """A photo that can't be read: a message for the client, the kind as a stable word."""

    slug: ClassVar[str] = "image-error"


class EmptyImage(ImageError):
    """There are no bytes."""

    slug = "empty-image"


class UnsupportedType(ImageError):
    """Not an image, or an image of a type that is not read."""

    slug = "unsupported-type"


class BrokenImage(ImageError):
    """The file is truncated or damaged."""

    slug = "broken-image"


class TooManyBytes(ImageError):
    """The file is larger than allowed."""

    slug = "too-many-bytes"


class TooManyPixels(ImageError):
    """The picture is larger than allowed."""

    slug = "too-many-pixels"


class ImageHeader(NamedTuple):
    """What a file says of its picture: its type, and the size of the upright photo."""

    format: str
    width: int
    height: int


def check_header(data: bytes, limits: Limits = LIMITS) -> ImageHeader:
    """Accept or refuse a photo by its bytes, without decoding it.

    Raises:
        EmptyImage: There are no bytes.
        TooManyBytes: The file is larger than `limits` allows.
        UnsupportedType: Not one of `files.ACCEPTED`; the message says what to do.
        BrokenImage: The header is damaged, or a PNG or WebP has lost its end.
        TooManyPixels: The picture is larger than `limits` allows.
    """
    return _open(data, limits)[0]


def decode(data: bytes, limits: Limits = LIMITS) -> NDArray[np.uint8]:
    """Decode a photo, given by its bytes, as a viewer shows it: upright, in RGB.

    EXIF orientation is applied. Transparent parts become white, as on a page, so that
    nothing is read which a viewer would not show. 16-bit samples are cut to 8; of a file
    with several pictures the first one counts. Colour profiles are not applied.

    Returns:
        (H, W, 3) uint8 RGB in [0, 255], C-contiguous.

    Raises:
        ImageError: As `check_header`; `BrokenImage` also if the pixels can't be decoded.
    """
    # Imported here: the gateway, which only checks headers, needs no OpenCV.
    from plate_models.images.decoders import turn_upright, with_libheif, with_opencv, with_pillow

    header, outline, file = _open(data, limits)
    try:
        if header.format == "PNG":
            png.check_amount(outline.core)
        if not outline.ended:
            _check_last_scan(outline.core)
        if file is None:
            pixels = with_libheif(outline.core)
        elif _by_pillow(header.format, outline, file):
            pixels = with_pillow(file)
        else:
            pixels = with_opencv(outline.core, file)
    except Exception as error:  # Decoders fed with damaged bytes raise all kinds.
        raise BrokenImage(_damaged(header.format)) from error
    if pixels.shape[:2] != (outline.height, outline.width):
        raise BrokenImage(
            f"The file's header says {outline.width}x{outline.height} pixels, "
            f"its picture has {pixels.shape[1]}x{pixels.shape[0]}."
        )
    if file is not None:
        file.close()  # Pillow's copy of the pixels would stay while they are turned.
    return np.ascontiguousarray(turn_upright(pixels, outline.orientation))


def _check_last_scan(core: bytes) -> None:
    """Raise Defect if a JPEG's last scan is cut off: further data change its picture then."""
    # Pillow, because OpenCV's decoder writes a line to stderr for each such file.
    picture, with_more = (
        np.asarray(JpegImagePlugin.JpegImageFile(io.BytesIO(data)))
        for data in (core, jpeg.with_more_data(core))
    )
    if not np.array_equal(picture, with_more):
        raise Defect("ends within its last scan")


def _by_pillow(image_type: str, outline: Outline, file: ImageFile.ImageFile) -> bool:
    """Whether Pillow decodes this file; see the top of this module."""
    deep = file.mode == "RGBA" and outline.depth > 8
    return image_type in _DECODED_BY_PILLOW or "transparency" in file.info or deep


def _open(data: bytes, limits: Limits) -> tuple[ImageHeader, Outline, ImageFile.ImageFile | None]:
    """Read the header; raise what `check_header` documents."""
    if not data:
        raise EmptyImage("The photo is empty: 0 bytes came.")
    if len(data) > limits.max_bytes:
        raise TooManyBytes(too_many_bytes_message(limits))
    image_type = type_of(data)
    if image_type not in ACCEPTED:
        raise UnsupportedType(_unsupported(image_type))
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
    # Before any library sees the file.
    if width * height > limits.max_pixels:
        raise TooManyPixels(
            f"The picture has {width}x{height} pixels; at most "
            f"{limits.max_pixels / 1e6:g} megapixels are read. Scale it down."
        )
    file = None
    if opener:
        try:
            file = opener(io.BytesIO(outline.core))
        except Exception as error:  # Parsers fed with damaged bytes raise all kinds.
            raise BrokenImage(_damaged(image_type)) from error
        if file.size != (width, height):
            raise BrokenImage(_damaged(image_type))
        if file.mode in _DEEP_MODES:
            raise UnsupportedType("Samples of 32 bits are not read. Convert the picture to JPEG.")
    if outline.orientation in _SIDEWAYS:
        width, height = height, width
    return ImageHeader(image_type, width, height), outline, file


def too_many_bytes_message(limits: Limits) -> str:
    """Say how large a file may be, in one wording wherever bytes are counted."""
    return f"The photo is larger than {limits.max_bytes / 2**20:g} MB. Scale it down."


def _unsupported(image_type: str | None) -> str:
    accepted = "JPEG, PNG, WebP, HEIC, BMP, TIFF or GIF"
    if image_type is None:
        return f"These bytes are not an image. Send a {accepted} file."
    return f"{image_type} files are not read. Convert the photo to JPEG ({accepted} are accepted)."


def _damaged(image_type: str) -> str:
    return f"The {image_type} file is damaged or truncated: it can't be decoded."
