"""Fuse all frames of a plate into one reading.

The frames' likelihoods of each text are combined, not the frames' texts. The grammar is applied
once, at the end, by the function that chooses the text of a single photo.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from math import log

import numpy as np

from plate_models.recognition import ctc, decoding
from plate_models.recognition.calibration import UNCALIBRATED, Calibration
from plate_models.recognition.decoding import DEFAULT_GRAMMAR, Likelihoods
from plate_models.recognition.grammar import UNKNOWN, Evidence, Grammar, Reading
from plate_models.spec import RECOGNIZER, RecognizerSpec
from plates.cameras.events import Model
from plates.cameras.frames import SeenPlate

# The constants were chosen on rendered clips; halving or doubling any of them changes little.
# Added to each likelihood of a text in a frame, so that a bad frame can't veto a text.
_FLOOR = 1e-6
# The weight of a frame grows with the plate's width up to this many pixels.
_FULL_WIDTH_PX = 120.0
# The correlation of two frames' errors: this part is constant (dirt, light, the text itself); the
# rest decays with the difference of their scales (log of the width) and their distance (in widths).
_ALWAYS_SHARED, _SCALE, _DISTANCE = 0.5, 0.2, 1.0
# Respellings (O for 0) are tried for texts with at least this likelihood in a frame.
_RESPELLED_FROM = 1e-3
# The least share of a spelling among all spellings of its shape: the recognizer may not know the
# typeface, and frames that agree don't change that.
_LEAST_SPELLING = 0.05
# At most so many frames are kept of a pass, and so many texts cached with each frame.
_MOST_FRAMES, _MOST_TEXTS = 12, 500


@dataclass(frozen=True)
class Reader:
    """The settings with which texts are chosen, and the model that they belong to."""

    grammar: Grammar = DEFAULT_GRAMMAR
    # Measured on single photos; with `UNCALIBRATED` the scores are raw posteriors.
    calibration: Calibration = UNCALIBRATED
    spec: RecognizerSpec = RECOGNIZER
    model: Model = field(default_factory=partial(Model, version="", weights=""))


@dataclass(frozen=True)
class Fused:
    """The joint reading of all frames."""

    reading: Reading  # in the form of a single photo's; the candidates are the likeliest texts
    # Calibrated, of every text that was considered, including all listed texts.
    probabilities: Mapping[str, float]


def log_likelihood(plate: SeenPlate, text: str, alphabet: str) -> float:
    """Log-probability of a text in one frame, at least log(1e-6).

    Raises ValueError if a character is not in the alphabet.
    """
    return log(ctc.text_probabilities(plate.log_probs, [text], alphabet)[0] + _FLOOR)


class Fusion:
    """The frames of one track so far, and their joint reading.

    Only the frames with the highest weights are kept, so that a car that is parked for an hour
    needs no more time and memory than a passing one. Frames without text, or with NaN, are ignored;
    without other frames the reading is empty with a score of 0. All must have the same alphabet.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader, self.alphabet = reader, reader.spec.alphabet
        self._frames: list[_Frame] = []
        self._result: Fused | None = None  # cached, for these frames without listed texts

    def add(self, plate: SeenPlate) -> None:
        """Add the plate's detection in one more frame."""
        frame = _Frame(plate, self._reader)
        if frame.texts:
            self._add(frame)

    def join(self, other: "Fusion") -> None:
        """Add the frames of another track, which turned out to be of the same plate."""
        for frame in other._frames:
            self._add(frame)

    def _add(self, frame: "_Frame") -> None:
        self._result = None
        self._frames.append(frame)
        if len(self._frames) > _MOST_FRAMES:
            del self._frames[int(_weights(self._frames).argmin())]

    def result(self, listed: Sequence[str] = ()) -> Fused:
        """Read the plate; listed texts are candidates even if no frame suggests them."""
        if listed:
            return self._read(listed)
        self._result = self._result or self._read(())
        return self._result

    def _read(self, listed: Sequence[str]) -> Fused:
        if not self._frames:
            return Fused(Reading("", 0.0, UNKNOWN, (), ()), dict.fromkeys(listed, 0.0))
        reader, weights = self._reader, _weights(self._frames)
        seen = _likelihoods(self._frames, weights, listed, reader.spec.alphabet)
        evidence = _evidence(self._frames, weights)
        every = replace(reader.spec, candidates=10**6)
        reading = decoding.choose(seen, evidence, reader.grammar, reader.calibration, every)
        few = reading.candidates[: reader.spec.candidates]
        probabilities = dict.fromkeys(listed, 0.0) | dict(reading.candidates)
        return Fused(replace(reading, candidates=few), probabilities)


class _Frame:
    """A plate in one frame: its position, the texts it suggests, and the likelihoods of texts."""

    def __init__(self, plate: SeenPlate, reader: Reader) -> None:
        self.plate, self._alphabet = plate, reader.spec.alphabet
        beam = {text: p for text, p in ctc.beam_decode(plate.log_probs, self._alphabet) if text}
        self._cache = dict(beam)  # likelihoods by text
        self.raw = ctc.greedy_decode(plate.log_probs, self._alphabet)
        likely = (text for text, p in beam.items() if p > _RESPELLED_FROM)
        spelled = chain.from_iterable(map(reader.grammar.respellings, likely))
        suggested = dict.fromkeys(chain([self.raw], beam, spelled))
        self.texts = [t for t in suggested if t and set(t) <= set(self._alphabet)] if beam else []
        likelihoods = partial(ctc.character_alternatives, plate.log_probs, alphabet=self._alphabet)
        self.alternatives = lru_cache(maxsize=4)(likelihoods)
        top_left, top_right = np.array(plate.quad[:2])
        width = max(float(np.hypot(*(top_right - top_left))), 1.0)
        self.position = (log(width), *np.mean(plate.quad, axis=0).tolist())
        self.quality = min(width / _FULL_WIDTH_PX, 1.0) * max(beam.values(), default=0.0) ** 0.5

    def probabilities(self, texts: Sequence[str]) -> list[float]:
        if len(self._cache) > _MOST_TEXTS:
            self._cache = {}
        new = [text for text in texts if text not in self._cache]
        found = ctc.text_probabilities(self.plate.log_probs, new, self._alphabet)
        self._cache |= zip(new, found, strict=True)
        return [self._cache[text] for text in texts]


def _weights(frames: Sequence[_Frame]) -> ctc.Array:
    """(N,): as how many observations each frame counts; a single one as 1, N equal ones as 1 / N.

    A frame's weight is its quality (size and clarity) relative to the best frame, divided among the
    frames with correlated errors: N frames of one view are little more than one observation.
    """
    positions = np.array([frame.position for frame in frames])
    quality = np.array([frame.quality for frame in frames])
    quality = quality / quality.max()
    scales, centres = positions[:, :1], positions[:, None, 1:]
    distances = np.linalg.norm(centres - centres.swapaxes(0, 1), axis=2)
    distances /= np.exp(np.minimum(scales, scales.T))
    similarity = np.exp(-np.abs(scales - scales.T) / _SCALE - distances / _DISTANCE)
    correlation = _ALWAYS_SHARED + (1 - _ALWAYS_SHARED) * similarity
    return np.asarray(quality * quality / (correlation @ quality))


def _likelihoods(
    frames: Sequence[_Frame], weights: ctc.Array, listed: Sequence[str], alphabet: str
) -> Likelihoods:
    """Combine the frames' likelihoods into the likelihoods of one photo."""
    valid = (text for text in listed if text and set(text) <= set(alphabet))
    texts = list(dict.fromkeys(chain(*(frame.texts for frame in frames), valid)))
    each = np.array([frame.probabilities(texts) for frame in frames])
    joint = _join(each, texts, weights)
    # The joint likelihoods are relative; the probability left for all other texts is that of the
    # frame that leaves least. A single frame leaves as much as it does as a photo.
    considered = min(float(each.sum(axis=1).max()), 1.0)
    shares = np.exp(joint - joint.max())
    beam = dict(zip(texts, (considered * shares / shares.sum()).tolist(), strict=True))

    def alternatives(text: str) -> ctc.Array:
        each = np.array([frame.alternatives(text) for frame in frames])
        # The blank's column, "", is the text without the character at that place.
        others = [f"{place} {char}" for place in range(len(text)) for char in (*alphabet, "")]
        return np.exp(_join(each.reshape(len(frames), -1), others, weights)).reshape(each.shape[1:])

    raw = max((frame.raw for frame in frames), key=lambda text: beam.get(text, 0.0))
    return Likelihoods(raw, beam, lambda others: [beam.get(t, 0.0) for t in others], alternatives)


def _join(each: ctc.Array, texts: Sequence[str], weights: ctc.Array) -> ctc.Array:
    """(M,): logs of M texts' joint likelihoods, up to a constant; `each` is (N, M), of N frames.

    O and 0 have the same shape, and so do I and 1, B and 8. The recognizer takes a shape for the
    same character in every frame, so that between two such spellings all frames count as one and
    stay a little uncertain. Else they would outvote the grammar, which knows the right one.
    """
    shapes = np.unique([text.translate(decoding.ALIKE) for text in texts], return_inverse=True)[1]
    alike = (shapes[:, None] == shapes).astype(np.float64)
    shape, spelling = np.log(each @ alike + _FLOOR), np.log(each + _FLOOR)
    spelled = weights / max(weights.sum(), 1.0) @ (spelling - shape)
    return np.asarray(weights @ shape + np.maximum(spelled, log(_LEAST_SPELLING)))


def _evidence(frames: Sequence[_Frame], weights: ctc.Array) -> Evidence:
    """Weighted majority of lines, means of the rest: one observation, as the light is the same."""
    seen = [frame.plate.evidence for frame in frames]
    two_lines = weights @ np.array([each.lines == 2 for each in seen]) > weights.sum() / 2
    grounds = np.array([each.ground for each in seen], np.float64)
    ground = np.exp(weights @ np.log(grounds) / weights.sum()).tolist()
    shapes = np.array([(each.aspect, each.top_band) for each in seen], np.float64)
    aspect, band = np.average(shapes, axis=0, weights=weights).tolist()
    return Evidence(1 + int(two_lines), tuple(ground), aspect, band)
