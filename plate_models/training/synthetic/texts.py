"""Plate texts to render: common regions and repeats more often than chance has them."""

from collections.abc import Iterator
from functools import cache
from itertools import groupby, islice

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from plate_models.recognition.countries import fits, symbols_of
from plate_models.training.synthetic.kinds import CAR, PlateKind, kind_named

_BUSY_WEIGHT = 8.0
_UNIFORM_SHARE = 0.15
_REPEAT_SHARE = 0.12
# Letters of old series that still turn up.
_RARE_LETTER_SHARE = 0.004
_TRIES = 1000


@cache
def _code_odds(kind: str) -> tuple[list[str], npt.NDArray[np.float64]]:
    """All region codes in use on a kind, and their shares."""
    about, names = kind_named(kind), kind_named(kind).country.regions
    listed = [code for code in sorted(names) if any(fits(one, code) for one in about.table.region)]
    codes = list(about.codes) or listed
    weights = [_BUSY_WEIGHT if names.get(c) in about.busy_regions else 1.0 for c in codes]
    return codes, np.array(weights) / sum(weights)


def _sample_region(kind: PlateKind, rng: Generator) -> str:
    any_code = rng.random() < _UNIFORM_SHARE
    codes, shares = _code_odds(kind.name)
    if not codes or (any_code and not kind.table.region_listed):
        pattern = kind.table.region[rng.integers(len(kind.table.region))]
        digits, letters = pattern.count("#"), kind.table.letters
        drawn = {"#": iter(f"{rng.integers(1, 10**digits):0{digits}d}" if digits else "")}
        drawn["L"] = iter(
            [letters[i] for i in rng.integers(max(1, len(letters)), size=pattern.count("L"))]
        )
        return "".join(next(drawn.get(char, iter(char))) for char in pattern)
    if any_code or not kind.table.region_listed:
        return codes[rng.integers(len(codes))]
    return codes[rng.choice(len(codes), p=shares)]


def _sample_number(digits: int, first: int, rng: Generator) -> str:
    if rng.random() < _REPEAT_SHARE:
        return str(rng.integers(1, 10)) * digits
    return f"{rng.integers(first, 10**digits):0{digits}d}"


def _sample_letters(letters: str, count: int, rng: Generator) -> Iterator[str]:
    if not letters:
        return iter("")
    if rng.random() < _REPEAT_SHARE:
        return iter(letters[rng.integers(len(letters))] * count)
    return iter([letters[i] for i in rng.integers(len(letters), size=count)])


def _draw_text(kind: PlateKind, rng: Generator) -> str:
    patterns = kind.table.patterns
    symbols = symbols_of(patterns[rng.integers(len(patterns))], kind.country.alphabet)
    letters = _sample_letters(kind.table.letters, symbols.count("L"), rng)
    # Where 000 is never issued, no other number is 0, either.
    first, region_at = int(bool(kind.table.never)), -1
    chars: list[str] = []
    for symbol, group in groupby(symbols):
        count = len(list(group))
        if symbol == "#":
            chars += _sample_number(count, first, rng)
        elif symbol == "L":
            chars += islice(letters, count)
        elif symbol == "R":
            region_at = len(chars)
        elif symbol != "/":
            chars += symbol[-1] * count
    rare = kind.table.rare_letters
    if rare and rng.random() < _RARE_LETTER_SHARE:
        places = [index for index, char in enumerate(chars) if char in kind.table.letters]
        chars[places[rng.integers(len(places))]] = rare[rng.integers(len(rare))]
    if region_at >= 0:
        chars.insert(region_at, _sample_region(kind, rng))
    return "".join(chars)


def sample_text(rng: Generator, kind: str = CAR) -> str:
    """Draw the text of a plate of a kind, a key of ``KINDS``, such as "H002EX71".

    It follows one of its format's patterns; codes that are in use and busy regions are frequent,
    and rare letters are rare.

    Raises:
        ValueError: There is no such kind.
    """
    plate_kind = kind_named(kind)
    for _ in range(_TRIES):
        text = _draw_text(plate_kind, rng)
        if any(expression.fullmatch(text) for expression in plate_kind.format.patterns):
            return text
    raise ValueError(f"{kind}: no text out of {_TRIES} follows its patterns, the last is {text!r}")
