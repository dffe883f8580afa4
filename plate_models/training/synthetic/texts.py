"""Plate texts to render: common regions and repeats more often than chance has them."""

import re
from functools import cache

import numpy as np
import numpy.typing as npt

from plate_models.formats import grammar_of
from plate_models.training.synthetic.kinds import CAR, PlateKind, kind_named

_RUSSIA = grammar_of("ru")
LETTERS, REGIONS = _RUSSIA.letters, _RUSSIA.regions
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


# Codes of districts, fleets and troops, which are no regions.
_MILITARY = "ru.military"
_MILITARY_CODES = (
    *("10", "11", "12", "14", "15", "16", "17", "18", "19", "20", "21", "23", "25", "27"),
    *("29", "32", "34", "35", "39", "40", "42", "43", "45", "50", "54", "56", "65", "67"),
    *("68", "69", "70", "76", "77", "81", "82", "83", "87", "90", "91", "92", "93", "94", "98"),
)


@cache
def _code_odds(lengths: frozenset[int]) -> tuple[list[str], npt.NDArray[np.float64]]:
    """All codes in use that have such lengths, and their shares."""
    codes = [code for code in sorted(REGIONS) if len(code) in lengths]
    weights = np.array([_BUSY_WEIGHT if REGIONS[c] in _BUSY_REGIONS else 1.0 for c in codes])
    return codes, weights / weights.sum()


def _sample_region(kind: PlateKind, rng: np.random.Generator) -> str:
    if kind.name == _MILITARY:
        # Whether the list is complete isn't known: any other code may turn up, too.
        if rng.random() < _UNIFORM_SHARE:
            return f"{rng.integers(1, 100):02d}"
        return _MILITARY_CODES[rng.integers(len(_MILITARY_CODES))]
    codes, shares = _code_odds(frozenset(len(layout.region.centres) for layout in kind.layouts))
    if rng.random() < _UNIFORM_SHARE:
        return codes[rng.integers(len(codes))]
    return codes[rng.choice(len(codes), p=shares)]


def _sample_number(digits: int, rng: np.random.Generator) -> str:
    if rng.random() < _REPEAT_SHARE:
        return str(rng.integers(1, 10)) * digits
    return f"{rng.integers(1, 10**digits):0{digits}d}"


def _sample_letters(count: int, rng: np.random.Generator) -> str:
    if rng.random() < _REPEAT_SHARE:
        return LETTERS[rng.integers(len(LETTERS))] * count
    return "".join(LETTERS[i] for i in rng.integers(len(LETTERS), size=count))


def sample_text(rng: np.random.Generator, kind: str = CAR) -> str:
    """Draw the text of a plate of a kind, a key of ``KINDS``, such as "H002EX71".

    Its numbers are never all zeros, and its code is in use. Letters are the twelve of the grammar,
    and very rarely "D" on cars.

    Raises:
        ValueError: There is no such kind.
    """
    plate_kind = kind_named(kind)
    serials = plate_kind.serials
    pattern = serials[rng.integers(len(serials))]
    letters = iter(_sample_letters(pattern.count("L"), rng))
    serial = "".join(next(letters) if char == "L" else char for char in pattern)
    serial = re.sub("#+", lambda run: _sample_number(len(run[0]), rng), serial)
    if kind == CAR and rng.random() < _RARE_LETTER_SHARE:
        places = [index for index, char in enumerate(serial) if char in LETTERS]
        place = places[rng.integers(len(places))]
        serial = serial[:place] + "D" + serial[place + 1 :]
    return serial + _sample_region(plate_kind, rng)
