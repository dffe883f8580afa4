"""What is seen by a camera: frames, and the plates in one of them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plate_models.recognition.grammar import Evidence

# How a frame's time is known: the camera's own clock, when it came in, or a recording's.
Clock = Literal["rtcp", "arrival", "file"]
# How a stream is.
Status = Literal["connecting", "live", "silent", "frozen", "failed", "ended"]
Box = tuple[float, float, float, float]
Quad = tuple[tuple[float, float], ...]
# What is looked at: left, top, right, bottom in shares of a picture's width and height.
Crop = tuple[float, float, float, float]
WHOLE: Crop = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Frame:
    """One picture of a stream."""

    image: NDArray[np.uint8]  # (H, W, 3) uint8 BGR, upright
    captured: float  # Unix time in seconds, UTC
    clock: Clock  # where that time comes from
    position_s: float  # seconds since the stream's beginning


@dataclass(frozen=True, eq=False)
class SeenPlate:
    """One plate in one frame, as `plate_recognition` answers it."""

    box: Box  # x0, y0, x1, y1 in the frame's pixels
    quad: Quad  # corners TL, TR, BR, BL of the plate's own orientation, in the same pixels
    detection_score: float  # in [0, 1]
    text: str  # the frame's own reading, "" where it is unreadable
    score: float  # calibrated probability that the best candidate is right
    candidates: tuple[tuple[str, float], ...]  # texts with their scores, best first
    log_probs: NDArray[np.float64]  # (C, T), two rows joined, of which the reading was chosen
    crop: NDArray[np.uint8]  # (48, 188, 3) uint8 RGB, the rectified plate
    evidence: Evidence  # what is seen beside the text

    @property
    def middle(self) -> tuple[float, float]:
        """Of the box, x and y in the frame's pixels."""
        x0, y0, x1, y1 = self.box
        return (x0 + x1) / 2, (y0 + y1) / 2

    @property
    def width(self) -> float:
        """Of the box, at least 1."""
        return max(self.box[2] - self.box[0], 1.0)


@dataclass
class SourceState:
    """How a camera's stream is; it counts from its beginning."""

    status: Status = "connecting"  # "failed" once it can't go on; a live source tries again
    problem: str = ""  # what is wrong, in a sentence
    frames_read: int = 0
    frames_dropped: int = 0  # that came while an earlier one was being read
    reconnects: int = 0
    delay_s: float = 0.0  # age of the newest frame when it was handed over
