"""Sums over all alignments of a text with a recognizer's steps.

The forward and backward algorithms of Graves et al. 2006, "Connectionist Temporal
Classification", section 4.1, over a row of states: a start, then blank, c1, blank, … blank.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def alternatives(probs: Array, labels: Sequence[int]) -> Array:
    """Give the probability of a text with one character replaced, or left out.

    Args:
        probs: (C, T), blank last, T >= 1.
        labels: The text as classes, L >= 1 of them.

    Returns:
        (L, C): see `ctc.character_alternatives`.
    """
    characters = len(probs) - 1
    # Backwards is forwards over the mirrored text.
    both = forward(np.stack([probs, probs[:, ::-1]]), [labels, labels[::-1]])
    before, after = both[:, 0], both[:, 1]
    inside = _inside(_entered(before, labels, characters), probs)
    left = _entered(after, labels[::-1], characters)[::-1, ::-1]
    replaced = np.einsum("tlc,tlc->lc", inside, left)
    return np.column_stack([replaced, _left_out(before, after, labels)])


def forward(probs: Array, encoded: Sequence[Sequence[int]]) -> Array:
    """Sum the paths through each text's states.

    Args:
        probs: (N, C, T), blank last: what each text is looked for in.
        encoded: N texts as classes.

    Returns:
        (T + 1, N, 2 L + 3) for the longest length L: entry (t, n, j) is the probability
        of all paths of t steps that end in state j - 1, where state 0 is the start, from
        which every path sets out. Column 0 is padding and always 0.
    """
    longest = max(map(len, encoded))
    texts, classes, steps = probs.shape
    # A class of its own, never emitted, for the start and behind the end of shorter texts.
    emitted = np.concatenate([probs, np.zeros((texts, 1, steps))], axis=1)
    # Two columns of padding before each text: nobody gets from one text into the next.
    states = np.full((texts, 2 * longest + 4), classes)
    # A blank may be skipped between two different characters only.
    skips = np.zeros(states.shape)
    for row, (labels, skip) in enumerate(zip(encoded, skips, strict=True)):
        states[row, 3 : 2 * len(labels) + 4 : 2] = classes - 1
        states[row, 4 : 2 * len(labels) + 4 : 2] = labels
        skip[4 : 2 * len(labels) + 4 : 2] = [
            i == 0 or labels[i] != labels[i - 1] for i in range(len(labels))
        ]
    emissions = emitted[np.arange(texts)[:, None], states].reshape(states.size, steps).T
    reached = np.zeros((steps + 1, *states.shape))
    reached[0, :, 2] = 1.0
    # All texts in a row: numpy is several times faster in one dimension than in two.
    rows, skipped = reached.reshape(steps + 1, -1), skips.reshape(-1)[2:]
    for now, following, emission in zip(rows, rows[1:, 2:], emissions[:, 2:], strict=False):
        np.multiply(now[:-2], skipped, out=following)
        following += now[1:-1]
        following += now[2:]
        following *= emission
    return reached[:, :, 1:]


def _entered(reached: Array, labels: Sequence[int], characters: int) -> Array:
    """(T, L, characters): the paths that may go on to a character at a place."""
    allowed = np.ones((len(labels), characters))
    # Right after the same character it would be that character going on.
    allowed[np.arange(1, len(labels)), labels[:-1]] = 0.0
    blanks, neighbours = reached[:-1, 2:-1:2], reached[:-1, 1:-2:2]
    entered: Array = blanks[:, :, None] + neighbours[:, :, None] * allowed
    return entered


def _inside(entered: Array, probs: Array) -> Array:
    """(T, L, characters): the paths that are at a character at a place, in each step."""
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
    # Paths that stop short of the place, and those that go on with the next character.
    stopped = before[:, 2:-1:2] + before[:, 1:-2:2] * apart
    resumed = after[::-1, 1:-2:2][:, ::-1]
    left_out: Array = (stopped * resumed).sum(axis=0)
    return left_out
