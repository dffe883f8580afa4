"""One reading of a plate from all its frames.

What is joined is how likely each text is in each frame, not the frames' strings. The grammar is
asked once, at the end, by the routine that chooses the text of a single photo.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from math import log

import numpy as np

from plate_models.recognition import ctc, decoding
from plate_models.recognition.calibration import UNCALIBRATED, Calibration
from plate_models.recognition.decoding import DEFAULT_GRAMMAR, Likelihoods
from plate_models.recognition.grammar import UNKNOWN, Evidence, Grammar, Reading
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
# A text less likely than this in a frame isn't respelled.
_RESPELLED_FROM = 1e-3
# The least likely spelling of a shape, beside all: frames that agree are no surer of a typeface.
_LEAST_SPELLING = 0.05
# Frames that are kept of a pass, and texts that are remembered with each.
_MOST_FRAMES, _MOST_TEXTS = 12, 500


@dataclass(frozen=True)
class Reader:
    """How texts are chosen."""

    grammar: Grammar = DEFAULT_GRAMMAR  # what may stand on plates
    # Of single photos; with `UNCALIBRATED` the scores are raw posteriors.
    calibration: Calibration = UNCALIBRATED
    spec: RecognizerSpec = RECOGNIZER  # what the recognizer was made for


@dataclass(frozen=True)
class Fused:
    """What all frames say together."""

    reading: Reading  # as of a single photo; its candidates are the likeliest texts
    # Calibrated, of every text that was considered, all listed ones included.
    probabilities: Mapping[str, float]


def log_likelihood(plate: SeenPlate, text: str, alphabet: str) -> float:
    """Log-probability of a text in one frame, at least log(1e-6).

    A character that is not in the alphabet is a ValueError.
    """
    return log(ctc.text_probabilities(plate.log_probs, [text], alphabet)[0] + _FLOOR)


class Fusion:
    """The frames of one track so far, and what they say together.

    The few that weigh most are kept, so that a car that stands for an hour costs no more than one
    that passes by. Frames without any text, or with NaN, are passed over; where there are no
    others, the reading is empty with a score of 0. All are of one alphabet.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader, self.alphabet = reader, reader.spec.alphabet
        self._frames: list[_Frame] = []
        self._result: Fused | None = None  # of these frames, without listed texts

    def add(self, plate: SeenPlate) -> None:
        """Take what was seen in one more frame."""
        frame = _Frame(plate, self._reader)
        if frame.texts:
            self._take(frame)

    def join(self, other: "Fusion") -> None:
        """Take another one's frames: they turned out to be of the same plate."""
        for frame in other._frames:
            self._take(frame)

    def _take(self, frame: "_Frame") -> None:
        self._result = None
        self._frames.append(frame)
        if len(self._frames) > _MOST_FRAMES:
            del self._frames[int(_weights(self._frames).argmin())]

    def result(self, listed: Sequence[str] = ()) -> Fused:
        """Read the plate; listed texts are considered even if no frame suggests them."""
        if listed:
            return self._read(listed)
        self._result = self._result or self._read(())
        return self._result

    def _read(self, listed: Sequence[str]) -> Fused:
        if not self._frames:
            nothing = Reading("", 0.0, False, UNKNOWN, (), ())
            return Fused(nothing, dict.fromkeys(listed, 0.0))
        reader, weights = self._reader, _weights(self._frames)
        seen = _likelihoods(self._frames, weights, listed, reader.spec.alphabet)
        evidence = _evidence(self._frames, weights)
        every = replace(reader.spec, candidates=10**6)
        reading = decoding.choose(seen, evidence, reader.grammar, reader.calibration, every)
        few = reading.candidates[: reader.spec.candidates]
        probabilities = dict.fromkeys(listed, 0.0) | dict(reading.candidates)
        return Fused(replace(reading, candidates=few), probabilities)


class _Frame:
    """A plate in one frame: its view, what it suggests, and how likely it makes texts."""

    def __init__(self, plate: SeenPlate, reader: Reader) -> None:
        self.plate, self._alphabet = plate, reader.spec.alphabet
        beam = {text: p for text, p in ctc.beam_decode(plate.log_probs, self._alphabet) if text}
        self._known = dict(beam)
        self.raw = ctc.greedy_decode(plate.log_probs, self._alphabet)
        likely = (text for text, p in beam.items() if p > _RESPELLED_FROM)
        spelled = chain.from_iterable(map(reader.grammar.respellings, likely))
        suggested = dict.fromkeys(chain([self.raw], beam, spelled))
        self.texts = [t for t in suggested if t and set(t) <= set(self._alphabet)] if beam else []
        self.alternatives = lru_cache(maxsize=4)(
            partial(ctc.character_alternatives, plate.log_probs, alphabet=self._alphabet)
        )
        top_left, top_right = np.array(plate.quad[:2])
        width = max(float(np.hypot(*(top_right - top_left))), 1.0)
        self.view = (log(width), *np.mean(plate.quad, axis=0).tolist())
        self.worth = min(width / _ENOUGH_PX, 1.0) * max(beam.values(), default=0.0) ** 0.5

    def probabilities(self, texts: Sequence[str]) -> list[float]:
        if len(self._known) > _MOST_TEXTS:
            self._known = {}
        new = [text for text in texts if text not in self._known]
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
    return np.asarray(worth * worth / (shared @ worth))


def _likelihoods(
    frames: Sequence[_Frame], weights: ctc.Array, listed: Sequence[str], alphabet: str
) -> Likelihoods:
    """Join the frames' likelihoods, as if they were those of one photo."""
    known = (text for text in listed if text and set(text) <= set(alphabet))
    texts = list(dict.fromkeys(chain(*(frame.texts for frame in frames), known)))
    each = np.array([frame.probabilities(texts) for frame in frames])
    joint = _join(each, texts, weights)
    # A product over frames says nothing of texts that are not in it. How much is left for them
    # says the frame that leaves least; one alone leaves what it would as a photo.
    considered = min(float(each.sum(axis=1).max()), 1.0)
    shares = np.exp(joint - joint.max())
    beam = dict(zip(texts, (considered * shares / shares.sum()).tolist(), strict=True))

    def alternatives(text: str) -> ctc.Array:
        each = np.array([frame.alternatives(text) for frame in frames])
        # The blank has no character: a text without the one at its place.
        others = [f"{place} {char}" for place in range(len(text)) for char in (*alphabet, "")]
        return np.exp(_join(each.reshape(len(frames), -1), others, weights)).reshape(each.shape[1:])

    raw = max((frame.raw for frame in frames), key=lambda text: beam.get(text, 0.0))
    return Likelihoods(raw, beam, lambda others: [beam.get(t, 0.0) for t in others], alternatives)


def _join(each: ctc.Array, texts: Sequence[str], weights: ctc.Array) -> ctc.Array:
    """(M,): logarithms of M texts' joint likelihoods, up to a constant, of (N, M) of N frames.

    O and 0 are one shape, and so are I and 1, B and 8: what the recognizer takes it for isn't
    observed anew in each frame, and between two such spellings the frames together count for
    one, and leave some doubt. Else they would outvote the grammar, which knows.
    """
    numbers: dict[str, int] = {}
    same = (text.translate(decoding.ALIKE) for text in texts)
    shapes = np.array([numbers.setdefault(shape, len(numbers)) for shape in same])
    alike = (shapes[:, None] == shapes).astype(np.float64)
    shape, spelling = np.log(each @ alike + _FLOOR), np.log(each + _FLOOR)
    spelled = weights / max(weights.sum(), 1.0) @ (spelling - shape)
    return np.asarray(weights @ shape + np.maximum(spelled, log(_LEAST_SPELLING)))


def _evidence(frames: Sequence[_Frame], weights: ctc.Array) -> Evidence:
    """Lines by weighted majority; the rest as one observation, for the light is the same."""
    seen = [frame.plate.evidence for frame in frames]
    two_lines = weights @ np.array([each.lines == 2 for each in seen]) > weights.sum() / 2
    grounds = np.array([each.ground for each in seen], np.float64)
    ground = np.exp(weights @ np.log(grounds) / weights.sum()).tolist()
    looks = np.array([(each.aspect, each.top_band) for each in seen], np.float64)
    aspect, band = np.average(looks, axis=0, weights=weights).tolist()
    return Evidence(1 + int(two_lines), tuple(ground), aspect, band)
