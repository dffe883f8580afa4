"""The frames of a camera, the plates in a frame, and the state of a stream."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plate_models.recognition.grammar import Evidence

# The source of a frame's time: the camera's own clock, the frame's arrival, or the recording.
Clock = Literal["rtcp", "arrival", "file"]
Status = Literal["connecting", "live", "silent", "frozen", "failed", "ended"]
Box = tuple[float, float, float, float]
Quad = tuple[tuple[float, float], ...]
# The part of the picture that is used: left, top, right, bottom as shares of its width and height.
Crop = tuple[float, float, float, float]
WHOLE: Crop = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Frame:
    """One picture of a stream."""

    image: NDArray[np.uint8]  # (H, W, 3) uint8 BGR, upright
    captured: float  # Unix time in seconds, UTC
    clock: Clock  # the source of that time
    position_s: float  # seconds since the stream's beginning


@dataclass(frozen=True, eq=False)
class SeenPlate:
    """One plate in one frame, from the outputs of `plate_recognition`."""

    box: Box  # x0, y0, x1, y1 in the frame's pixels
    quad: Quad  # corners TL, TR, BR, BL of the plate's own orientation, in the same pixels
    detection_score: float  # in [0, 1]
    text: str  # read from this frame alone, "" if unreadable
    score: float  # calibrated probability that the best candidate is right
    candidates: tuple[tuple[str, float], ...]  # texts with their scores, best first
    log_probs: NDArray[np.float64]  # (C, T), two rows joined; the reading was chosen from them
    crop: NDArray[np.uint8]  # (48, 188, 3) uint8 RGB, the rectified plate
    evidence: Evidence  # lines, ground colour, aspect ratio and band

    @property
    def middle(self) -> tuple[float, float]:
        """The box's centre, x and y in the frame's pixels."""
        x0, y0, x1, y1 = self.box
        return (x0 + x1) / 2, (y0 + y1) / 2

    @property
    def width(self) -> float:
        """The box's width in pixels, at least 1."""
        return max(self.box[2] - self.box[0], 1.0)


@dataclass
class SourceState:
    """The state of a camera's stream; the counts start when the source is opened."""

    status: Status = "connecting"  # "failed" after an error; a live source then connects again
    problem: str = ""  # what is wrong, as a sentence
    frames_read: int = 0
    frames_dropped: int = 0  # they arrived while an earlier frame was being read
    reconnects: int = 0
    delay_s: float = 0.0  # age of the newest frame when it was handed over
