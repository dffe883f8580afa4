"""Connectionist temporal classification: texts to classes and logits to texts.

After Graves et al. 2006, "Connectionist Temporal Classification". Encoding and
decoding share one file, so that training and serving agree about the blank.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plate_models.recognition.alignments import alternatives, forward
from plate_models.spec import RECOGNIZER

Array = NDArray[np.float64]
# Prefix -> probability of the paths that end in a blank, and in its last character.
Beam = dict[str, list[float]]
# A class less likely than this in a step starts no prefix of its own.
_PRUNE_BELOW = 1e-4


def encode(text: str, alphabet: str = RECOGNIZER.alphabet) -> list[int]:
    """Write a text as class indices.

    Raises:
        ValueError: A character is not in the alphabet.
    """
    unknown = sorted(set(text) - set(alphabet))
    if unknown:
        raise ValueError(f"{text!r}: characters {unknown} are not in the alphabet {alphabet!r}")
    return [alphabet.index(char) for char in text]


def log_softmax(logits: NDArray[np.floating[Any]]) -> Array:
    """Turn logits into log-probabilities along the class axis.

    Args:
        logits: (C, T) float, unnormalised.

    Returns:
        (C, T) float64; each column's exponentials sum to 1. NaN everywhere if a logit is
        NaN or infinite: such a plate is unreadable, see :func:`is_unreadable`.

    Raises:
        ValueError: The array is not two-dimensional.
    """
    if logits.ndim != 2:
        raise ValueError(f"logits: expected (C, T), got {logits.shape}: pass one plate at a time")
    if not np.isfinite(logits).all():
        return np.full(logits.shape, np.nan)
    shifted = logits.astype(np.float64) - logits.max(axis=0, keepdims=True)
    log_total: Array = shifted - np.log(np.exp(shifted).sum(axis=0, keepdims=True))
    return log_total


def is_unreadable(log_probs: Array) -> bool:
    """Whether nothing can be read from log-probabilities, because one of them is NaN."""
    return bool(np.isnan(log_probs).any())


def join_rows(rows: Sequence[Array]) -> Array:
    """Join the rows of a plate along time, so that they are decoded as one text.

    Args:
        rows: Log-probabilities of the rows from top to bottom, each (C, T).

    Returns:
        (C, sum of T + number of rows - 1): a step that is certainly blank stands between
        two rows, because "A13" over "3" is "A133" and not "A13".

    Raises:
        ValueError: There is no row, or the rows differ in their classes.
    """
    if not rows or len({row.shape[0] for row in rows}) != 1:
        shapes = [row.shape for row in rows]
        raise ValueError(f"rows: expected one or more (C, T) with the same C, got {shapes}")
    seam = np.full((rows[0].shape[0], 1), -np.inf)
    seam[-1] = 0.0
    return np.concatenate([part for row in rows for part in (seam, row)][1:], axis=1)


def _check_classes(log_probs: Array, alphabet: str) -> None:
    if log_probs.shape[0] != len(alphabet) + 1:
        raise ValueError(
            f"expected {len(alphabet) + 1} classes (the alphabet and a blank), "
            f"got {log_probs.shape[0]}: weights and spec disagree"
        )


def greedy_decode(log_probs: Array, alphabet: str = RECOGNIZER.alphabet) -> str:
    """Read a plate along its best path: argmax, merge repeats, drop blanks.

    Args:
        log_probs: (C, T) float; C = len(alphabet) + 1, blank last.
        alphabet: Characters in class order, without the blank.

    Returns:
        The text, empty if every step is blank or nothing can be read.

    Raises:
        ValueError: C does not fit the alphabet (weights and spec disagree).
    """
    _check_classes(log_probs, alphabet)
    if is_unreadable(log_probs):
        return ""
    path = log_probs.argmax(axis=0).tolist()
    # Merge repeats before dropping blanks: "A-A" must stay "AA".
    merged = [index for index, _ in groupby(path)]
    return "".join(alphabet[index] for index in merged if index < len(alphabet))


def beam_decode(
    log_probs: Array, alphabet: str = RECOGNIZER.alphabet, width: int = 12
) -> list[tuple[str, float]]:
    """List the likeliest texts by prefix beam search.

    Args:
        log_probs: (C, T) float; C = len(alphabet) + 1, blank last.
        alphabet: Characters in class order, without the blank.
        width: Prefixes kept after each step.

    Returns:
        At most ``width`` pairs (text, probability), best first; probabilities are those of
        all kept paths that spell the text, and sum to at most 1. None if unreadable.

    Raises:
        ValueError: C does not fit the alphabet (weights and spec disagree).
    """
    _check_classes(log_probs, alphabet)
    if is_unreadable(log_probs):
        return []
    beam: Beam = {"": [1.0, 0.0]}
    for blank, likely in _steps(np.exp(log_probs), alphabet):
        following = _followed(beam, blank, likely)
        beam = following if len(following) <= width else _likeliest(following, width)
    # A repeat without room for a blank between has probability 0: no text at all.
    ranked = _likeliest(beam, width).items()
    return [(prefix, a + b) for prefix, (a, b) in ranked if a + b > 0]


def _followed(beam: Beam, blank: float, likely: list[tuple[str, float]]) -> Beam:
    """One step: every prefix goes on with the blank, itself, or a further character."""
    following: Beam = {}
    for prefix, (ends_blank, ends_char) in beam.items():
        total = ends_blank + ends_char
        same = following.setdefault(prefix, [0.0, 0.0])
        same[0] += total * blank
        last = prefix[-1:]
        for char, probability in likely:
            arriving = total * probability
            if char == last:
                # Without a blank between, a repeat is the same character going on.
                same[1] += ends_char * probability
                arriving = ends_blank * probability
            longer = prefix + char
            if longer in following:
                following[longer][1] += arriving
            else:
                following[longer] = [0.0, arriving]
    return following


def _steps(probs: Array, alphabet: str) -> list[tuple[float, list[tuple[str, float]]]]:
    """Per step the blank's probability and the characters that may start a prefix."""
    likely: list[list[tuple[str, float]]] = [[] for _ in range(probs.shape[1])]
    steps, classes = np.nonzero(probs[:-1].T > _PRUNE_BELOW)
    values = probs[classes, steps].tolist()
    for step, index, value in zip(steps.tolist(), classes.tolist(), values, strict=True):
        likely[step].append((alphabet[index], value))
    return list(zip(probs[-1].tolist(), likely, strict=True))


def _likeliest(prefixes: Beam, width: int) -> Beam:
    items = list(prefixes.items())
    # Sorted by a list's look-up: a function of our own would be called for every prefix.
    negated = [-(ends_blank + ends_char) for ends_blank, ends_char in prefixes.values()]
    ranked = sorted(range(len(items)), key=negated.__getitem__)
    return dict(items[index] for index in ranked[:width])


def text_probabilities(
    log_probs: Array, texts: Sequence[str], alphabet: str = RECOGNIZER.alphabet
) -> list[float]:
    """Give the exact probability of each text: the sum over all of its alignments.

    The forward algorithm of Graves et al. 2006, section 4.1.

    Args:
        log_probs: (C, T) float; C = len(alphabet) + 1, blank last.
        texts: Any number of texts of any lengths.
        alphabet: Characters in class order, without the blank.

    Returns:
        One probability in [0, 1] per text; 0 if it is too long for T steps or unreadable.

    Raises:
        ValueError: C does not fit the alphabet, or a text has unknown characters.
    """
    _check_classes(log_probs, alphabet)
    encoded = [encode(text, alphabet) for text in texts]
    if not encoded or is_unreadable(log_probs):
        return [0.0] * len(texts)
    probs = np.broadcast_to(np.exp(log_probs), (len(texts), *log_probs.shape))
    reached = forward(probs, encoded)[-1]
    ends = [2 * len(labels) + 1 for labels in encoded]
    return [float(row[end] + row[end + 1]) for row, end in zip(reached, ends, strict=True)]


def character_alternatives(
    log_probs: Array, text: str, alphabet: str = RECOGNIZER.alphabet
) -> Array:
    """Give the exact probability of a text with one character replaced, or left out.

    Forward-backward over all alignments: what stands before a place and what stands after
    it are summed once, and every character is tried in between. An entry divided by its
    row's sum is a posterior: how sure the place is, given the rest of the text.

    Args:
        log_probs: (C, T) float; C = len(alphabet) + 1, blank last.
        text: The text whose characters are replaced, one at a time.
        alphabet: Characters in class order, without the blank.

    Returns:
        (len(text), C) float64: entry (i, k) is the probability of the text with character
        i replaced by ``alphabet[k]``, and with the blank's k, of the text without it. All
        0 if unreadable.

    Raises:
        ValueError: C does not fit the alphabet, or the text has unknown characters.
    """
    _check_classes(log_probs, alphabet)
    labels = encode(text, alphabet)
    if not labels or not log_probs.shape[1] or is_unreadable(log_probs):
        return np.zeros((len(labels), len(alphabet) + 1))
    return alternatives(np.exp(log_probs), labels)
