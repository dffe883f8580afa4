"""Plate texts to render: common regions and repeats more often than chance has them."""

from functools import cache

import numpy as np
import numpy.typing as npt

from plate_models.formats import LETTERS, REGIONS

# Regions with the most cars: their codes fill most of the traffic a service sees.
_BUSY_REGIONS = (
    "Moscow",
    "Moscow Oblast",
    "Saint Petersburg",
    "Leningrad Oblast",
    "Krasnodar Krai",
    "Tatarstan",
    "Sverdlovsk Oblast",
    "Rostov Oblast",
    "Samara Oblast",
    "Chelyabinsk Oblast",
    "Bashkortostan",
    "Novosibirsk Oblast",
    "Nizhny Novgorod Oblast",
)
_BUSY_WEIGHT = 8.0
_UNIFORM_SHARE = 0.15
_REPEAT_SHARE = 0.12
# The letter De of the earliest series still turns up; it is read as "D".
_RARE_LETTER_SHARE = 0.004


@cache
def _code_odds() -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
    """All codes in use and their cumulative odds."""
    codes = tuple(sorted(REGIONS))
    weights = np.array([_BUSY_WEIGHT if REGIONS[c] in _BUSY_REGIONS else 1.0 for c in codes])
    return codes, np.cumsum(weights / weights.sum())


def _sample_region(rng: np.random.Generator) -> str:
    codes, cumulative = _code_odds()
    if rng.random() < _UNIFORM_SHARE:
        return codes[rng.integers(len(codes))]
    return codes[min(int(np.searchsorted(cumulative, rng.random())), len(codes) - 1)]


def _sample_number(rng: np.random.Generator) -> str:
    if rng.random() < _REPEAT_SHARE:
        return str(rng.integers(1, 10)) * 3
    return f"{rng.integers(1, 1000):03d}"


def _sample_letters(rng: np.random.Generator) -> str:
    if rng.random() < _REPEAT_SHARE:
        return LETTERS[rng.integers(len(LETTERS))] * 3
    letters = "".join(LETTERS[i] for i in rng.integers(len(LETTERS), size=3))
    if rng.random() < _RARE_LETTER_SHARE:
        place = int(rng.integers(3))
        letters = letters[:place] + "D" + letters[place + 1 :]
    return letters


def sample_text(rng: np.random.Generator) -> str:
    """Draw the text of a car plate (GOST R 50577 type 1), such as "H002EX71".

    Returns:
        Letter, three digits (never 000), two letters, a region code that is in use.
        Letters are the twelve of the grammar, and very rarely "D".
    """
    letters = _sample_letters(rng)
    return f"{letters[0]}{_sample_number(rng)}{letters[1:]}{_sample_region(rng)}"
