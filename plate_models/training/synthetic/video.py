"""What a video codec leaves of a moving scene."""

import cv2
import numpy as np

from plate_models.training.codec import through_codec
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
    """
    h265, preset = rng.random() < _H265_SHARE, _PRESETS[rng.integers(len(_PRESETS))]
    # Better presets of H.265 take ten times as long as H.264.
    codec, preset = ("libx265", "ultrafast") if h265 else ("libx264", preset)
    frames = _frames(image, rng)
    last = through_codec(frames, codec, preset=preset, tune="zerolatency", qp=str(quantizer))[-1]
    return np.ascontiguousarray(last[: image.shape[0], : image.shape[1]])
