"""What a video codec leaves of a moving scene."""

from fractions import Fraction

import cv2
import numpy as np

from plate_models.training.imaging import Image, shift_by

_H265_SHARE = 0.3  # the others are H.264
_PRESETS = ("ultrafast", "superfast", "veryfast")
# Frames are at least so large and consist of whole macroblocks.
_LEAST_WH = (128, 96)
_MACROBLOCK = 16


def _frames(image: Image, rng: np.random.Generator) -> list[Image]:
    """A scene that moves and grows until it is where ``image`` has it, in larger frames.

    Returns frames (h, w, 3); the last one has the image in its upper left corner.
    """
    height, width = image.shape[:2]
    blocks = -(-np.maximum((width, height), _LEAST_WH) // _MACROBLOCK)
    frame_wh = (blocks * _MACROBLOCK).tolist()
    x, y = rng.normal(0, (0.012, 0.004)) * width
    growth, (centre_x, centre_y) = rng.normal(0, 0.006), rng.uniform(0, 1, 2) * (width, height)
    frames = []
    for ago in reversed(range(int(rng.integers(4, 8)))):
        scale = np.exp(-growth * ago)
        view = shift_by(centre_x - x * ago, centre_y - y * ago) @ np.diag((scale, scale, 1.0))
        view = (view @ shift_by(-centre_x, -centre_y))[:2]
        frame = cv2.warpAffine(image, view, frame_wh, borderMode=cv2.BORDER_REFLECT_101)
        frames.append(np.asarray(frame, np.uint8))
    return frames


def film(image: Image, rng: np.random.Generator, quantizer: int) -> Image:
    """Take the last frame of a video, H.264 or H.265, of a scene that moves.

    Args:
        image: (H, W, 3) uint8 RGB, the last frame before it is encoded.
        rng: Source of the codec, its preset, and the motion.
        quantizer: The codec's QP, 0 to 51: the higher, the coarser.

    Returns:
        That frame as decoded, predicted from those before it; its size and place are the same.

    Raises:
        ImportError: PyAV is not installed.
    """
    try:
        import av
    except ImportError as error:
        raise ImportError("videos are rendered with PyAV: install the package `av`") from error

    height, width = image.shape[:2]
    h265, preset = rng.random() < _H265_SHARE, _PRESETS[rng.integers(len(_PRESETS))]
    frames = _frames(image, rng)
    encoder = av.CodecContext.create("libx265" if h265 else "libx264", "w")
    decoder = av.CodecContext.create("hevc" if h265 else "h264", "r")
    encoder.height, encoder.width = frames[0].shape[:2]
    encoder.pix_fmt, encoder.time_base = "yuv420p", Fraction(1, 25)
    encoder.thread_count = decoder.thread_count = 1
    encoder.options = {"preset": preset, "tune": "zerolatency", "qp": str(quantizer)}
    if h265:
        # Better presets take ten times as long as H.264.
        threads = "log-level=none:pools=none:frame-threads=1"
        encoder.options = {**encoder.options, "preset": "ultrafast", "x265-params": threads}
    packets = []
    for number, frame in enumerate(frames):
        planes = np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2YUV_I420), np.uint8)
        picture = av.VideoFrame.from_ndarray(planes, "yuv420p")
        picture.pts = number
        packets += encoder.encode(picture)
    decoded = [
        picture for packet in packets + encoder.encode(None) for picture in decoder.decode(packet)
    ]
    last = (decoded + decoder.decode(None))[-1]
    rgb = cv2.cvtColor(last.to_ndarray(), cv2.COLOR_YUV2RGB_I420)
    return np.ascontiguousarray(rgb[:height, :width], np.uint8)
