"""From a country's TOML file to its grammar; what is malformed is refused by name."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from plate_models.recognition.countries.patterns import Characters, Pattern, compile_pattern, fits
from plate_models.recognition.grammar import FormatError, Grammar, PlateFormat
from plate_models.spec import first_problem

_Text = Annotated[str, Field(min_length=1)]
_Char = Annotated[str, Field(min_length=1, max_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Country(_Table):
    name: str
    alphabet: str
    letters: str
    region: list[_Text] = []
    look_alikes: list[_Text] = []
    native: dict[_Char, _Char] = {}


class _Format(_Table):
    name: str
    patterns: Annotated[list[_Text], Field(min_length=1)]
    ground: Literal["white", "yellow", "blue", "black", "red"]  # grammar.GROUNDS
    weight: Annotated[float, Field(gt=0, le=1)] = 1.0
    letters: str | None = None
    rare_letters: str = ""
    never: list[_Text] = []
    region: list[_Text] | None = None
    region_listed: bool = True
    native: dict[_Char, _Char] = {}


class _Definition(_Table):
    country: _Country
    formats: Annotated[list[_Format], Field(min_length=1)]
    regions: dict[str, str] = {}


def load_country(path: Path) -> Grammar:
    """Load the grammar of a country from a TOML file; ``ru.toml`` explains its keys.

    Raises:
        FormatError: The file is missing or malformed; names the file, the format and
            the reason.
    """
    try:
        definition = _Definition.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        return _grammar_of(definition, path.stem)
    except ValidationError as error:
        raise FormatError(f"{path}: {first_problem(error).lstrip('.')}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"{path}: not a country's definition: {error}") from error
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def _grammar_of(definition: _Definition, name: str) -> Grammar:
    country = definition.country
    # From a plate's format the gateway derives the country, and from that the file.
    if country.name != name:
        raise FormatError(f"country.name must be the file's, {name!r}, not {country.name!r}")
    if len(set(country.alphabet)) != len(country.alphabet):
        raise FormatError(f"country.alphabet has a character twice: {country.alphabet!r}")
    _check_letters("country", country, country.alphabet, country.look_alikes)
    names = [one.name for one in definition.formats]
    for each in names:
        if not each.startswith(f"{name}."):
            raise FormatError(f"format {each!r}: 'name' must begin with '{name}.'")
        if names.count(each) > 1:
            raise FormatError(f"format {each!r}: there is another format of this name")
    regions = _regions(definition)
    return Grammar(
        name,
        country.alphabet,
        country.letters,
        tuple(_format(one, country, regions) for one in definition.formats),
        regions,
        tuple(country.look_alikes),
        _native("country", country.native, {}),
    )


def _check_letters(
    place: str, table: _Country | _Format, alphabet: str, more: Iterable[str] = ()
) -> None:
    """Refuse letters, region codes and native spellings outside of the alphabet."""
    used = {
        "letters": table.letters or "",
        "region": "".join(table.region or ()).replace("#", ""),
        "native": "".join(table.native),
        "rare_letters": getattr(table, "rare_letters", ""),
        "look_alikes": "".join(more),
    }
    for key, text in used.items():
        if outside := sorted(set(text) - set(alphabet)):
            raise FormatError(f"{place}: {key!r} has {outside}, not in the alphabet {alphabet!r}")


def _native(place: str, own: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    native = {**inherited, **own}
    if len(set(native.values())) != len(native):
        raise FormatError(f"{place}: 'native' maps two characters to the same one")
    return native


def _regions(definition: _Definition) -> dict[str, str]:
    regions: dict[str, str] = {}
    patterns = definition.country.region
    for name, codes in definition.regions.items():
        for code in codes.split():
            if not any(fits(pattern, code) for pattern in patterns):
                raise FormatError(f"regions: code {code!r} of {name!r} is not one of {patterns}")
            if code in regions:
                raise FormatError(
                    f"regions: code {code!r} belongs to {regions[code]!r} and {name!r}"
                )
            regions[code] = name
    return regions


def _format(table: _Format, country: _Country, regions: Mapping[str, str]) -> PlateFormat:
    place = f"format {table.name!r}"
    _check_letters(place, table, country.alphabet)
    characters = Characters(
        alphabet=country.alphabet,
        letters=country.letters if table.letters is None else table.letters,
        rare_letters=table.rare_letters,
        region=tuple(country.region if table.region is None else table.region),
        never=tuple(table.never),
    )
    try:
        compiled = [compile_pattern(pattern, characters) for pattern in table.patterns]
        _check_together(compiled, characters, regions if table.region_listed else None)
    except FormatError as error:
        raise FormatError(f"{place}: {error}") from error
    return PlateFormat(
        table.name,
        compiled[0].lines,
        table.ground,
        table.weight,
        tuple(pattern.expression for pattern in compiled),
        tuple(places for pattern in compiled for places in pattern.places),
        table.rare_letters,
        table.region_listed,
        _native(place, table.native, country.native),
    )


def _check_together(
    patterns: list[Pattern], characters: Characters, codes: Mapping[str, str] | None
) -> None:
    """Refuse patterns of several kinds, and serials and codes that no plate can ever have."""
    if len({pattern.lines for pattern in patterns}) > 1:
        raise FormatError("patterns with different numbers of rows")
    runs = frozenset().union(*(pattern.runs for pattern in patterns))
    for serial in characters.never:
        if not set(serial) <= set(characters.digits) or len(serial) not in runs:
            raise FormatError(f"'never': no pattern has {serial!r} as its digits")
    if codes is None or not any(pattern.expression.groupindex for pattern in patterns):
        return
    for region in characters.region:
        if not any(fits(region, code) for code in codes):
            raise FormatError(f"'region': no listed code fits {region!r}")
