"""Countries as data: one TOML file each, validated when it is loaded.

``ru.toml`` explains the keys and the notation of a plate's layout: "L###LL R".
"""

import re
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from plate_models.recognition.grammar import FormatError, Grammar, PlateFormat
from plate_models.spec import first_problem

COUNTRIES = Path(__file__).resolve().parent

_Text = Annotated[str, Field(min_length=1)]
Length = Annotated[float, Field(gt=0)]
_Size = Annotated[tuple[Length, Length], Field(strict=False)]  # width and height
_Band = Literal["left", "top", "none"]
_Char = Annotated[str, Field(min_length=1, max_length=1)]
TOKEN = re.compile(r"'(?P<literal>[^']+)'|[LA#R/]|\s")


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Country(_Table):
    name: str
    alphabet: str
    letters: str
    region: list[_Text] = []
    region_of_all: str = ""
    look_alikes: list[_Text] = []
    common_letters: str = ""
    native: dict[_Char, _Char] = {}
    sizes_mm: list[_Size] = []
    band: _Band = "none"


class FormatTable(_Table):
    """A format as in its file; `_format` adds the values that it inherits from the country."""

    name: str
    patterns: Annotated[list[_Text], Field(min_length=1)]
    ground: Literal["white", "yellow", "blue", "black", "red"]  # grammar.GROUNDS
    weight: Annotated[float, Field(gt=0, le=1)] = 1.0
    letters: str = ""  # the country's if not given, as are region, sizes_mm and band
    rare_letters: str = ""
    never: list[_Text] = []
    region: list[_Text] = []
    region_listed: bool = True
    lengths: Annotated[tuple[int, int], Field(strict=False)] = (1, 99)
    native: dict[_Char, _Char] = {}
    sizes_mm: list[_Size] = []
    band: _Band = "none"
    plate: dict[str, Any] | None = None  # only for the renderer


class Definition(_Table):
    """The content of a country's file."""

    country: _Country
    formats: Annotated[list[FormatTable], Field(min_length=1)]
    regions: dict[str, str] = {}
    plate: dict[str, Any] = {}  # only for the renderer


def without_plates(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a country's file without those that don't affect readings."""
    kept = {key: table for key, table in tables.items() if key != "plate"}
    return {key: [*map(without_plates, v)] if key == "formats" else v for key, v in kept.items()}


def read_country(path: Path) -> tuple[Definition, Grammar]:
    """Load a country's tables, and make its grammar of them.

    Raises FormatError, whose message names the file, the format and the reason.
    """
    try:
        definition = Definition.model_validate(tomllib.loads(path.read_text(encoding="utf-8-sig")))
        return definition, _grammar_of(definition, path.stem)
    except ValidationError as error:
        raise FormatError(f"{path}: {first_problem(error).lstrip('.')}") from error
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    except (OSError, ValueError) as error:  # not UTF-8, not TOML
        raise FormatError(f"{path}: not a country's definition: {error}") from error


def _grammar_of(definition: Definition, name: str) -> Grammar:
    country = definition.country
    # The gateway derives the country from the name of a plate's format, and the file from that.
    if country.name != name:
        raise FormatError(f"country.name must be the file's, {name!r}, not {country.name!r}")
    if len(set(country.alphabet)) != len(country.alphabet):
        raise FormatError(f"country.alphabet has a character twice: {country.alphabet!r}")
    _check_letters("country", country, country.alphabet)
    names = [one.name for one in definition.formats]
    for each in names:
        if not each.startswith(f"{name}."):
            raise FormatError(f"format {each!r}: 'name' must begin with '{name}.'")
        if names.count(each) > 1:
            raise FormatError(f"format {each!r}: there is another format of this name")
    regions = _regions(definition)
    everywhere = {"": country.region_of_all} if country.region_of_all else {}
    return Grammar(
        name,
        country.alphabet,
        country.letters,
        tuple(_format(one, country, everywhere | regions) for one in definition.formats),
        regions,
        tuple(country.look_alikes),
    )


def _check_letters(place: str, table: _Country | FormatTable, alphabet: str) -> None:
    """Raise FormatError if letters, region codes or native spellings are not in the alphabet."""
    used = {
        "letters": table.letters,
        "region": re.sub("[#L]", "", "".join(table.region)),
        "native": "".join(table.native),
        "rare_letters": getattr(table, "rare_letters", ""),
        "look_alikes": "".join(getattr(table, "look_alikes", ())),
        "common_letters": getattr(table, "common_letters", ""),
    }
    for key, text in used.items():
        if outside := sorted(set(text) - set(alphabet)):
            raise FormatError(f"{place}: {key!r} has {outside}, not in the alphabet {alphabet!r}")
    if len(set(table.native.values())) != len(table.native):
        raise FormatError(f"{place}: 'native' maps two characters to the same one")


def _regions(definition: Definition) -> dict[str, str]:
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


def fits(region: str, code: str) -> bool:
    """Whether a region code follows a pattern such as "1##" or "LL"."""
    return re.fullmatch(_spelled(region, "0-9", "^0-9"), code) is not None


def _spelled(region: str, digits: str, letters: str) -> str:
    """Convert a pattern of region codes to a regular expression."""
    classes = {"#": f"[{digits}]", "L": f"[{letters}]"}
    return "".join(classes.get(char, re.escape(char)) for char in region)


def _format(table: FormatTable, country: _Country, regions: Mapping[str, str]) -> PlateFormat:
    place = f"format {table.name!r}"
    for key in {"letters", "region", "sizes_mm", "band"} - table.model_fields_set:
        setattr(table, key, getattr(country, key))
    table.native = country.native | table.native
    _check_letters(place, table, country.alphabet)
    try:
        compiled = [_compile(pattern, table, country.alphabet) for pattern in table.patterns]
        _check_together(compiled, table, country.alphabet, regions)
    except FormatError as error:
        raise FormatError(f"{place}: {error}") from error
    return PlateFormat(
        table.name,
        compiled[0].lines,
        table.ground,
        table.weight,
        tuple(pattern.expression for pattern in compiled),
        tuple((places, each.expression) for each in compiled for places in each.places),
        table.rare_letters,
        country.common_letters,
        regions if table.region_listed else {},
        table.native,
        tuple(width / height for width, height in table.sizes_mm),
        table.band == "top",
    )


@dataclass(frozen=True)
class _Pattern:
    """A compiled pattern."""

    lines: int  # rows, 1 or 2
    expression: re.Pattern[str]  # with a group "region" if the pattern has an R
    runs: set[int]  # lengths of its runs of digits, outside the region code
    places: list[tuple[str, ...]]  # per pattern of R: the usual characters of each place


def _compile(pattern: str, table: FormatTable, alphabet: str) -> _Pattern:
    symbols = symbols_of(pattern, alphabet)
    if not symbols or symbols.count("/") > 1 or "/" in (symbols[0], symbols[-1]):
        raise FormatError(f"pattern {pattern!r}: expected 1 or 2 rows, none of them empty")
    regions = table.region if "R" in symbols else [""]
    if symbols.count("R") > 1 or not regions:
        raise FormatError(f"pattern {pattern!r}: R stands twice, or 'region' is missing")
    digits = "".join(char for char in alphabet if char in string.digits)
    any_letter = "".join(char for char in alphabet if char not in digits)
    usual = {"L": [table.letters], "A": [any_letter], "#": [digits], "/": []}
    places = []
    shortest, longest = table.lengths
    for region in regions:
        usual["R"] = [{"#": digits, "L": any_letter}.get(char, char) for char in region]
        places.append(tuple(chain(*(usual.get(symbol, [symbol[-1]]) for symbol in symbols))))
    if not all(chain(*places)):
        raise FormatError(f"pattern {pattern!r} matches nothing: a symbol stands for no character")
    if not (places := [place for place in places if shortest <= len(place) <= longest]):
        raise FormatError(f"pattern {pattern!r}: no text of it has one of the 'lengths'")
    spelled = "|".join(_spelled(region, digits, re.escape(any_letter)) for region in regions)
    expressions = {
        "L": f"[{re.escape(table.letters + table.rare_letters)}]",
        "A": f"[{re.escape(any_letter)}]",
        "#": f"[{digits}]",
        "R": f"(?P<region>{spelled})",
        "/": "(?P<second>",
    }
    expression, runs = f"(?=.{{{shortest},{longest}}}$)", set()
    for symbol, group in groupby(symbols):
        count = len(list(group))
        if symbol == "#":
            runs.add(count)
            never = {serial for serial in table.never if len(serial) == count}
            if len(never) == len(digits) ** count:
                raise FormatError("a pattern matches nothing: all its serials are in 'never'")
            expression += "".join(f"(?!{serial})" for serial in sorted(never))
        expression += expressions.get(symbol, re.escape(symbol[-1])) * count
    expression += ")" * symbols.count("/")
    return _Pattern(1 + symbols.count("/"), re.compile(expression), runs, places)


def symbols_of(pattern: str, alphabet: str) -> list[str]:
    """Split a pattern into symbols; the symbol of a literal character c is "'c"."""
    symbols: list[str] = []
    end = 0
    while end < len(pattern):
        match = TOKEN.match(pattern, end)
        if not match:
            raise FormatError(f"pattern {pattern!r}: {pattern[end:]!r} is not understood")
        end = match.end()
        literal = match["literal"] or ""
        if outside := sorted(set(literal) - set(alphabet)):
            raise FormatError(f"pattern {pattern!r}: {outside} are not in the alphabet")
        symbols += [f"'{char}" for char in literal] if literal else match[0].split()
    return symbols


def _check_together(
    patterns: list[_Pattern], table: FormatTable, alphabet: str, codes: Mapping[str, str]
) -> None:
    """Raise FormatError for mixed numbers of rows, impossible serials, regions without a code."""
    if len({pattern.lines for pattern in patterns}) > 1:
        raise FormatError("patterns with different numbers of rows")
    runs = set[int]().union(*(pattern.runs for pattern in patterns))
    issued = set(string.digits) & set(alphabet)
    for serial in table.never:
        if not set(serial) <= issued or len(serial) not in runs:
            raise FormatError(f"'never': no pattern has {serial!r} as its digits")
    if not table.region_listed or all("region" not in p.expression.groupindex for p in patterns):
        return
    for region in table.region:
        if not any(fits(region, code) for code in codes):
            raise FormatError(f"'region': no listed code fits {region!r}")
