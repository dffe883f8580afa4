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

# Seconds without sight after which a track ends.
SILENCE_S = 3.0
# By how many widths, and by how much of its scale's log, a plate strays from where it is expected:
# at once, and for each second; at first its speed isn't known.
_STRAY, _STRAY_PER_S, _STRAY_AT_FIRST_PER_S = 0.4, 3.0, 15.0
_SCALE_STRAY, _SCALE_STRAY_PER_S = 0.15, 0.8
# Speeds are believed for so long, and follow new ones by that share.
_LONGEST_WAY_S, _GAIN = 1.0, 0.6
# Log-odds: each second without sight speaks against a plate, its text surely read for it. Below
# the least, plates are different ones. No frame is surer of another text than the last number.
_UNSEEN_PER_S, _SAME_TEXT, _LEAST, _SUREST = -1.5, 5.0, -6.0, 0.9999
_NEVER = 1e6

Point = NDArray[np.float64]


class Track:
    """One plate over frames.

    Attributes:
        fusion: What the frames say of its text.
        plates: How often it was seen.
        plate: As it was seen last.
        seen: When that was, in Unix seconds.
    """

    def __init__(self, plate: SeenPlate, captured: float, reader: Reader) -> None:
        self.fusion, self.plates = Fusion(reader), 1
        self.plate, self.seen = plate, captured
        self._text, self._alphabet = "", reader.spec.alphabet
        self._speed: Point | None = None  # of place and scale, per second
        self._view = _view_of(plate)
        self._take_text()

    def add(self, plate: SeenPlate, captured: float) -> None:
        """See it once more."""
        view, passed = _view_of(plate), max(captured - self.seen, 1e-3)
        speed = (view - self._view) / passed
        old = speed if self._speed is None else self._speed
        self._speed = _GAIN * speed + (1 - _GAIN) * old
        self._view, self.plate, self.seen = view, plate, captured
        self.plates += 1
        self._take_text()

    def log_odds(self, plate: SeenPlate, captured: float) -> float:
        """How far a plate is this one: log-likelihoods of place, size and text."""
        passed = max(captured - self.seen, 0.0)
        way_s = min(passed, _LONGEST_WAY_S)
        expected = self._view if self._speed is None else self._view + self._speed * way_s
        offset = _view_of(plate) - expected
        width = exp(max(self._view[2], offset[2] + expected[2]))
        per_s = _STRAY_AT_FIRST_PER_S if self._speed is None else _STRAY_PER_S
        place = float(np.hypot(*offset[:2])) / width / (_STRAY + per_s * passed)
        scale = float(offset[2]) / (_SCALE_STRAY + _SCALE_STRAY_PER_S * passed)
        return -(place**2 + scale**2) / 2 + _UNSEEN_PER_S * passed + self._text_odds(plate)

    def _text_odds(self, plate: SeenPlate) -> float:
        if not (self._text and plate.candidates):
            return 0.0
        alphabet = self._alphabet
        own = log_likelihood(plate, self._text, alphabet)
        other = log_likelihood(plate, plate.candidates[0][0], alphabet)
        if own > log(0.3):
            return _SAME_TEXT
        sure = min(plate.score, _SUREST)
        return log(1 - sure + sure * exp(min(own - other, 0.0)))

    def _take_text(self) -> None:
        self.fusion.add(self.plate)
        reading = self.fusion.result().reading
        self._text = reading.candidates[0][0] if reading.score > 0.5 else ""


class Tracker:
    """The plates that are in sight of one camera."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._tracks: list[Track] = []

    def update(self, plates: Sequence[SeenPlate], captured: float) -> list[Track]:
        """Assign a frame's plates; returns each one's track. What is found twice counts once."""
        plates = _without_doubles(plates)
        odds = np.array([[t.log_odds(p, captured) for p in plates] for t in self._tracks])
        odds = odds.reshape(len(self._tracks), len(plates))
        rows, columns = linear_sum_assignment(np.where(odds > _LEAST, -odds, _NEVER))
        found: dict[int, Track] = {}
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            if odds[row, column] > _LEAST:
                found[column] = self._tracks[row]
                found[column].add(plates[column], captured)
        for column in range(len(plates)):
            if column not in found:
                found[column] = Track(plates[column], captured, self._reader)
                self._tracks.append(found[column])
        return [found[column] for column in range(len(plates))]

    def hold(self, before: float, captured: float) -> None:
        """Nothing has moved since a frame: what was in sight then still is."""
        for track in self._tracks:
            if track.seen >= before:
                track.seen = captured

    def ended(self, now: float) -> list[Track]:
        """Forget the tracks that have been silent for too long, and return them."""
        gone = [track for track in self._tracks if now - track.seen > SILENCE_S]
        self._tracks = [track for track in self._tracks if track not in gone]
        return gone

    def forget(self, track: Track) -> None:
        """It is part of another one."""
        self._tracks.remove(track)

    def close(self) -> list[Track]:
        """Forget and return all."""
        gone, self._tracks = self._tracks, []
        return gone


def _view_of(plate: SeenPlate) -> Point:
    """(3,): the middle in pixels, log of the width."""
    x0, y0, x1, y1 = plate.box
    return np.array(((x0 + x1) / 2, (y0 + y1) / 2, log(max(x1 - x0, 1.0))))


def _without_doubles(plates: Sequence[SeenPlate]) -> list[SeenPlate]:
    """Drop a plate whose middle lies in another one's box: the surer one stays."""
    kept: list[SeenPlate] = []
    for plate in sorted(plates, key=lambda plate: -plate.score):
        x, y, _ = _view_of(plate)
        if not any(k.box[0] < x < k.box[2] and k.box[1] < y < k.box[3] for k in kept):
            kept.append(plate)
    return kept
