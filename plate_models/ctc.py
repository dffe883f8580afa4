"""Connectionist temporal classification: texts to classes and logits to texts.

After Graves et al. 2006, "Connectionist Temporal Classification". Encoding and
decoding share one file, so that training and serving agree about the blank.
"""

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plate_models.spec import RECOGNIZER

Array = NDArray[np.float64]
_NEVER = -np.inf
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
        (C, T) float64; each column's exponentials sum to 1.

    Raises:
        ValueError: The array is not two-dimensional.
    """
    if logits.ndim != 2:
        raise ValueError(f"logits: expected (C, T), got {logits.shape}: pass one plate at a time")
    shifted = logits.astype(np.float64) - logits.max(axis=0, keepdims=True)
    log_total: Array = shifted - np.log(np.exp(shifted).sum(axis=0, keepdims=True))
    return log_total


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
        The text, empty if every step is blank.

    Raises:
        ValueError: C does not fit the alphabet (weights and spec disagree).
    """
    _check_classes(log_probs, alphabet)
    path = log_probs.argmax(axis=0)
    # Merge repeats before dropping blanks: "A-A" must stay "AA".
    merged = path[np.flatnonzero(np.diff(path, prepend=-1))]
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
        At most ``width`` pairs (text, probability), best first; probabilities are those
        of all kept paths that spell the text, so they sum to at most 1.

    Raises:
        ValueError: C does not fit the alphabet (weights and spec disagree).
    """
    _check_classes(log_probs, alphabet)
    blank = len(alphabet)
    steps = np.exp(log_probs.T)
    # Prefix -> probability of the paths that end in a blank, and in its last character.
    beam: dict[str, tuple[float, float]] = {"": (1.0, 0.0)}
    for step in steps:
        following: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        likely = [
            (alphabet[k], float(step[k])) for k in np.flatnonzero(step[:blank] > _PRUNE_BELOW)
        ]
        for prefix, (ends_blank, ends_char) in beam.items():
            total = ends_blank + ends_char
            following[prefix][0] += total * float(step[blank])
            for char, probability in likely:
                if prefix.endswith(char):
                    following[prefix][1] += ends_char * probability
                    following[prefix + char][1] += ends_blank * probability
                else:
                    following[prefix + char][1] += total * probability
        best = sorted(following.items(), key=lambda item: -sum(item[1]))[:width]
        beam = {prefix: (a, b) for prefix, (a, b) in best}
    # A repeat without room for a blank between has probability 0: no text at all.
    return [(prefix, a + b) for prefix, (a, b) in beam.items() if a + b > 0]


def character_scores(
    log_probs: Array, text: str, alphabet: str = RECOGNIZER.alphabet
) -> list[float]:
    """Score each character of a text where the text's best alignment puts it.

    Args:
        log_probs: (C, T) float; C = len(alphabet) + 1, blank last.
        text: The text to align.
        alphabet: Characters in class order, without the blank.

    Returns:
        One probability in [0, 1] per character: the highest of the steps given to it.
        All 0 if the text is too long for T steps.

    Raises:
        ValueError: C does not fit the alphabet, or the text has unknown characters.
    """
    _check_classes(log_probs, alphabet)
    labels = [len(alphabet)]
    for index in encode(text, alphabet):
        labels += [index, len(alphabet)]
    states = _align(log_probs[labels], np.array(labels))
    scores = [0.0] * len(text)
    for step, state in enumerate(states):
        if state % 2:
            probability = float(np.exp(log_probs[labels[state], step]))
            scores[state // 2] = max(scores[state // 2], probability)
    return scores


def _align(emissions: Array, labels: NDArray[np.int_]) -> list[int]:
    """Viterbi: the likeliest state per step; states are blank, c1, blank, c2, … blank."""
    states, steps = emissions.shape
    score = np.full(states, _NEVER)
    score[:2] = emissions[:2, 0]
    back = np.zeros((steps, states), dtype=np.int64)
    # A blank may be skipped between two different characters only.
    skips = np.zeros(states, dtype=bool)
    skips[2:] = (np.arange(2, states) % 2 == 1) & (labels[2:] != labels[:-2])
    for step in range(1, steps):
        came_by = np.full((3, states), _NEVER)
        came_by[0] = score
        came_by[1, 1:] = score[:-1]
        came_by[2, 2:] = np.where(skips[2:], score[:-2], _NEVER)
        back[step] = came_by.argmax(axis=0)
        score = came_by.max(axis=0) + emissions[:, step]
    state = states - 1 if states == 1 or score[-1] >= score[-2] else states - 2
    if score[state] == _NEVER:
        return []
    path = [state]
    for step in range(steps - 1, 0, -1):
        state -= int(back[step, state])
        path.append(state)
    return path[::-1]
