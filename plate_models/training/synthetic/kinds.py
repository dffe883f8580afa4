"""The kinds of plates: their layouts, colours and shares of the rendered plates; random texts.

All data come from the countries' files; ``recognition/countries/ru.toml`` explains the keys. A
format can be rendered if it has a table ``[formats.plate]``; the country's ``[plate]`` has the
defaults. Lengths are in millimetres from the top left corner of the plate or of the glyph.
"""

import json
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, islice
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from matplotlib.bezier import BezierSegment
from numpy.random import Generator
from pydantic import ConfigDict, Field, TypeAdapter

from plate_models.formats import available_countries
from plate_models.recognition import countries
from plate_models.recognition.countries import TOKEN, FormatTable, fits, read_country, symbols_of
from plate_models.recognition.grammar import FormatError, Grammar, PlateFormat
from plate_models.spec import RECOGNIZER, named
from plate_models.training.tables import choose, pick

Point: TypeAlias = tuple[float, float]
Box: TypeAlias = tuple[float, float, float, float]
RGB: TypeAlias = tuple[float, float, float]
Shares: TypeAlias = tuple[tuple[str, float], ...]
Table = TypeVar("Table")
_OUTLINED = "ru"  # the country whose file has the outlines that all countries share
_Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# The characters that any typeface can draw.
_LATIN = {*string.digits, *string.ascii_uppercase}
_Purpose = Literal["training", "calibration"]
_Colour = Literal["white", "black", "red", "yellow", "green", "blue"]

# Odds of a busy region's code against other codes; share of texts whose code is drawn with equal
# odds; share of numbers, letters and codes that repeat one character.
_BUSY_WEIGHT = 8.0
_UNIFORM_SHARE = 0.15
_REPEAT_SHARE = 0.12
# Share of texts with a letter of old series that are still in use.
_RARE_LETTER_SHARE = 0.004
_TRIES = 1000


class Strict:
    """Base of a file's tables: refuses other types and unknown keys."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True)
class Stroke(Strict):
    """A pen stroke with round joints; its ends are square unless ``round_ends``."""

    pen: float  # width
    # Points (x, y); arcs (centre x and y, radii x and y, start, stop; degrees clockwise from +x),
    # of a superellipse if its power follows; and Bezier curves (x and y of four control points).
    path: tuple[
        Point
        | tuple[float, float, float, float, float, float]
        | tuple[float, float, float, float, float, float, float]
        | tuple[float, float, float, float, float, float, float, float],
        ...,
    ]
    round_ends: bool = False

    @property
    def points(self) -> list[Point]:
        """Points along the path."""
        points: list[Point] = []
        for part in self.path:
            if len(part) == 2:
                points.append(part)
            elif len(part) == 8:
                curve = BezierSegment(np.reshape(part, (4, 2)))
                points += [(x, y) for x, y in curve(np.linspace(0, 1, 20)).tolist()]
            else:
                points += _arc(*part)
        return points


# Compared by identity, because masks are cached by glyph.
@dataclass(frozen=True, eq=False)
class Glyph(Strict):
    """A character's strokes (x to the right, y down from the top), clipped to its height."""

    width: float
    strokes: tuple[Stroke, ...]
    height: float = 58.0


def _arc(
    x: float, y: float, across: float, down: float, start: float, stop: float, power: float = 2.0
) -> list[Point]:
    angles = np.radians(np.linspace(start, stop, 2 + int(abs(stop - start) / 5)))
    cos, sin = np.cos(angles), np.sin(angles)
    xs = x + across * np.sign(cos) * np.abs(cos) ** (2 / power)
    ys = y + down * np.sign(sin) * np.abs(sin) ** (2 / power)
    return list(zip(xs.tolist(), ys.tolist(), strict=True))


@dataclass(frozen=True)
class Group(Strict):
    """Characters side by side on one baseline."""

    centres: Annotated[tuple[float, ...], Field(min_length=1)]  # x of each character's middle
    foot: float  # y of the baseline
    digit_height: float = 76.0
    letter_height: float = 58.0


@dataclass(frozen=True)
class Layout(Strict):
    """The positions of a plate's parts."""

    size_mm: tuple[countries.Length, countries.Length]  # width and height of the plate
    serial: tuple[Group, ...]  # the groups of the serial number in reading order
    region: Group  # read last; dividers, country sign and flag move with it
    screws: tuple[Point, ...] = ()
    dividers: tuple[Box, ...] = ()  # lines (x0, y0, x1, y1) around the region
    sign: Point = (0, 0)  # left end and top of the country sign
    sign_height: countries.Length = 20.0  # of the sign's letters
    flag: Box = (0, 0, 0, 0)  # x0, y0, x1, y1

    @property
    def characters(self) -> int:
        """Length of the texts that fit this layout."""
        return sum(len(group.centres) for group in (*self.serial, self.region))


@dataclass(frozen=True)
class _Plate(Strict):
    """A format's table ``[formats.plate]``, with the country's defaults."""

    shares: dict[_Purpose, _Share] = field(default_factory=dict)  # of all rendered plates
    # At least one for each length of the format's texts; the renderer draws one that fits.
    layouts: tuple[Layout, ...] = ()
    # A format without layouts has sizes; its characters are typeset side by side.
    typefaces: tuple[str, ...] = ()  # file names of fonts; () means any font
    sheet: tuple[RGB, RGB] = ((250,) * 3, (250,) * 3)  # range of colours in full light, [0, 255]
    light_ink: bool = False  # whether characters are white; else they are black
    sign: str = ""  # of the country, such as "RUS"
    flag: tuple[_Colour, ...] = ()  # stripes from top to bottom
    # Factors on a style's probabilities of flag and holder, and the probability of each divider.
    flag_share: _Share = 1.0
    holder_share: _Share = 1.0
    divider_share: _Share = 1.0
    looseness: _Share = 0.03  # standard deviation of the sizes and the gaps of groups, as a share
    busy_regions: tuple[str, ...] = ()  # names of the regions whose codes are most common
    codes: tuple[str, ...] = ()  # replaces the country's region codes


@dataclass(frozen=True, kw_only=True)
class PlateKind(_Plate):
    """One kind of plate: a format and its appearance."""

    format: PlateFormat
    table: FormatTable  # the format's table in the country's file
    country: Grammar
    outlines: Mapping[str, Glyph]  # the country's own, and those of `_OUTLINED` for the rest

    @property
    def smallest_mm(self) -> tuple[float, float]:
        """Width and height of the smallest plate of this kind."""
        return min(self.table.sizes_mm or (layout.size_mm for layout in self.layouts))

    @property
    def smallest_character(self) -> float:
        """Height of the smallest character, as a share of the plate's width."""
        if sizes := self.table.sizes_mm:
            return min(0.6 * height / self.format.lines / width for width, height in sizes)
        return min(
            height / layout.size_mm[0]
            for layout in self.layouts
            for group in (*layout.serial, layout.region)
            for height in (group.digit_height, group.letter_height)
            if height > 0
        )

    def glyph_of(self, char: str) -> Glyph:
        """The outline of a text's character: of its native form if there is one, else its own."""
        own = self.format.native.get(char, "")
        return self.outlines[own if own in self.outlines else char]

    def rows(self, text: str) -> tuple[str, ...]:
        """Split a text into lines, with the spaces of its pattern: ("1234", "AB 77").

        Raises ValueError: The text follows no pattern of the format.
        """
        matches = (expression.fullmatch(text) for expression in self.format.patterns)
        fits = [
            (pattern, match.groupdict("").get("region", ""))
            for pattern, match in zip(self.table.patterns, matches, strict=True)
            if match
        ]
        if not fits:
            name, patterns = self.format.name, self.table.patterns
            raise ValueError(f"{text!r} follows no pattern of {name}: {patterns}")
        pattern, code = min(fits, key=lambda fit: fit[1] not in self.format.regions)
        widths = {"R": len(code), "L": 1, "A": 1, "#": 1}
        spelled, chars = "", iter(text)
        for token in TOKEN.finditer(pattern):
            width = len(token["literal"] or "") or widths.get(token[0], 0)
            spelled += "".join(islice(chars, width)) or token[0]  # a space, or "/"
        return tuple(" ".join(row.split()) for row in spelled.split("/"))

    def layouts_of(self, text: str) -> tuple[Layout, ...]:
        """The layouts that fit a text: at least one if the text follows a pattern."""
        return tuple(layout for layout in self.layouts if layout.characters == len(text))


@cache
def kinds_of(country: str) -> Mapping[str, PlateKind]:
    """The kinds of a country's plates by name, in the order of its file.

    Raises FormatError: The file is missing or malformed; the message names file, format and key.
    """
    path = countries.COUNTRIES / f"{country}.toml"
    definition, grammar = read_country(path)
    outlines: dict[str, Glyph] = {}
    if country != _OUTLINED:
        outlines |= next(iter(kinds_of(_OUTLINED).values())).outlines
    own = definition.plate.pop("outlines", {})
    outlines |= _read(dict[str, Glyph], own, f"{path}: plate.outlines")
    found = {}
    for table, plate_format in zip(definition.formats, grammar.formats, strict=True):
        if table.plate is None:
            continue
        place = f"{path}: format {table.name!r}: plate"
        drawing = _read(_Plate, definition.plate | table.plate, place)
        if bool(table.sizes_mm) == bool(drawing.layouts):
            raise FormatError(f"{place}: expected either 'layouts' or the format's 'sizes_mm'")
        if strange := set(drawing.busy_regions) - set(grammar.regions.values()):
            raise FormatError(f"{place}.busy_regions: {sorted(strange)} are not in [regions]")
        if not drawing.layouts + drawing.typefaces and (own := set(grammar.alphabet) - _LATIN):
            raise FormatError(f"{place}: {sorted(own)} need 'layouts', or 'typefaces' with them")
        drawn = {one.characters for one in drawing.layouts}
        if drawn and (lengths := {len(places) for places, _ in plate_format.spellings} - drawn):
            raise FormatError(f"{place}: no layout has {sorted(lengths)} characters")
        if drawing.layouts and (missing := set(grammar.alphabet + drawing.sign) - set(outlines)):
            raise FormatError(f"{path}: plate.outlines: no outlines of {sorted(missing)}")
        found[table.name] = PlateKind(
            **vars(drawing), format=plate_format, table=table, country=grammar, outlines=outlines
        )
    return found


def _read(kind: type[Table], table: Mapping[str, Any], place: str) -> Table:
    with named(place, FormatError):
        # From JSON, because strict mode accepts lists as tuples only there.
        return TypeAdapter(kind).validate_json(json.dumps(table, default=str))


def kind_named(name: str) -> PlateKind:
    """The kind with a format's name.

    Raises ValueError: The renderer has no such kind.
    """
    kinds = kinds_of(name.partition(".")[0])
    if name not in kinds:
        raise ValueError(f"expected a kind of plate out of {', '.join(kinds)}, got {name!r}")
    return kinds[name]


# The home country first: the first of its kinds, its car's plate, is the default.
_NAMES = (RECOGNIZER.countries[0], *available_countries())
KINDS = {name: kind for country in _NAMES for name, kind in kinds_of(country).items()}
CAR = next(iter(KINDS))
# The kinds with measured layouts; the others are typeset.
DRAWN = tuple(name for name, kind in KINDS.items() if kind.layouts)
TRAINING_SHARES, CALIBRATION_SHARES = (
    tuple(
        (name, share)
        for name, kind in KINDS.items()
        # The recognizer can only learn texts that its alphabet can spell.
        if (share := kind.shares.get(purpose))
        and (purpose != "training" or {*kind.country.alphabet} <= {*RECOGNIZER.alphabet})
    )
    for purpose in get_args(_Purpose)
)


@cache
def _code_odds(kind: str) -> list[tuple[str, float]]:
    about, names = kind_named(kind), kind_named(kind).country.regions
    listed = [code for code in sorted(names) if any(fits(one, code) for one in about.table.region)]
    codes = list(about.codes) or listed
    busy = about.busy_regions
    return [(code, _BUSY_WEIGHT if names.get(code) in busy else 1.0) for code in codes]


def _sample_region(kind: PlateKind, rng: Generator, repeats: bool) -> str:
    any_code = rng.random() < _UNIFORM_SHARE
    codes = _code_odds(kind.format.name)
    if not codes or (any_code and not kind.table.region_listed):
        pattern = pick(kind.table.region, rng)
        digits, letters = pattern.count("#"), kind.table.letters
        drawn = {"#": iter(f"{rng.integers(1, 10**digits):0{digits}d}" if digits else "")}
        drawn["L"] = iter(
            [letters[i] for i in rng.integers(max(1, len(letters)), size=pattern.count("L"))]
        )
        return "".join(next(drawn.get(char, iter(char))) for char in pattern)
    repeating = [code for code, _ in codes if any(map(str.__eq__, code, code[1:]))]
    if repeats and repeating and rng.random() < _REPEAT_SHARE:
        return pick(repeating, rng)
    if any_code or not kind.table.region_listed:
        return pick(codes, rng)[0]
    return str(choose(codes, rng)[0])


def _sample_letters(letters: str, count: int, rng: Generator) -> Iterator[str]:
    if not letters:
        return iter("")
    if rng.random() < _REPEAT_SHARE:
        return iter(pick(letters, rng) * count)
    return iter([letters[i] for i in rng.integers(len(letters), size=count)])


def _draw_text(kind: PlateKind, rng: Generator, repeats: bool) -> str:
    symbols = symbols_of(pick(kind.table.patterns, rng), kind.country.alphabet)
    letters = _sample_letters(kind.table.letters, symbols.count("L"), rng)
    # A format that never issues 000 has no other number of zeros either.
    first, region_at = int(bool(kind.table.never)), -1
    chars: list[str] = []
    for symbol, group in groupby(symbols):
        count = len(list(group))
        if symbol == "#" and rng.random() < _REPEAT_SHARE:
            chars += str(rng.integers(1, 10)) * count
        elif symbol == "#":
            chars += f"{rng.integers(first, 10**count):0{count}d}"
        elif symbol == "L":
            chars += islice(letters, count)
        elif symbol == "A":
            any_letter = [char for char in kind.country.alphabet if char.isalpha()]
            chars += rng.choice(any_letter, count).tolist()
        elif symbol == "R":
            region_at = len(chars)
        elif symbol != "/":
            chars += symbol[-1] * count
    rare = kind.table.rare_letters
    if rare and rng.random() < _RARE_LETTER_SHARE:
        places = [index for index, char in enumerate(chars) if char in kind.table.letters]
        chars[pick(places, rng)] = pick(rare, rng)
    if region_at >= 0:
        chars.insert(region_at, _sample_region(kind, rng, repeats))
    return "".join(chars)


def sample_text(rng: Generator, kind: str = CAR, repeats: bool = False) -> str:
    """Draw a text, such as "H002EX71", for a kind out of ``KINDS``.

    The text follows one of the format's patterns. Codes in use and busy regions are frequent, rare
    letters are rare. With `repeats`, codes that repeat a digit are frequent, too: a recognizer
    finds it hard to separate three narrow equal digits.

    Raises:
        ValueError: There is no such kind.
    """
    plate_kind = kind_named(kind)
    for _ in range(_TRIES):
        text = _draw_text(plate_kind, rng, repeats)
        if any(expression.fullmatch(text) for expression in plate_kind.format.patterns):
            return text
    raise ValueError(f"{kind}: no text out of {_TRIES} follows its patterns, the last is {text!r}")
