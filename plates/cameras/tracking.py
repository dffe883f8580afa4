"""Which plate of a frame is which plate of the frames before.

Plates are assigned to tracks so that place, size and text together fit best. A track's place is
predicted at its own speed in real time, for frames come at any rate and some never come; distances
are counted in plate widths. Our own: what is at hand counts updates instead of seconds, and knows
nothing of texts.
"""

from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from plates.cameras.frames import SeenPlate
from plates.cameras.fusion import Fusion, Reader, log_likelihood

# Seconds without sight after which a track ends: its text isn't known; it is, so that it is known
# again; it stands, so that only something before it can hide it.
_SILENT_S, _READ_SILENT_S, _STANDING_SILENT_S = 3.0, 4.0, 30.0
# What moves by less than a third of a plate's width in that time stands.
_STANDING_S, _STANDING_WIDTHS = 5.0, 1 / 3
# By how many widths a plate strays from what is expected: at once, for each second, and for each
# second while its speed isn't known; by how much its width's log changes.
_STRAY, _STRAY_PER_S, _STRAY_AT_FIRST_PER_S = 0.4, 3.0, 15.0
_SCALE_STRAY = 0.5
# Speeds are believed for so long, and follow new ones by that share.
_LONGEST_WAY_S, _GAIN = 1.0, 0.6
# Log-odds: its text speaks for a plate, if it may be right; below the least, plates are different
# ones. No frame is surer of another text than the last number.
_SAME_TEXT, _MAY_BE, _LEAST, _SUREST = 7.0, 0.2, -6.0, 0.9999
# Another vehicle needs a while to come where one was: sooner, another text is rather an error.
_OTHER_PER_S, _SOONEST_OTHER_S = -12.0, 0.25
# After so long out of sight it may be another one: what frames say against its text adds up.
_HIDDEN_S = 1.1

Point = NDArray[np.float64]


class Track:
    """One plate over frames; times are seconds of a clock that never goes back."""

    def __init__(self, plate: SeenPlate, now: float, reader: Reader) -> None:
        self.fusion = Fusion(reader)  # what the frames say of its text
        self.plate, self.seen = plate, now  # as it was seen last, and when that was
        self._known = now  # when a frame last agreed with its text, or it had none yet
        # Whether it was out of sight since then, and what frames after that say against its text.
        self._hidden, self._doubt = False, 0.0
        self.stands = False  # whether it has been in one place for five seconds
        self._speed: Point | None = None  # per second
        self._view = self._anchor = _view_of(plate)
        self._anchored = now
        self.fusion.add(plate)

    def add(self, plate: SeenPlate, now: float) -> None:
        """See it once more."""
        view, passed = _view_of(plate), now - self.seen
        self._hidden |= passed > _HIDDEN_S
        if not self._text or (odds := self._text_odds(plate, now)) == _SAME_TEXT:
            self._known, self._hidden, self._doubt = now, False, 0.0
        elif self._hidden and plate.text:
            self._doubt = min(self._doubt, odds)
        if passed > 0:
            speed = (view - self._view) / passed
            old = speed if self._speed is None else self._speed
            self._speed = _GAIN * speed + (1 - _GAIN) * old
        self._view, self.plate = view, plate
        self.fusion.add(plate)
        self._be_seen(now)

    def stay(self, now: float) -> None:
        """It is where it was."""
        if self._known == self.seen:  # What has not moved says what it said.
            self._known = now
        self._speed = np.zeros(3)
        self._be_seen(now)

    def is_over(self, now: float) -> bool:
        """Whether it has been out of sight for too long."""
        known = _READ_SILENT_S if self._text else _SILENT_S
        return now - self.seen > (_STANDING_SILENT_S if self.stands else known)

    def log_odds(self, plate: SeenPlate, now: float) -> float:
        """How far a plate is this one: log-likelihoods of place, size and text."""
        passed = now - self.seen
        text = self._text_odds(plate, now)
        # What stands is still there after a while, too.
        passed = min(passed, _SOONEST_OTHER_S) if self.stands else passed
        speed = np.zeros(3) if self._speed is None else self._speed
        offset = _view_of(plate) - self._view
        # Scale isn't predicted: what is hidden in part seems to shrink.
        way = offset[:2] - speed[:2] * min(passed, _LONGEST_WAY_S)
        at_first = _STRAY_AT_FIRST_PER_S * min(passed, _LONGEST_WAY_S)
        stray = _STRAY + (at_first if self._speed is None else _STRAY_PER_S * passed)
        place = float(np.hypot(*way)) / exp(self._view[2] + max(offset[2], 0.0)) / stray
        scale = float(offset[2]) / _SCALE_STRAY
        return text - (place**2 + scale**2) / 2 - 2 * log(stray)

    @property
    def _text(self) -> str:
        """Its likeliest text; "" where another one may be as likely."""
        reading = self.fusion.result().reading
        return reading.best if reading.score > 0.5 else ""

    def _text_odds(self, plate: SeenPlate, now: float) -> float:
        reading = self.fusion.result().reading
        if reading.score <= _MAY_BE or not plate.candidates:
            return 0.0
        mine, own = reading.best, plate.candidates[0][0]
        likelihood = log_likelihood(plate, mine, self.fusion.alphabet)
        if likelihood > log(0.3):
            return _SAME_TEXT
        if not self._text or _is_part(own, mine) or _is_part(mine, own):
            return 0.0  # it isn't known, or something hides the rest
        # Either may be the one that errs: what does each think of the other's text?
        probabilities = self.fusion.result().probabilities
        alike = exp(min(likelihood - log_likelihood(plate, own, self.fusion.alphabet), 0.0))
        alike = max(alike, min(probabilities.get(own, 0.0) / probabilities[mine], 1.0))
        odds = log(1 - min(plate.score, _SUREST) * (1 - alike))
        return max(odds + self._doubt, _OTHER_PER_S * max(now - self._known, _SOONEST_OTHER_S))

    def _be_seen(self, now: float) -> None:
        self.seen = now
        moved = float(np.hypot(*(self._view - self._anchor)[:2])) / exp(self._view[2])
        if moved > _STANDING_WIDTHS:
            self._anchor, self._anchored = self._view, now
        self.stands = now - self._anchored >= _STANDING_S


def assign(
    plates: Sequence[SeenPlate], tracks: Sequence[Track], now: float, reader: Reader
) -> list[Track]:
    """Add a frame's plates to these tracks, or to new ones; returns each plate's track.

    What is found twice counts once.
    """
    plates = _without_doubles(plates)
    odds = np.array([[track.log_odds(plate, now) for plate in plates] for track in tracks])
    # What fits too badly counts nothing: no other pair is torn apart for its sake.
    gain = np.maximum(odds.reshape(len(tracks), len(plates)) - _LEAST, 0.0)
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


def _view_of(plate: SeenPlate) -> Point:
    """(3,): the middle in pixels, log of the width."""
    return np.array((*plate.middle, log(plate.width)))


def _is_part(part: str, text: str) -> bool:
    """Whether a text is left of another one when some of its characters are left out."""
    rest = iter(text)
    return all(char in rest for char in part)


def _without_doubles(plates: Sequence[SeenPlate]) -> list[SeenPlate]:
    """Drop a plate whose middle lies in another one's box: the surer one stays."""
    kept: list[SeenPlate] = []
    for plate in sorted(plates, key=lambda plate: -plate.score):
        x, y = plate.middle
        if not any(k.box[0] < x < k.box[2] and k.box[1] < y < k.box[3] for k in kept):
            kept.append(plate)
    return kept
