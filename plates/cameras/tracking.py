"""Assign the plates of each frame to tracks: which plate is which plate of the frames before.

Plates and tracks are paired so that position, size and text together fit best. A track's position
is predicted from its velocity in real time, because frames come at any rate and some are missing;
distances are in plate widths. Libraries count updates instead of seconds and don't compare texts.
"""

from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from plates.cameras.frames import SeenPlate
from plates.cameras.fusion import Fusion, Reader, log_likelihood

# A track ends after so many seconds without a detection: before its text is known; after that, as
# the text can re-identify it; and while the plate is stationary, as only an occlusion can hide it.
_TIMEOUT_S, _READ_TIMEOUT_S, _STATIONARY_TIMEOUT_S = 3.0, 4.0, 30.0
# A plate that moves less than this share of its width in so many seconds is stationary.
_STATIONARY_AFTER_S, _STATIONARY_WIDTHS = 5.0, 1 / 3
# Standard deviation of the distance from the predicted position, in plate widths: its constant
# part, and its growth per second with a known and an unknown velocity. Then that of log(width).
_DEVIATION, _DEVIATION_PER_S, _UNKNOWN_VELOCITY_PER_S = 0.4, 3.0, 15.0
_SCALE_DEVIATION = 0.5
# A velocity is extrapolated for at most so many seconds; weight of its latest measurement.
_LONGEST_EXTRAPOLATION_S, _GAIN = 1.0, 0.6
# Log-odds that a plate gains by showing the track's text; the least score of a track's text that is
# compared; the least log-odds of a plate and a track to be assigned; the highest score that a text
# which contradicts the track's can have.
_SAME_TEXT, _LEAST_SCORE, _LEAST_ODDS, _MOST_SCORE = 7.0, 0.2, -6.0, 0.9999
# Lower bound of a contradicting text's log-odds, per second since a frame last agreed, for at least
# the second number of seconds: another vehicle needs time to come, so an early change of the text
# is rather a misreading.
_OTHER_PER_S, _SOONEST_OTHER_S = -12.0, 0.25
# After a gap of so many seconds the plate may be another one: contradicting texts add up from then.
_GAP_S = 1.1

Point = NDArray[np.float64]


class Track:
    """One plate over frames; times are seconds of a clock that never goes back."""

    def __init__(self, plate: SeenPlate, now: float, reader: Reader) -> None:
        self.fusion = Fusion(reader)  # reads the text from all frames
        self.plate, self.last_seen = plate, now  # the last detection and its time
        self._last_agreed = now  # when a frame last agreed with the text, or there was no text yet
        # Whether there was a gap since then, and the log-odds of contradicting texts after it.
        self._had_gap, self._contradiction = False, 0.0
        self.stationary = False
        self._velocity: Point | None = None  # (2,): pixels per second
        self._position = self._anchor = _position_of(plate)
        self._anchored = now  # since when the plate has been near the anchor
        self.fusion.add(plate)

    def add(self, plate: SeenPlate, now: float) -> None:
        """Add a detection."""
        position, passed = _position_of(plate), now - self.last_seen
        self._had_gap |= passed > _GAP_S
        if not self._text or (odds := self._text_odds(plate, now)) == _SAME_TEXT:
            self._last_agreed, self._had_gap, self._contradiction = now, False, 0.0
        elif self._had_gap and plate.text:
            self._contradiction = min(self._contradiction, odds)
        if passed > 0:
            velocity = (position - self._position)[:2] / passed
            old = velocity if self._velocity is None else self._velocity
            self._velocity = _GAIN * velocity + (1 - _GAIN) * old
        self._position, self.plate = position, plate
        self.fusion.add(plate)
        self._mark_seen(now)

    def stay(self, now: float) -> None:
        """Note a frame in which nothing has moved: the plate is where it was."""
        if self._last_agreed == self.last_seen:  # An unchanged plate still agrees with the text.
            self._last_agreed = now
        self._mark_seen(now)

    def is_over(self, now: float) -> bool:
        """Whether there was no detection for too long."""
        moving = _READ_TIMEOUT_S if self._text else _TIMEOUT_S
        return now - self.last_seen > (_STATIONARY_TIMEOUT_S if self.stationary else moving)

    def log_odds(self, plate: SeenPlate, now: float) -> float:
        """How well a plate fits this track: the sum of log-likelihoods of position, size, text."""
        passed = now - self.last_seen
        text = self._text_odds(plate, now)
        # A stationary plate is still in its place after a gap, so don't widen the search.
        passed = min(passed, _SOONEST_OTHER_S) if self.stationary else passed
        velocity = np.zeros(2) if self._velocity is None else self._velocity
        offset = _position_of(plate) - self._position
        # The width isn't predicted: a plate that is partly occluded seems to shrink.
        error = offset[:2] - velocity * min(passed, _LONGEST_EXTRAPOLATION_S)
        unknown = _UNKNOWN_VELOCITY_PER_S * min(passed, _LONGEST_EXTRAPOLATION_S)
        deviation = _DEVIATION + (unknown if self._velocity is None else _DEVIATION_PER_S * passed)
        width = exp(self._position[2] + max(offset[2], 0.0))  # the larger one of both
        place = float(np.hypot(*error)) / width / deviation
        scale = float(offset[2]) / _SCALE_DEVIATION
        return text - (place**2 + scale**2) / 2 - 2 * log(deviation)

    @property
    def _text(self) -> str:
        """The text if its score is above 0.5, else ""."""
        reading = self.fusion.result().reading
        return reading.best if reading.score > 0.5 else ""

    def _text_odds(self, plate: SeenPlate, now: float) -> float:
        """Log-odds that a plate has this track's text; 0 if either one is too uncertain."""
        reading = self.fusion.result().reading
        if reading.score <= _LEAST_SCORE or not plate.candidates:
            return 0.0
        track_text, frame_text = reading.best, plate.candidates[0][0]
        likelihood = log_likelihood(plate, track_text, self.fusion.alphabet)
        if likelihood > log(0.3):
            return _SAME_TEXT
        if not self._text or _is_part(frame_text, track_text) or _is_part(track_text, frame_text):
            return 0.0  # The text is uncertain, or the rest of the plate is occluded.
        # Either text may be the misreading: compare both in the frame, then both in the track.
        probabilities = self.fusion.result().probabilities
        alike = exp(min(likelihood - log_likelihood(plate, frame_text, self.fusion.alphabet), 0.0))
        alike = max(alike, min(probabilities.get(frame_text, 0.0) / probabilities[track_text], 1.0))
        odds = log(1 - min(plate.score, _MOST_SCORE) * (1 - alike))
        bound = _OTHER_PER_S * max(now - self._last_agreed, _SOONEST_OTHER_S)
        return max(odds + self._contradiction, bound)

    def _mark_seen(self, now: float) -> None:
        self.last_seen = now
        offset = (self._position - self._anchor)[:2]
        if float(np.hypot(*offset)) / exp(self._position[2]) > _STATIONARY_WIDTHS:
            self._anchor, self._anchored = self._position, now
        self.stationary = now - self._anchored >= _STATIONARY_AFTER_S


def assign(
    plates: Sequence[SeenPlate], tracks: Sequence[Track], now: float, reader: Reader
) -> list[Track]:
    """Add a frame's plates, without duplicates, to these or new tracks; returns their tracks."""
    plates = _without_duplicates(plates)
    odds = np.array([[track.log_odds(plate, now) for plate in plates] for track in tracks])
    # Pairs below the least log-odds all gain 0: a bad pair doesn't break up a better one.
    gain = np.maximum(odds.reshape(len(tracks), len(plates)) - _LEAST_ODDS, 0.0)
    found: dict[int, Track] = {}
    for row, column in zip(*linear_sum_assignment(gain, maximize=True), strict=True):
        if gain[row, column] > 0:
            found[int(column)] = tracks[row]
    for column, plate in enumerate(plates):
        if column in found:
            found[column].add(plate, now)
        else:
            found[column] = Track(plate, now, reader)
    return [found[column] for column in range(len(plates))]


def _position_of(plate: SeenPlate) -> Point:
    """(3,): x and y of the centre in pixels, log of the width."""
    return np.array((*plate.middle, log(plate.width)))


def _is_part(part: str, text: str) -> bool:
    """Whether `part` is `text` without some of its characters (a subsequence)."""
    rest = iter(text)
    return all(char in rest for char in part)


def _without_duplicates(plates: Sequence[SeenPlate]) -> list[SeenPlate]:
    """Drop a plate whose centre lies in the box of one with a higher text score."""
    kept: list[SeenPlate] = []
    for plate in sorted(plates, key=lambda plate: -plate.score):
        x, y = plate.middle
        if not any(k.box[0] < x < k.box[2] and k.box[1] < y < k.box[3] for k in kept):
            kept.append(plate)
    return kept
