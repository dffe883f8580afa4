"""Real video codecs: pictures through H.264 and H.265 and back."""

from collections.abc import Sequence
from fractions import Fraction
from typing import cast

import av
import numpy as np

from plate_models.training.imaging import Image

_FPS = 25
DECODERS = {"libx264": "h264", "libx265": "hevc"}


def through_codec(frames: Sequence[Image], codec: str, **options: str) -> list[Image]:
    """Encode (H, W, 3) uint8 RGB pictures of one size with even sides, and decode them again.

    The codec is "libx264" or "libx265", options are that encoder's, such as crf="30" or b="500k".
    """
    # One thread: the same frames make the same bytes.
    quiet = {"x265-params": "log-level=none:pools=1:frame-threads=1"} if codec == "libx265" else {}
    options = {"preset": "veryfast", "threads": "1", **quiet, **options}
    encoder = cast(av.VideoCodecContext, av.CodecContext.create(codec, "w"))
    encoder.height, encoder.width = frames[0].shape[:2]
    encoder.pix_fmt, encoder.time_base = "yuv420p", Fraction(1, _FPS)
    encoder.framerate, encoder.options = Fraction(_FPS), options
    packets = []
    for number, pixels in enumerate(frames):
        frame = av.VideoFrame.from_ndarray(pixels, "rgb24").reformat(format="yuv420p")
        frame.pts, frame.time_base = number, encoder.time_base
        packets += encoder.encode(frame)
    packets += encoder.encode(None)
    decoder = cast(av.VideoCodecContext, av.CodecContext.create(DECODERS[codec], "r"))
    decoded = [frame for packet in (*packets, None) for frame in decoder.decode(packet)]
    return [np.asarray(frame.to_ndarray(format="rgb24"), np.uint8) for frame in decoded]
