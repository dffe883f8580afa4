"""Made-up outputs of the nets: texts with uncertain characters, and colours of the ground."""

import numpy as np

from plate_models.recognition import ctc
from plate_models.recognition.grammar import GROUNDS
from plate_models.spec import RECOGNIZER

BLANK = len(RECOGNIZER.alphabet)
# Probabilities of the ground's colours, where the colour is certain.
WHITE, YELLOW, BLUE, BLACK, RED = (
    tuple(0.96 if ground == colour else 0.01 for ground in GROUNDS)
    for colour in ("white", "yellow", "blue", "black", "red")
)
MANY = {"1": 0.3, "4": 0.25, "2": 0.25, "3": 0.2}
# More than twelve texts are likelier than the best one with an O: a beam of twelve drops it.
LOST = {0: {"O": 0.05, "0": 0.95}, 1: MANY, 2: MANY}


def log_probs_of(text, doubts=None):
    """(C, 24) log-probabilities of a text; `doubts`: {place: {character or "": probability}}."""
    probs = np.full((RECOGNIZER.classes, 24), 1e-6)
    probs[BLANK] = 1.0
    for place, char in enumerate(text):
        step = 1 + 2 * place
        probs[:, step] = 1e-6
        for other, odds in (doubts or {}).get(place, {char: 1.0}).items():
            probs[BLANK if other == "" else ctc.encode(other)[0], step] = odds
    return np.log(probs / probs.sum(axis=0))


def log_probs_along(path, sure, alphabet=RECOGNIZER.alphabet):
    """(C, T) log-probabilities: each symbol of `path` ("-" is the blank) has probability `sure`."""
    probs = np.full((len(alphabet) + 1, len(path)), (1 - sure) / len(alphabet))
    probs[[f"{alphabet}-".index(symbol) for symbol in path], range(len(path))] = sure
    return np.log(probs)
