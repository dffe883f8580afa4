"""Pictures through homographies, motion blur and codecs: the tools that both renderers share.

Places are counted in pixels from the corner of the first one, not from its centre.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import av
import cv2
import matplotlib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import ImageFont

Image = NDArray[np.uint8]
Mask = NDArray[np.uint8]  # (H, W), coverage up to 255
Field = NDArray[np.float32]
Floats = NDArray[np.float64]
Picture = TypeVar("Picture", Image, Field)

# Kernels are drawn so many times larger, that their slopes and ends are smooth.
_FINER = 8
_FPS = 25
DECODERS = {"libx264": "h264", "libx265": "hevc"}


def apply_homography(homography: Floats, points: ArrayLike) -> Floats:
    """Map (N, 2) points by a (3, 3) matrix; returns (N, 2) float64."""
    mapped = cv2.perspectiveTransform(np.asarray(points, np.float64)[None], homography)
    return np.asarray(mapped[0], np.float64)


def shift_by(x: float, y: float) -> Floats:
    """(3, 3) homography that moves by so many pixels."""
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1.0]])


def box_corners(width: float, height: float) -> Floats:
    """(4, 2) corners TL, TR, BR, BL of a picture of that size."""
    return np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64)


def warp(
    image: Picture, view: Floats, size_wh: Sequence[int], border: int = cv2.BORDER_REPLICATE
) -> Picture:
    """See a picture through a homography; `cv2.warpPerspective` counts from pixels' centres."""
    matrix = shift_by(-0.5, -0.5) @ view @ shift_by(0.5, 0.5)
    warped = cv2.warpPerspective(image, matrix, tuple(size_wh), borderMode=border)
    return np.asarray(warped, image.dtype)


def see(layers: Picture, view: Floats, size_wh: Sequence[int], fold: int = 2) -> Picture:
    """See (H, W, 4) colours times coverage, and coverage, through a (3, 3) homography.

    Each pixel is the mean of ``fold`` x ``fold`` samples: enough if no sample skips more than a
    pixel. To lay the result over a picture, take away the covered share of that, add the colours.
    """
    fine_wh = size_wh[0] * fold, size_wh[1] * fold
    fine = warp(layers, np.diag((fold, fold, 1.0)) @ view, fine_wh, cv2.BORDER_CONSTANT)
    return np.asarray(cv2.resize(fine, tuple(size_wh), interpolation=cv2.INTER_AREA), layers.dtype)


def lay_over(picture: Picture, cover: Field | Mask, colour: ArrayLike) -> None:
    """Mix a colour into a picture, in place; the cover is a share, or a mask up to 255."""
    share = cover if cover.dtype == np.float32 else cover.astype(np.float32) / 255
    picture[:] = picture + share[..., None] * (np.asarray(colour, np.float32) - picture)


def motion_kernel(x: float, y: float) -> Field:
    """What a motion by (x, y) pixels makes of a point, for `cv2.filter2D`; sums up to 1."""
    side = 2 * int(np.ceil(max(abs(x), abs(y)) / 2)) + 3
    fine = np.zeros((side * _FINER, side * _FINER), np.float32)
    middle, half = (side * _FINER - 1) / 2, np.array([x, y]) * _FINER / 2
    ends = [np.rint((middle + sign * half) * 16).astype(int).tolist() for sign in (-1, 1)]
    cv2.line(fine, ends[0], ends[1], (1.0,), _FINER - 1, cv2.LINE_8, 4)
    kernel = cv2.resize(fine, (side, side), interpolation=cv2.INTER_AREA)
    return np.asarray(kernel / kernel.sum(), np.float32)


def encode_jpeg(image: Image, quality: int, *options: int) -> NDArray[np.uint8]:
    """Bytes of a JPEG file of a (H, W, 3) RGB picture; more options as `cv2.imencode` has them."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality, *options])
    return np.asarray(data, np.uint8)


def compress(image: Image, quality: int) -> Image:
    """Store a (H, W, 3) RGB picture as JPEG, and read it again."""
    return np.asarray(cv2.imdecode(encode_jpeg(image, quality), cv2.IMREAD_COLOR_RGB), np.uint8)


def through_codec(frames: Sequence[Image], codec: str, **options: str) -> list[Image]:
    """Encode (H, W, 3) uint8 RGB pictures of one size with even sides, and decode them again.

    The codec is "libx264" or "libx265", options are that encoder's, such as crf="30" or b="500k".
    """
    return list(decode(encode(frames, codec, _FPS, **options), DECODERS[codec]))


def encode(frames: Iterable[Image], codec: str, fps: int, **options: str) -> list[bytes]:
    """Make a film's packets, in the order of decoding; arguments as for `through_codec`."""
    # The same frames make the same bytes: in one thread, without libx264's macroblock trees.
    steady = {
        "libx264": {"x264-params": "mbtree=0"},
        "libx265": {"x265-params": "log-level=none:pools=1:frame-threads=1"},
    }[codec]
    encoder = cast(av.VideoCodecContext, av.CodecContext.create(codec, "w"))
    encoder.pix_fmt, encoder.framerate = "yuv420p", Fraction(fps)
    encoder.time_base = Fraction(1, fps)
    encoder.options = {"preset": "veryfast", "threads": "1", **steady, **options}
    packets: list[Any] = []
    for number, pixels in enumerate(frames):
        if not number:
            encoder.height, encoder.width = pixels.shape[:2]
        frame = av.VideoFrame.from_ndarray(pixels, "rgb24").reformat(format="yuv420p")
        frame.pts, frame.time_base = number, encoder.time_base
        packets += encoder.encode(frame)
    return [bytes(packet) for packet in (*packets, *encoder.encode(None))]


def decode(packets: Iterable[bytes], decoder: str) -> Iterator[Image]:
    """The frames of a film, a decoder of `DECODERS` given its packets: (H, W, 3) uint8 RGB."""
    context = cast(av.VideoCodecContext, av.CodecContext.create(decoder, "r"))
    for packet in (*map(av.Packet, packets), None):
        for frame in context.decode(packet):
            yield np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)


@cache
def carried_font(name: str, size_px: int) -> ImageFont.FreeTypeFont:
    """One of the free fonts that matplotlib carries, by its file's name."""
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", name), size_px)
