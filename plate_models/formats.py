"""The plate formats of countries, loaded by the countries' names.

Texts are written in Latin letters; those of Cyrillic plates are spelled with their look-alikes:
"H002EX71" for "Н002ЕХ71". The gateway imports this file: no torch, no numpy.
"""

from collections.abc import Sequence
from functools import cache, lru_cache

from plate_models.recognition.countries import COUNTRIES, read_country
from plate_models.recognition.grammar import Grammar, Match
from plate_models.recognition.grammar import country_of as country_of

# Prior of foreign formats relative to the home country; texts of no known format have a lower one.
ABROAD = 0.35


@lru_cache(maxsize=256)
def grammar_of(home: str, *others: str) -> Grammar:
    """Load the grammar of the home country, such as "ru", and of others seen beside its plates.

    Raises FormatError if a file is missing or malformed.
    """
    if others:
        return grammar_of(home).beside([grammar_of(name) for name in others], ABROAD)
    return read_country(COUNTRIES / f"{home}.toml")[1]


class UnknownCountry(ValueError):
    """A country has no file, or letters that the weights lack; the message names those to use."""


@cache
def available_countries() -> tuple[str, ...]:
    """The names of the countries that have a file."""
    return tuple(sorted(path.stem for path in COUNTRIES.glob("*.toml")))


def checked_countries(names: Sequence[str]) -> tuple[str, ...]:
    """Convert names of countries to lower case; raise UnknownCountry if a country has no file."""
    found = tuple(name.strip().lower() for name in names)
    known = available_countries()
    if wrong := [name for name in found if name not in known]:
        raise UnknownCountry(f"expected some of {','.join(known)}, got {','.join(wrong)[:80]!r}")
    return found


def reading_of(text: str, format_name: str) -> Match | None:
    """Match a text with the format that an answer names; None if the format is "unknown"."""
    country = country_of(format_name)
    return grammar_of(country).reading_of(text, format_name) if country else None
