"""From the recognizer's log-probabilities to a reading: beam, grammar, scores."""

from dataclasses import dataclass

import numpy as np

from plate_models import ctc, formats
from plate_models.spec import RECOGNIZER


@dataclass(frozen=True)
class Reading:
    """What stands on one plate, as far as it can be read.

    Attributes:
        text: The reading, "" where it is not ``readable``.
        score: Probability that the best candidate is right, in [0, 1].
        readable: The format is known and no character scores too little.
        format: Such as "ru.car", of the best candidate; "unknown" if none fits.
        characters: The best candidate's characters with their scores.
        candidates: Texts with their scores, best first; the raw best path is among them.
    """

    text: str
    score: float
    readable: bool
    format: str
    characters: tuple[tuple[str, float], ...]
    candidates: tuple[tuple[str, float], ...]


def choose_reading(log_probs: ctc.Array) -> Reading:
    """Choose among what the recognizer saw, with the formats' grammar as a prior.

    Args:
        log_probs: (C, T) float, from :func:`ctc.log_softmax`.

    Returns:
        The reading. Nothing is forbidden: a text of unknown format wins where the
        recognizer is sure enough of it.
    """
    beam = ctc.beam_decode(log_probs)
    weighted = [(text, p * formats.prior_of(text)) for text, p in beam if text]
    # Mass outside the beam counts as wrong, so a blurred plate can't score 1.
    total = sum(p for _, p in weighted) + max(0.0, 1.0 - sum(p for _, p in beam))
    ranked = sorted(((text, p / total) for text, p in weighted), key=lambda pair: -pair[1])
    if not ranked:
        return Reading("", 0.0, False, formats.UNKNOWN, (), ())
    candidates = _with_raw(ranked, ctc.greedy_decode(log_probs))
    best, score = candidates[0]
    alternatives = ctc.character_alternatives(log_probs, best)
    chosen = alternatives[range(len(best)), ctc.encode(best)]
    scores = (chosen / np.maximum(alternatives.sum(axis=1), 1e-300)).tolist()
    characters = tuple(zip(best, scores, strict=True))
    format_name = formats.format_of(best)
    lowest = min(score for _, score in characters)
    readable = format_name != formats.UNKNOWN and lowest >= RECOGNIZER.min_character_score
    return Reading(best if readable else "", score, readable, format_name, characters, candidates)


def _with_raw(ranked: list[tuple[str, float]], raw: str) -> tuple[tuple[str, float], ...]:
    """Keep the best few, and the raw best path even if the grammar ranks it lower."""
    kept = ranked[: RECOGNIZER.candidates]
    if raw and raw not in (text for text, _ in kept):
        kept[-1] = next((pair for pair in ranked if pair[0] == raw), (raw, 0.0))
    return tuple(kept)
