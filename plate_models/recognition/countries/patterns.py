"""The small language in which a plate's layout is written: "L###LL R"."""

import itertools
import re
from dataclasses import dataclass

from plate_models.recognition.grammar import FormatError

_TOKEN = re.compile(r"'(?P<literal>[^']+)'|(?P<symbol>[L#R/])|(?P<space>\s)")


@dataclass(frozen=True)
class Characters:
    """What the symbols of a pattern stand for."""

    alphabet: str
    letters: str  # L
    rare_letters: str  # L, too
    region: tuple[str, ...]  # R, such as ("##", "1##")
    never: tuple[str, ...]  # runs of digits that are never issued

    @property
    def digits(self) -> str:
        """What # stands for."""
        return "".join(char for char in self.alphabet if char in "0123456789")


@dataclass(frozen=True)
class Pattern:
    """A pattern, compiled.

    Attributes:
        lines: Its rows, 1 or 2.
        expression: Matches its texts, with a group ``region`` if it has an R.
        runs: How many digits stand in a row, outside the region code.
        places: For each spelling of R, the usual characters of each place.
    """

    lines: int
    expression: re.Pattern[str]
    runs: frozenset[int]
    places: tuple[tuple[str, ...], ...]


def compile_pattern(pattern: str, characters: Characters) -> Pattern:
    """Compile a pattern such as "L### / LL R"; ``ru.toml`` explains the language.

    Raises:
        FormatError: The pattern is malformed or no text can follow it; names the reason.
    """
    symbols = _symbols(pattern, characters)
    if not symbols or symbols.count("/") > 1 or "/" in (symbols[0], symbols[-1]):
        raise FormatError(f"pattern {pattern!r}: expected 1 or 2 rows, none of them empty")
    regions = characters.region if "R" in symbols else ("",)
    if symbols.count("R") > 1 or not regions:
        raise FormatError(f"pattern {pattern!r}: R stands twice, or 'region' is missing")
    places = tuple(_places(symbols, region, characters) for region in regions)
    if not all(itertools.chain(*places)):
        raise FormatError(f"pattern {pattern!r} matches nothing: a symbol stands for no character")
    groups = [(symbol, len(list(group))) for symbol, group in itertools.groupby(symbols)]
    expression = "".join(_expression(symbol, count, characters) for symbol, count in groups)
    runs = frozenset(count for symbol, count in groups if symbol == "#")
    return Pattern(1 + symbols.count("/"), re.compile(expression), runs, places)


def fits(region: str, code: str) -> bool:
    """Whether a region code follows a pattern such as "1##"."""
    return len(region) == len(code) and all(
        char.isdecimal() if place == "#" else char == place
        for place, char in zip(region, code, strict=True)
    )


def _symbols(pattern: str, characters: Characters) -> list[str]:
    """The symbols of a pattern; a literal character c is "'c"."""
    symbols: list[str] = []
    end = 0
    for match in _TOKEN.finditer(pattern):
        if match.start() != end:
            break
        end = match.end()
        outside = sorted(set(match["literal"] or "") - set(characters.alphabet))
        if outside:
            raise FormatError(f"pattern {pattern!r}: {outside} are not in the alphabet")
        symbols += [f"'{char}" for char in match["literal"] or ""]
        symbols += match["symbol"] or ""
    if end != len(pattern):
        raise FormatError(f"pattern {pattern!r}: {pattern[end:]!r} is not understood")
    return symbols


def _places(symbols: list[str], region: str, characters: Characters) -> tuple[str, ...]:
    stands_for = {"L": characters.letters, "#": characters.digits}
    places: list[str] = []
    for symbol in (symbol for symbol in symbols if symbol != "/"):
        if symbol == "R":
            places += [characters.digits if char == "#" else char for char in region]
        else:
            places.append(stands_for.get(symbol, symbol[-1]))
    return tuple(places)


def _expression(symbol: str, count: int, characters: Characters) -> str:
    """The regular expression of a symbol that stands ``count`` times in a row."""
    digit = f"[{characters.digits}]"
    if symbol == "#":
        never = {serial for serial in characters.never if len(serial) == count}
        if len(never) == len(characters.digits) ** count:
            raise FormatError("a pattern matches nothing: all its serials are in 'never'")
        return "".join(f"(?!{serial})" for serial in sorted(never)) + f"{digit}{{{count}}}"
    if symbol == "L":
        return f"[{re.escape(characters.letters + characters.rare_letters)}]{{{count}}}"
    if symbol == "R":
        spelled = (re.escape(region).replace(r"\#", digit) for region in characters.region)
        return f"(?P<region>{'|'.join(spelled)})"
    return "" if symbol == "/" else re.escape(symbol[-1]) * count
