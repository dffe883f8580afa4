"""Homographies, blending, motion blur and codecs: the image operations that both renderers share.

Coordinates are in pixels from the first pixel's corner, not from its centre.
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

# Kernels are drawn at this factor and downscaled, so that slanted lines and ends are smooth.
_FINER = 8
_FPS = 25
DECODERS = {"libx264": "h264", "libx265": "hevc"}


def apply_homography(homography: Floats, points: ArrayLike) -> Floats:
    """Map (N, 2) points by a (3, 3) matrix; returns (N, 2) float64."""
    mapped = cv2.perspectiveTransform(np.asarray(points, np.float64)[None], homography)
    return np.asarray(mapped[0], np.float64)


def shift_by(x: float, y: float) -> Floats:
    """(3, 3) homography of a translation by (x, y) pixels."""
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1.0]])


def box_corners(width: float, height: float) -> Floats:
    """(4, 2) corners TL, TR, BR, BL of an image of this size."""
    return np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64)


def warp(
    image: Picture, view: Floats, size_wh: Sequence[int], border: int = cv2.BORDER_REPLICATE
) -> Picture:
    """Warp an image by a homography; `cv2.warpPerspective` takes coordinates of pixel centres."""
    matrix = shift_by(-0.5, -0.5) @ view @ shift_by(0.5, 0.5)
    warped = cv2.warpPerspective(image, matrix, tuple(size_wh), borderMode=border)
    return np.asarray(warped, image.dtype)


def warp_layers(layers: Picture, view: Floats, size_wh: Sequence[int], fold: int = 2) -> Picture:
    """Warp (H, W, 4) premultiplied colours and coverage by a (3, 3) homography, anti-aliased.

    Each pixel is the mean of ``fold`` x ``fold`` samples, which suffices if neighbouring samples
    are at most a pixel of ``layers`` apart. To overlay the result on an image, subtract the covered
    share of that image and add the colours.
    """
    fine_wh = size_wh[0] * fold, size_wh[1] * fold
    fine = warp(layers, np.diag((fold, fold, 1.0)) @ view, fine_wh, cv2.BORDER_CONSTANT)
    return np.asarray(cv2.resize(fine, tuple(size_wh), interpolation=cv2.INTER_AREA), layers.dtype)


def lay_over(picture: Picture, cover: Field | Mask, colour: ArrayLike) -> None:
    """Blend a colour into an image, in place; the cover is a float share or a uint8 mask."""
    share = cover if cover.dtype == np.float32 else cover.astype(np.float32) / 255
    picture[:] = picture + share[..., None] * (np.asarray(colour, np.float32) - picture)


def motion_kernel(x: float, y: float) -> Field:
    """The kernel of a motion blur by (x, y) pixels for `cv2.filter2D`; its sum is 1."""
    side = 2 * int(np.ceil(max(abs(x), abs(y)) / 2)) + 3
    fine = np.zeros((side * _FINER, side * _FINER), np.float32)
    middle, half = (side * _FINER - 1) / 2, np.array([x, y]) * _FINER / 2
    ends = [np.rint((middle + sign * half) * 16).astype(int).tolist() for sign in (-1, 1)]
    cv2.line(fine, ends[0], ends[1], (1.0,), _FINER - 1, cv2.LINE_8, 4)
    kernel = cv2.resize(fine, (side, side), interpolation=cv2.INTER_AREA)
    return np.asarray(kernel / kernel.sum(), np.float32)


def encode_jpeg(image: Image, quality: int, *options: int) -> NDArray[np.uint8]:
    """Encode an (H, W, 3) RGB image as a JPEG file; the options are those of `cv2.imencode`."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality, *options])
    return np.asarray(data, np.uint8)


def compress(image: Image, quality: int) -> Image:
    """Encode an (H, W, 3) RGB image as JPEG and decode it again."""
    return np.asarray(cv2.imdecode(encode_jpeg(image, quality), cv2.IMREAD_COLOR_RGB), np.uint8)


def through_codec(frames: Sequence[Image], codec: str, **options: str) -> list[Image]:
    """Encode (H, W, 3) uint8 RGB images of one size with even sides, and decode them again.

    The codec is "libx264" or "libx265"; the options are that encoder's: crf="30", b="500k".
    """
    return list(decode(encode(frames, codec, _FPS, **options), DECODERS[codec]))


def encode(frames: Iterable[Image], codec: str, fps: int, **options: str) -> list[bytes]:
    """Encode a video's packets, in decoding order; arguments as for `through_codec`."""
    # One thread, and no macroblock trees in libx264, so that the same frames give the same bytes.
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
    """Decode a video's packets with a decoder out of `DECODERS`: (H, W, 3) uint8 RGB frames."""
    context = cast(av.VideoCodecContext, av.CodecContext.create(decoder, "r"))
    for packet in (*map(av.Packet, packets), None):
        for frame in context.decode(packet):
            yield np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)


@cache
def carried_font(name: str, size_px: int) -> ImageFont.FreeTypeFont:
    """One of the free fonts that matplotlib includes, by file name."""
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", name), size_px)
