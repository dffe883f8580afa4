"""From the recognizer's log-probabilities to a reading: beam, grammar, scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from plate_models.formats import grammar_of
from plate_models.recognition import ctc
from plate_models.recognition.calibration import UNCALIBRATED, Calibration
from plate_models.recognition.grammar import UNKNOWN, Evidence, Grammar, Reading, country_of
from plate_models.spec import RECOGNIZER, RecognizerSpec

DEFAULT_GRAMMAR = grammar_of(*RECOGNIZER.countries)
# No prior makes up for a lower likelihood: such texts aren't respelled, such characters not judged.
_NEGLIGIBLE = 1e-3
LENGTHS = range(3, 11)  # of plates' texts
# Letters with the shape of a digit. The recognizer tells them apart in typefaces that it learnt. In
# others, either gets at least the share _SPELLING_FLOOR of the other's likelihood, so that a format
# decides if one fits.
_DIGITS = {"O": "0", "I": "1", "B": "8"}
ALIKE, _SPELLING_FLOOR = str.maketrans(_DIGITS), 0.01
ONE_LINE = Evidence()


@dataclass(frozen=True)
class Likelihoods:
    """Likelihoods of texts by the recognizer's output, for one photo or several."""

    raw: str  # the best path's text
    beam: Mapping[str, float]  # of the likeliest texts; they sum to at most 1
    of: Callable[[Sequence[str]], Sequence[float]]  # of any further texts
    alternatives: Callable[[str], ctc.Array]  # see `ctc.character_alternatives`


def choose_reading(
    log_probs: ctc.Array,
    evidence: Evidence = ONE_LINE,
    grammar: Grammar = DEFAULT_GRAMMAR,
    calibration: Calibration = UNCALIBRATED,
    spec: RecognizerSpec = RECOGNIZER,
    further: Sequence[ctc.Array] = (),
) -> Reading:
    """Choose a plate's text from the recognizer's output, with the formats' grammar as a prior.

    Candidates are the texts of the beam and the best path, and their respellings (O for 0). A text
    of unknown format wins if it is clear enough. A plate that is readable in a format of the home
    country is read as if there were no other country.

    The log-probabilities are (C, T) float, two rows joined by `ctc.join_rows`. If they are NaN or
    spell no text, the reading is empty with a score of 0. With further views of the plate, such as
    other crops, the likelihood of a text is its mean over all views.
    """
    views = (log_probs, *further)
    beam: dict[str, float] = {}
    for text, p in chain.from_iterable(ctc.beam_decode(each, spec.alphabet) for each in views):
        if text:
            beam[text] = beam.get(text, 0.0) + p / len(views)
    found = Likelihoods(
        ctc.greedy_decode(log_probs, spec.alphabet),
        beam,
        lambda texts: np.mean(
            [ctc.text_probabilities(each, texts, spec.alphabet) for each in views], axis=0
        ).tolist(),
        lambda text: np.mean(
            [ctc.character_alternatives(each, text, spec.alphabet) for each in views], axis=0
        ),
    )
    return choose(found, evidence, grammar, calibration, spec)


def choose(
    found: Likelihoods,
    evidence: Evidence,
    grammar: Grammar,
    calibration: Calibration,
    spec: RecognizerSpec,
) -> Reading:
    """Choose a text as `choose_reading` does, given its likelihoods."""
    for tried in filter(None, (grammar.home, grammar)):
        # Training used the exact typeface of the weights' first country.
        learnt = tried.abroad is None and tried.name == spec.countries[0]
        floor = 0.0 if learnt else _SPELLING_FLOOR
        ranked = _posteriors(found, evidence, tried, spec.alphabet, floor)
        if not ranked:
            return Reading("", 0.0, UNKNOWN, (), ())
        candidates = _scored(_with_raw(ranked, found.raw, spec.candidates), calibration)
        best, score = candidates[0]
        format_name = tried.judge(best, evidence)[0]
        at_home = country_of(format_name) == grammar.name
        least = calibration.readable_from if at_home else calibration.elsewhere_readable_from
        readable = score >= least and len(best) in LENGTHS
        if readable and at_home:
            break
    characters = _characters(found, best, evidence, tried, spec.alphabet, floor)
    return Reading(best if readable else "", score, format_name, characters, candidates)


def _scored(
    posteriors: list[tuple[str, float]], calibration: Calibration
) -> tuple[tuple[str, float], ...]:
    """Calibrate the best candidate's score; the others share the rest in proportion."""
    (best, posterior), *others = posteriors
    score = calibration.apply(posterior)
    share = (1 - score) / (1 - posterior) if posterior < 1 else 0.0
    return ((best, score), *((text, min(score, p * share)) for text, p in others))


def _posteriors(
    found: Likelihoods, evidence: Evidence, grammar: Grammar, alphabet: str, floor: float
) -> list[tuple[str, float]]:
    """Each candidate's probability of being right, by likelihood and grammar, best first."""
    likelihoods = dict(found.beam)
    listed = [found.raw, *(text for text, p in likelihoods.items() if p > _NEGLIGIBLE)]
    spelled = (other for text in listed for other in grammar.respellings(text))
    known = set(alphabet)
    new = dict.fromkeys(text for text in (found.raw, *spelled) if text and set(text) <= known)
    added = [text for text in new if text not in likelihoods]
    likelihoods |= zip(added, found.of(added), strict=True)
    weighted = [
        (p * weight, weight, text)
        for text, p in (_with_floor(likelihoods, floor) if floor else likelihoods).items()
        for _, weight in [grammar.judge(text, evidence)]
        if p > 0
    ]
    if not weighted:
        return []
    weighted.sort(key=lambda entry: -entry[0])
    # The likelihood outside the candidates counts as wrong, so that a blurred plate can't score 1.
    # It gets the best candidate's weight, to have the same effect on plates of rare formats.
    outside = max(0.0, 1.0 - sum(likelihoods.values())) * weighted[0][1]
    total = sum(p for p, _, _ in weighted) + outside
    return [(text, p / total) for p, _, text in weighted]


def _with_floor(likelihoods: Mapping[str, float], floor: float) -> dict[str, float]:
    """Raise likelihoods to the likeliest look-alike's times `floor` per differing character."""
    ranked = sorted(likelihoods, key=lambda text: likelihoods[text])
    likeliest = {text.translate(ALIKE): text for text in ranked}  # the last spelling of each shape

    def least(text: str) -> float:
        best = likeliest[text.translate(ALIKE)]
        others = sum(a != b for a, b in zip(text, best, strict=True))
        return likelihoods[best] * floor**others

    return {text: max(p, least(text)) for text, p in likelihoods.items()}


def _characters(
    found: Likelihoods, text: str, evidence: Evidence, grammar: Grammar, alphabet: str, floor: float
) -> tuple[tuple[str, float], ...]:
    """Each character's posterior at its place, given the rest of the text.

    It is summed over all alignments and weighted by the grammar, and compares the character with
    all others and with none: an O that resembles a 0 is sure in a place for letters.
    """
    alternatives = found.alternatives(text)
    for letter, digit in _DIGITS.items():
        if floor and letter in alphabet and digit in alphabet:
            pair = [alphabet.index(letter), alphabet.index(digit)]
            least = floor * alternatives[:, pair].max(axis=1, keepdims=True)
            alternatives[:, pair] = np.maximum(alternatives[:, pair], least)
    own = ctc.encode(text, alphabet)
    weight = grammar.judge(text, evidence)[1]
    weights = np.full(alternatives.shape, weight)
    places, classes = np.nonzero(
        alternatives > _NEGLIGIBLE * alternatives.sum(axis=1, keepdims=True)
    )
    for place, index in zip(places.tolist(), classes.tolist(), strict=True):
        if index != own[place]:
            other = text[:place] + alphabet[index : index + 1] + text[place + 1 :]
            weights[place, index] = grammar.judge(other, evidence)[1]
    weighted = alternatives * weights
    scores = weighted[np.arange(len(own)), own] / weighted.sum(axis=1)
    return tuple(zip(text, scores.tolist(), strict=True))


def _with_raw(ranked: list[tuple[str, float]], raw: str, count: int) -> list[tuple[str, float]]:
    """Keep the best `count`, including the best path's text even if the grammar ranks it lower."""
    kept = ranked[:count]
    if raw and raw not in (text for text, _ in kept):
        kept[-1] = next((pair for pair in ranked if pair[0] == raw), (raw, 0.0))
    return kept
