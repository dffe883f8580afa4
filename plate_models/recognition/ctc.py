"""Connectionist temporal classification: texts to classes and logits to texts.

After Graves et al. 2006, "Connectionist Temporal Classification". Encoding and
decoding share one file, so that training and serving agree about the blank. Log-probabilities
are (C, T) float64, C = len(alphabet) + 1, the blank last. Functions raise ValueError if C does not
fit the alphabet: weights and spec disagree.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plate_models.spec import RECOGNIZER

Array = NDArray[np.float64]
# Prefix -> probabilities of its paths that end in a blank, and of those in its last character.
Beam = dict[str, list[float]]
# The beam search ignores a step's classes with a lower probability, and drops prefixes with a
# lower probability relative to the best one.
_PRUNE_BELOW = 1e-4


def encode(text: str, alphabet: str = RECOGNIZER.alphabet) -> list[int]:
    """Convert a text to class indices; raise ValueError for characters outside the alphabet."""
    unknown = sorted(set(text) - set(alphabet))
    if unknown:
        raise ValueError(f"{text!r}: characters {unknown} are not in the alphabet {alphabet!r}")
    return [alphabet.index(char) for char in text]


def log_softmax(logits: NDArray[np.floating[Any]]) -> Array:
    """Turn logits (C, T) into log-probabilities along the class axis.

    All are NaN if a logit is NaN or infinite: such a plate is unreadable.
    """
    if not np.isfinite(logits).all():
        return np.full(logits.shape, np.nan)
    shifted = logits.astype(np.float64) - logits.max(axis=0, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=0, keepdims=True)))


def join_rows(upper: Array, lower: Array) -> Array:
    """Join the log-probabilities of a plate's two rows along time, to be decoded as one text.

    A blank step is inserted between them, because "A13" over "3" is "A133" and not "A13". Raises
    ValueError if the rows differ in their number of classes.
    """
    seam = np.full((len(upper), 1), -np.inf)
    seam[-1] = 0.0
    return np.concatenate((upper, seam, lower), axis=1)


def stack(plates: Sequence[Array]) -> NDArray[np.float32]:
    """Stack N arrays (C, t) to one (N, C, T) float32 array, T the longest t.

    Shorter arrays are padded with blank steps, which change no text's probability. Without plates
    the shape is (0, 0, 0).
    """
    shapes = [plate.shape for plate in plates] or [(0, 0)]
    stacked = np.full((len(plates), *np.max(shapes, axis=0)), -np.inf, np.float32)
    stacked[:, -1:] = 0.0
    for row, plate in zip(stacked, plates, strict=True):
        row[:, : plate.shape[1]] = plate
    return stacked


def _is_readable(log_probs: Array, alphabet: str) -> bool:
    """False if a log-probability is NaN; raise ValueError if they don't fit the alphabet."""
    if log_probs.shape[0] != len(alphabet) + 1:
        raise ValueError(
            f"expected {len(alphabet) + 1} classes (the alphabet and a blank), "
            f"got {log_probs.shape[0]}: weights and spec disagree"
        )
    return not np.isnan(log_probs).any()


def greedy_decode(log_probs: Array, alphabet: str = RECOGNIZER.alphabet) -> str:
    """Read a plate along its best path: argmax, merge repeats, drop blanks; "" if unreadable."""
    if not _is_readable(log_probs, alphabet):
        return ""
    path = log_probs.argmax(axis=0).tolist()
    # Merge repeats before dropping blanks: "A-A" must stay "AA".
    merged = [index for index, _ in groupby(path)]
    return "".join(alphabet[index] for index in merged if index < len(alphabet))


def beam_decode(
    log_probs: Array, alphabet: str = RECOGNIZER.alphabet, width: int = 12
) -> list[tuple[str, float]]:
    """List the likeliest texts by prefix beam search, best first; none if unreadable.

    After each step only the `width` best prefixes are kept. A text's probability is the sum over
    all kept paths that spell it; the probabilities sum to at most 1.
    """
    if not _is_readable(log_probs, alphabet):
        return []
    beam: Beam = {"": [1.0, 0.0]}
    for blank, likely in _steps(np.exp(log_probs), alphabet):
        beam = _advanced(beam, blank, likely)
        if likely:
            ranked = sorted(((a + b, prefix) for prefix, (a, b) in beam.items()), reverse=True)
            least = _PRUNE_BELOW * ranked[0][0]
            beam = {prefix: beam[prefix] for total, prefix in ranked[:width] if total >= least}
    # Drop texts with probability 0: repeats without a step for the blank between them.
    return [(prefix, a + b) for prefix, (a, b) in beam.items() if a + b > 0]


def _advanced(beam: Beam, blank: float, likely: list[tuple[str, float]]) -> Beam:
    """Advance a beam, best first, by one step: with the blank, a repeat, or a new character."""
    following = {prefix: [(a + b) * blank, 0.0] for prefix, (a, b) in beam.items()}
    least = _PRUNE_BELOW * sum(next(iter(beam.values())))
    for prefix, (ends_blank, ends_char) in beam.items():
        total, last = ends_blank + ends_char, prefix[-1:]
        for char, probability in likely:
            arriving = total * probability
            if arriving < least:
                break
            if char == last:
                # Without a blank in between, a repeat continues the same character.
                following[prefix][1] += ends_char * probability
                arriving = ends_blank * probability
            longer = prefix + char
            if longer in following:
                following[longer][1] += arriving
            else:
                following[longer] = [0.0, arriving]
    return following


def _steps(probs: Array, alphabet: str) -> list[tuple[float, list[tuple[str, float]]]]:
    """Per step, the blank's probability, and the characters above the threshold, best first."""
    likely: list[list[tuple[str, float]]] = [[] for _ in range(probs.shape[1])]
    classes, steps = np.nonzero(probs[:-1] > _PRUNE_BELOW)
    values = probs[classes, steps]
    ranked = np.argsort(-values)
    found = (array[ranked].tolist() for array in (steps, classes, values))
    for step, index, value in zip(*found, strict=True):
        likely[step].append((alphabet[index], value))
    return list(zip(probs[-1].tolist(), likely, strict=True))


def text_probabilities(log_probs: Array, texts: Sequence[str], alphabet: str) -> list[float]:
    """Compute the exact probability of each text: the sum over all of its alignments.

    It is 0 for a text that is too long for T steps, and for all texts if unreadable.
    """
    encoded = [encode(text, alphabet) for text in texts]
    if not _is_readable(log_probs, alphabet) or not encoded:
        return [0.0] * len(texts)
    probs = np.broadcast_to(np.exp(log_probs), (len(texts), *log_probs.shape))
    reached = _forward(probs, encoded)[-1]
    ends = [2 * len(labels) + 1 for labels in encoded]
    return [float(row[end] + row[end + 1]) for row, end in zip(reached, ends, strict=True)]


def character_alternatives(log_probs: Array, text: str, alphabet: str) -> Array:
    """Compute the exact probabilities of a text with one character replaced or left out.

    The forward-backward algorithm sums the alignments of the text before and after each place once,
    and combines them with every character in that place. An entry divided by its row's sum is the
    character's posterior at that place, given the rest of the text.

    Returns:
        (len(text), C) float64: entry (i, k) is the probability of the text with character
        i replaced by ``alphabet[k]``, or without it if k is the blank. All 0 if unreadable.
    """
    labels = encode(text, alphabet)
    if not _is_readable(log_probs, alphabet) or not labels or not log_probs.shape[1]:
        return np.zeros((len(labels), len(alphabet) + 1))
    probs = np.exp(log_probs)
    # The backward pass is a forward pass over the reversed steps and text.
    both = _forward(np.stack([probs, probs[:, ::-1]]), [labels, labels[::-1]])
    before, after = both[:, 0], both[:, 1]
    inside = _inside(_entered(before, labels, len(alphabet)), probs)
    left = _entered(after, labels[::-1], len(alphabet))[::-1, ::-1]
    replaced = np.einsum("tlc,tlc->lc", inside, left)
    return np.column_stack([replaced, _left_out(before, after, labels)])


def _forward(probs: Array, encoded: Sequence[Sequence[int]]) -> Array:
    """Sum the paths through each text's states: the forward algorithm (section 4.1).

    The states of a text are a start, then blank, c1, blank, … blank. The probabilities are
    (N, C, T), the encoded texts N lists of classes. Returns (T + 1, N, 2 L + 3) for the longest
    length L: entry (t, n, j) is the probability of all paths of t steps that end in state j - 1.
    Column 0 is padding and always 0.
    """
    longest = max(map(len, encoded))
    texts, classes, steps = probs.shape
    # An extra class of probability 0 stands for the start and for the padding of shorter texts.
    emitted = np.concatenate([probs, np.zeros((texts, 1, steps))], axis=1)
    # Two columns of padding before each text keep paths from running into the next text.
    states = np.full((texts, 2 * longest + 4), classes)
    for row, labels in enumerate(encoded):
        states[row, 3 : 2 * len(labels) + 4 : 2] = classes - 1
        states[row, 4 : 2 * len(labels) + 4 : 2] = labels
    # A blank may be skipped between two different characters only.
    skips = np.zeros(states.shape)
    skips[:, 2:] = (states[:, 2:] < classes - 1) & (states[:, 2:] != states[:, :-2])
    emissions = emitted[np.arange(texts)[:, None], states].reshape(states.size, steps).T
    reached = np.zeros((steps + 1, *states.shape))
    reached[0, :, 2] = 1.0
    # All texts are laid out in one row: NumPy is several times faster in one dimension than in two.
    rows, skipped = reached.reshape(steps + 1, -1), skips.reshape(-1)[2:]
    for now, following, emission in zip(rows, rows[1:, 2:], emissions[:, 2:], strict=False):
        np.multiply(now[:-2], skipped, out=following)
        following += now[1:-1]
        following += now[2:]
        following *= emission
    return reached[:, :, 1:]


def _entered(reached: Array, labels: Sequence[int], characters: int) -> Array:
    """(T, L, characters): probability of all paths that can enter a character at a place."""
    allowed = np.ones((len(labels), characters))
    # Directly after the same character, the path would continue that character.
    allowed[np.arange(1, len(labels)), labels[:-1]] = 0.0
    blanks, neighbours = reached[:-1, 2:-1:2], reached[:-1, 1:-2:2]
    return np.asarray(blanks[:, :, None] + neighbours[:, :, None] * allowed)


def _inside(entered: Array, probs: Array) -> Array:
    """(T, L, characters): probability of all paths that are, in a step, in that character."""
    inside = entered.reshape(len(entered), -1).copy()
    emissions = np.tile(probs[:-1].T, entered.shape[1])
    staying = np.zeros(inside.shape[1])
    for now, emission in zip(inside, emissions, strict=True):
        now += staying
        now *= emission
        staying = now
    return inside.reshape(entered.shape)


def _left_out(before: Array, after: Array, labels: Sequence[int]) -> Array:
    """(L,): the probability of the text without the character at a place."""
    apart = np.ones(len(labels))
    apart[1:-1] = [a != b for a, b in zip(labels[:-2], labels[2:], strict=True)]
    # Paths that end before the place, and paths that continue with the next character.
    stopped = before[:, 2:-1:2] + before[:, 1:-2:2] * apart
    resumed = after[::-1, 1:-2:2][:, ::-1]
    return np.asarray((stopped * resumed).sum(axis=0))
