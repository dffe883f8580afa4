"""One reading of a plate from all its frames.

Frames are joined where they know most: not their strings, but how likely each text is in each
frame. The texts are those of all frames; a text's likelihood in a pass is the product of those in
the frames, each to the power of the frame's weight. The grammar is asked once, at the end, by the
routine that chooses the text of a single photo.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from math import log

import numpy as np

from plate_models.recognition import ctc
from plate_models.recognition.calibration import UNCALIBRATED, Calibration
from plate_models.recognition.decoding import (
    DEFAULT_GRAMMAR,
    Evidence,
    Likelihoods,
    Reading,
    choose,
)
from plate_models.recognition.grammar import GROUNDS, UNKNOWN, Grammar
from plate_models.spec import RECOGNIZER, RecognizerSpec
from plates.cameras.frames import SeenPlate

# The constants were chosen on rendered clips; half or double of each changes little.
# No frame makes a text less likely than this: a bad one has no veto.
_FLOOR = 1e-6
# Width of a plate in pixels; a wider one is not worth more.
_ENOUGH_PX = 120.0
# Two views share what they show wrongly: a part always (dirt, the light, the text itself), the
# rest the less, the more their scale (log of the width) and their place (in widths) differ.
_ALWAYS_SHARED, _SCALE, _WAY = 0.5, 0.2, 1.0
# Frames that are kept of a pass, and texts that are remembered with each.
_MOST_FRAMES, _MOST_TEXTS = 12, 500
_ALL = 10**6


@dataclass(frozen=True)
class Reader:
    """How texts are chosen.

    Attributes:
        grammar: What may stand on plates.
        calibration: Of single photos.
        spec: What the recognizer was made for.
        passes: Calibration of passes; None: that of single photos. With `UNCALIBRATED` the scores
            are the raw posteriors, to which a calibration is fitted.
    """

    grammar: Grammar = DEFAULT_GRAMMAR
    calibration: Calibration = UNCALIBRATED
    spec: RecognizerSpec = RECOGNIZER
    passes: Calibration | None = None


DEFAULT_READER = Reader()


@dataclass(frozen=True)
class Fused:
    """What all frames say together.

    Attributes:
        reading: As of a single photo; its candidates are the likeliest texts.
        probabilities: Every text that was considered, with its calibrated probability; all listed
            texts are among them.
    """

    reading: Reading
    probabilities: Mapping[str, float]


def fuse(
    plates: Sequence[SeenPlate], reader: Reader = DEFAULT_READER, listed: Sequence[str] = ()
) -> Fused:
    """Read one plate from what was seen of it in some frames; see `Fusion`."""
    fusion = Fusion(reader)
    for plate in plates:
        fusion.add(plate)
    return fusion.result(listed)


def log_likelihood(plate: SeenPlate, text: str, alphabet: str) -> float:
    """Log-probability of a text in one frame, never below that of a text without any support.

    A character that is not in the alphabet is a ValueError.
    """
    return log(ctc.text_probabilities(plate.log_probs, [text], alphabet)[0] + _FLOOR)


class Fusion:
    """The frames of one track so far, and what they say together.

    Of the frames that came, the few that weigh most are kept, so that a car that stands for an
    hour costs no more than one that passes by. Frames that can't be read at all (NaN, or no text
    in them) are passed over; without any other, the reading is empty with a score of 0.
    """

    def __init__(self, reader: Reader = DEFAULT_READER) -> None:
        self._reader = reader
        self._frames: list[_Frame] = []

    def add(self, plate: SeenPlate) -> None:
        """Take what was seen in one more frame."""
        frame = _Frame(plate, self._reader.spec.alphabet)
        if not frame.beam:
            return
        self._frames.append(frame)
        if len(self._frames) > _MOST_FRAMES:
            del self._frames[int(_weights(self._frames).argmin())]

    def result(self, listed: Sequence[str] = ()) -> Fused:
        """Read the plate; listed texts are considered even if no frame suggests them."""
        if not self._frames:
            nothing = Reading("", 0.0, False, UNKNOWN, (), ())
            return Fused(nothing, dict.fromkeys(listed, 0.0))
        frames, weights, spec = self._frames, _weights(self._frames), self._reader.spec
        calibration = self._reader.passes or self._reader.calibration
        seen = _likelihoods(frames, weights, [t for t in listed if set(t) <= set(spec.alphabet)])
        every = replace(spec, candidates=_ALL)
        reading = choose(seen, _evidence(frames, weights), self._reader.grammar, calibration, every)
        probabilities = dict.fromkeys(listed, 0.0) | dict(reading.candidates)
        best = replace(reading, candidates=reading.candidates[: spec.candidates])
        return Fused(best, probabilities)


class _Frame:
    """A plate in one frame: its view, and the likelihoods of texts, each computed once."""

    def __init__(self, plate: SeenPlate, alphabet: str) -> None:
        self.plate = plate
        self.raw = ctc.greedy_decode(plate.log_probs, alphabet)
        self.beam = {text: p for text, p in ctc.beam_decode(plate.log_probs, alphabet) if text}
        self.alternatives = lru_cache(maxsize=4)(
            partial(ctc.character_alternatives, plate.log_probs, alphabet=alphabet)
        )
        self._alphabet, self._known = alphabet, dict(self.beam)
        top_left, top_right, bottom_right, bottom_left = np.array(plate.quad)
        across = (top_right - top_left + bottom_right - bottom_left) / 2
        width = max(float(np.hypot(*across)), 1.0)
        self.view = (log(width), *np.mean(plate.quad, axis=0).tolist())
        clarity = max(self.beam.values(), default=0.0)
        self.worth = min(width / _ENOUGH_PX, 1.0) * clarity**0.5

    def probabilities(self, texts: Sequence[str]) -> list[float]:
        if len(self._known) > _MOST_TEXTS:
            self._known = dict(self.beam)
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        found = ctc.text_probabilities(self.plate.log_probs, new, self._alphabet)
        self._known |= zip(new, found, strict=True)
        return [self._known[text] for text in texts]


def _weights(frames: Sequence[_Frame]) -> ctc.Array:
    """(N,): for how many frames each counts; one alone for 1, N equal ones for 1 / N each.

    Each is worth what its size and clarity are, beside the best one, and shares that with the
    frames that show the same view: there N observations are little more than one.
    """
    views = np.array([frame.view for frame in frames])
    worth = np.array([frame.worth for frame in frames])
    worth = worth / worth.max()
    scales, places = views[:, :1], views[:, None, 1:]
    ways = np.linalg.norm(places - places.swapaxes(0, 1), axis=2)
    ways /= np.exp(np.minimum(scales, scales.T))
    same = np.exp(-np.abs(scales - scales.T) / _SCALE - ways / _WAY)
    shared = _ALWAYS_SHARED + (1 - _ALWAYS_SHARED) * same
    weights: ctc.Array = worth * worth / (shared @ worth)
    return weights


def _likelihoods(
    frames: Sequence[_Frame], weights: ctc.Array, listed: Sequence[str]
) -> Likelihoods:
    """Join the frames' likelihoods, as if they were those of one photo."""

    def logs(texts: Sequence[str]) -> ctc.Array:
        joined: ctc.Array = weights @ np.log(table(texts) + _FLOOR)
        return joined

    def table(texts: Sequence[str]) -> ctc.Array:
        return np.array([frame.probabilities(texts) for frame in frames])

    def alternatives(text: str) -> ctc.Array:
        each = np.array([frame.alternatives(text) for frame in frames])
        joined: ctc.Array = np.exp(np.tensordot(weights, np.log(each + _FLOOR), axes=1))
        return joined

    raws = [frame.raw for frame in frames if frame.raw]
    texts = list(dict.fromkeys(chain(raws, *(frame.beam for frame in frames), listed)))
    joint = logs(texts)
    # A product over frames says nothing of texts that are not in it. How much is left for them
    # says the frame that leaves least; one alone leaves what it would as a photo.
    considered = min(float(table(texts).sum(axis=1).max()), 1.0)
    norm = joint.max() + np.log(np.exp(joint - joint.max()).sum() / considered)
    beam = dict(zip(texts, np.exp(joint - norm).tolist(), strict=True))
    return Likelihoods(
        max(raws, key=beam.__getitem__, default=""),
        beam,
        lambda others: np.exp(logs(others) - norm).tolist() if others else [],
        alternatives,
    )


def _evidence(frames: Sequence[_Frame], weights: ctc.Array) -> Evidence:
    """Lines by weighted majority; colours as one observation, for the light is the same."""
    lines: Counter[int] = Counter()
    for frame, weight in zip(frames, weights.tolist(), strict=True):
        lines[frame.plate.lines] += weight
    grounds = np.array([[frame.plate.ground[colour] for colour in GROUNDS] for frame in frames])
    mean = np.exp(weights @ np.log(grounds) / weights.sum())
    return Evidence(
        max(lines, key=lines.__getitem__), dict(zip(GROUNDS, mean.tolist(), strict=True))
    )
