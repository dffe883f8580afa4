"""From a country's TOML file to its grammar; what is malformed is refused by name."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plate_models.recognition.countries.patterns import Characters, Pattern, compile_pattern, fits
from plate_models.recognition.grammar import GROUNDS, FormatError, Grammar, PlateFormat


def load_country(path: Path) -> Grammar:
    """Load the grammar of a country from a TOML file; ``ru.toml`` explains its keys.

    Raises:
        FormatError: The file is missing or malformed; names the file, the format and
            the reason.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"{path}: not a country's definition: {error}") from error
    top = _Table(str(path), values)
    country, tables, codes = top.table("country"), top.tables("formats"), top.table("regions", {})
    grammar = _country(country)
    region = _region(country, grammar.alphabet, ())
    country.done()
    grammar = replace(grammar, regions=_regions(codes, region))
    top.done()
    formats = tuple(_format(table, grammar, region) for table in tables)
    # From a plate's format the gateway derives the country, and from that the file.
    if grammar.name != path.stem:
        raise country.error(f"'name' must be the file's, {path.stem!r}, not {grammar.name!r}")
    names = [plate_format.name for plate_format in formats]
    for table, name in zip(tables, names, strict=True):
        if not name.startswith(f"{grammar.name}."):
            raise table.error(f"'name' must begin with '{grammar.name}.'")
        if names.count(name) > 1:
            raise table.error("there is another format of this name")
    return replace(grammar, formats=formats)


@dataclass
class _Table:
    """A table of the file, read key by key."""

    place: str
    values: dict[str, Any]
    known: list[str] = field(default_factory=list)

    def error(self, reason: str) -> FormatError:
        return FormatError(f"{self.place}: {reason}")

    def take(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        self.known.append(key)
        value = self.values.get(key, default)
        if value is None:
            raise self.error(f"{key!r} is missing")
        # In Python True is an integer; in TOML it isn't.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(f"{key!r} is of a wrong type: {value!r}")
        return value

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self.take(key, (list, tuple), default)
        if not all(isinstance(text, str) and text for text in value):
            raise self.error(f"{key!r} must be a list of texts that are not empty")
        return tuple(value)

    def text_of(self, key: str, alphabet: str, default: str | None = None) -> str:
        text: str = self.take(key, str, default)
        self.check(key, text, alphabet)
        return text

    def check(self, key: str, text: str, alphabet: str) -> None:
        outside = sorted(set(text) - set(alphabet))
        if outside:
            raise self.error(f"{key!r} has {outside}, not in the alphabet {alphabet!r}")

    def table(self, key: str, default: dict[str, Any] | None = None) -> "_Table":
        return _Table(f"{self.place}: [{key}]", self.take(key, dict, default))

    def tables(self, key: str) -> list["_Table"]:
        values = self.take(key, list)
        if not values or not all(isinstance(value, dict) for value in values):
            raise self.error(f"expected one or more tables [[{key}]]")
        return [
            _Table(f"{self.place}: format {value.get('name', number + 1)!r}", value)
            for number, value in enumerate(values)
        ]

    def done(self) -> None:
        unknown = sorted(set(self.values) - set(self.known))
        if unknown:
            raise self.error(f"unknown keys {unknown}; known are {self.known}")


def _country(table: _Table) -> Grammar:
    """The grammar without its formats and regions."""
    alphabet: str = table.take("alphabet", str)
    if len(set(alphabet)) != len(alphabet):
        raise table.error(f"'alphabet' has a character twice: {alphabet!r}")
    name, letters = table.take("name", str), table.text_of("letters", alphabet)
    look_alikes = table.texts("look_alikes", ())
    for group in look_alikes:
        table.check("look_alikes", group, alphabet)
    return Grammar(name, alphabet, letters, (), {}, look_alikes, _native(table, alphabet, {}))


def _region(table: _Table, alphabet: str, default: tuple[str, ...]) -> tuple[str, ...]:
    patterns = table.texts("region", default)
    table.check("region", "".join(patterns).replace("#", ""), alphabet)
    return patterns


def _native(table: _Table, alphabet: str, inherited: Mapping[str, str]) -> dict[str, str]:
    own = table.take("native", dict, {})
    table.check("native", "".join(own), alphabet)
    native = {**inherited, **own}
    if any(not isinstance(text, str) or len(text) != 1 for text in (*own, *own.values())):
        raise table.error("'native' must map single characters to single characters")
    if len(set(native.values())) != len(native):
        raise table.error("'native' maps two characters to the same one")
    return native


def _regions(table: _Table, patterns: tuple[str, ...]) -> dict[str, str]:
    regions: dict[str, str] = {}
    for name in table.values:
        for code in table.take(name, str).split():
            if not any(fits(pattern, code) for pattern in patterns):
                raise table.error(f"code {code!r} of {name!r} is not one of {patterns}")
            if code in regions:
                raise table.error(f"code {code!r} belongs to {regions[code]!r} and {name!r}")
            regions[code] = name
    return regions


def _format(table: _Table, country: Grammar, country_region: tuple[str, ...]) -> PlateFormat:
    weight = float(table.take("weight", (int, float), 1.0))
    if not 0 < weight <= 1:
        raise table.error(f"'weight' must be in (0, 1], not {weight}")
    ground = table.take("ground", str)
    if ground not in GROUNDS:
        raise table.error(f"'ground' must be one of {GROUNDS}, not {ground!r}")
    listed: bool = table.take("region_listed", bool, True)
    characters = Characters(
        alphabet=country.alphabet,
        letters=table.text_of("letters", country.alphabet, country.letters),
        rare_letters=table.text_of("rare_letters", country.alphabet, ""),
        region=_region(table, country.alphabet, country_region),
        never=table.texts("never", ()),
    )
    name, patterns = table.take("name", str), table.texts("patterns")
    native = _native(table, country.alphabet, country.native)
    table.done()
    try:
        compiled = [compile_pattern(pattern, characters) for pattern in patterns]
        _check_together(compiled, characters, country.regions if listed else None)
    except FormatError as error:
        raise table.error(str(error)) from error
    lines = {pattern.lines for pattern in compiled}
    if len(lines) > 1:
        raise table.error(f"patterns with different numbers of rows: {patterns}")
    return PlateFormat(
        name,
        lines.pop(),
        ground,
        weight,
        tuple(pattern.expression for pattern in compiled),
        tuple(places for pattern in compiled for places in pattern.places),
        characters.rare_letters,
        listed,
        native,
    )


def _check_together(
    patterns: list[Pattern], characters: Characters, codes: Mapping[str, str] | None
) -> None:
    """Refuse what no plate can ever meet: serials and codes that don't occur."""
    if not patterns:
        raise FormatError("'patterns' is empty")
    runs = frozenset().union(*(pattern.runs for pattern in patterns))
    for serial in characters.never:
        if not set(serial) <= set(characters.digits) or len(serial) not in runs:
            raise FormatError(f"'never': no pattern has {serial!r} as its digits")
    if codes is None or not any(pattern.expression.groupindex for pattern in patterns):
        return
    for region in characters.region:
        if not any(fits(region, code) for code in codes):
            raise FormatError(f"'region': no listed code fits {region!r}")
