"""The countries at hand by name, and Russian plates as the default.

Texts are written with the Latin look-alikes of the Cyrillic letters on the plate,
after GOST R 50577: "H002EX71" is what a Russian reader calls "Н002ЕХ71". What is here
comes from ``countries/ru.toml``. The gateway imports this file: no torch, no numpy.
"""

from functools import cache

from plate_models.recognition.countries import COUNTRIES, load_country
from plate_models.recognition.grammar import UNKNOWN as UNKNOWN
from plate_models.recognition.grammar import Grammar
from plate_models.recognition.grammar import Region as Region


@cache
def grammar_of(country: str) -> Grammar:
    """Load a country, such as "ru"; a FormatError if its file is missing or malformed."""
    return load_country(COUNTRIES / f"{country}.toml")


def _grammar_for(format_name: str | None) -> Grammar:
    """The grammar that a format is from; "unknown" and None are Russia's."""
    country, dot, _ = (format_name or "").partition(".")
    return grammar_of(country) if dot else RUSSIA


RUSSIA = grammar_of("ru")
LETTERS = RUSSIA.letters
REGIONS = RUSSIA.regions


def to_native(text: str, format_name: str | None = None) -> str:
    """Write a text as its plate has it: "B840CK197" as "В840СК197"."""
    return _grammar_for(format_name).to_native(text, format_name)


def region_of(text: str, format_name: str | None = None) -> Region | None:
    """Where a plate was issued; None if its format or its code is not known."""
    return _grammar_for(format_name).region_of(text, format_name)
