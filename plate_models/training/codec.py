"""Real video codecs: pictures through H.264 and H.265 and back."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, cast

import av
import numpy as np

from plate_models.training.imaging import Image

_FPS = 25
DECODERS = {"libx264": "h264", "libx265": "hevc"}


def through_codec(frames: Sequence[Image], codec: str, **options: str) -> list[Image]:
    """Encode (H, W, 3) uint8 RGB pictures of one size with even sides, and decode them again.

    The codec is "libx264" or "libx265", options are that encoder's, such as crf="30" or b="500k".
    """
    return list(decode(encode(frames, codec, _FPS, **options), DECODERS[codec]))


def encode(frames: Iterable[Image], codec: str, fps: int, **options: str) -> list[bytes]:
    """Make a film's packets, in the order of decoding; arguments as for `through_codec`."""
    # One thread: the same frames make the same bytes.
    quiet = {"x265-params": "log-level=none:pools=1:frame-threads=1"} if codec == "libx265" else {}
    encoder = cast(av.VideoCodecContext, av.CodecContext.create(codec, "w"))
    encoder.pix_fmt, encoder.time_base, encoder.framerate = (
        "yuv420p",
        Fraction(1, fps),
        Fraction(fps),
    )
    encoder.options = {"preset": "veryfast", "threads": "1", **quiet, **options}
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
