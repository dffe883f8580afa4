"""The formats of the countries at hand, by their names.

Texts are written in Latin letters, those of Cyrillic plates with their look-alikes: "H002EX71" is
what a Russian reader calls "Н002ЕХ71". The gateway imports this file: no torch, no numpy.
"""

from collections.abc import Sequence
from functools import cache, lru_cache

from plate_models.recognition.countries import COUNTRIES, read_country
from plate_models.recognition.grammar import Grammar, Match
from plate_models.recognition.grammar import country_of as country_of

# How far a text of another country is believed beside one of home; more than one of no country.
ABROAD = 0.35


@lru_cache(maxsize=64)
def grammar_of(home: str, *others: str) -> Grammar:
    """Load a country, such as "ru", and others that are met beside its plates.

    A FormatError if a file is missing or malformed.
    """
    if others:
        return grammar_of(home).beside([grammar_of(name) for name in others], ABROAD)
    return read_country(COUNTRIES / f"{home}.toml")[1]


@cache
def at_hand() -> tuple[str, ...]:
    """The names of the countries whose formats are known."""
    return tuple(sorted(path.stem for path in COUNTRIES.glob("*.toml")))


def checked(names: Sequence[str]) -> tuple[str, ...]:
    """Names of countries, in lower case; a ValueError if one's formats are not known."""
    found = tuple(name.strip().lower() for name in names)
    if wrong := [name for name in found if name not in at_hand()]:
        raise ValueError(f"expected some of {','.join(at_hand())}, got {','.join(wrong)[:80]!r}")
    return found


def reading_of(text: str, format_name: str) -> Match | None:
    """Understand a text as the format that an answer names; None if it is "unknown"."""
    country = country_of(format_name)
    return grammar_of(country).reading_of(text, format_name) if country else None
