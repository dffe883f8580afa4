"""What may stand on the plates of one country or several, and how plausible a text is.

A grammar is a prior, not a filter: it weighs what the recognizer saw, and nothing is
forbidden. The gateway imports this file: no torch, no numpy.
"""

import re
import string
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, log
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

UNKNOWN = "unknown"
# The colours that appearance.py can tell apart.
GROUNDS = ("white", "yellow", "blue", "black", "red")

# How far a text is believed beside a valid one. The hypothesis "no format of ours" fits
# every text, ground and number of lines: what is less plausible than it, is unknown.
_UNKNOWN_WEIGHT = 0.02
# By so much less where none of the layouts below is a text's.
_ODD_LAYOUT = 0.05
_RARE_LETTER = 0.05
# By so much most of the recognizer's training had fewer of I, O and Q than of other letters; its
# last part has as many, but with 1 here fewer real plates are readable.
_COMMON_LETTER = 1 / 0.35
_UNLISTED_REGION = 0.05
_OTHER_LINES = 0.02
# No photo is so clear that the ground's colour rules a format out.
_LEAST_GROUND = 0.02
# Spread of the logarithm of width by height: plates are seen aslant, in holders, behind tow bars.
_ASPECT_SPREAD = 0.15
_LEAST_ASPECT = 0.1
# A text's shape: letters as "L" and digits as "#", whichever they are.
_TO_SHAPE = str.maketrans(string.digits + string.ascii_uppercase, 10 * "#" + 26 * "L")
# Those of the world's plates, in the file's order: they tell O from 0 where no format is known.
_LAYOUTS = dict.fromkeys(
    tomllib.loads((Path(__file__).parent / "layouts.toml").read_text("utf-8"))["layouts"]
)


def country_of(format_name: str) -> str:
    """The country of a format such as "ru.car"; "" if it is unknown."""
    country, dot, _ = format_name.partition(".")
    return country if dot else ""


class FormatError(ValueError):
    """A country's definition is malformed; names the file, the place and the reason."""


class Evidence(NamedTuple):
    """What is seen of a plate beside its text; None is not known."""

    lines: int | None = 1
    ground: tuple[float, ...] | None = None  # likelihoods of `GROUNDS`, of any scale
    aspect: float | None = None  # width by height
    top_band: float | None = None  # how likely one runs along the top, in (0, 1)


@dataclass(frozen=True)
class Reading:
    """What stands on one plate, as far as it can be read."""

    text: str  # "" where it is not readable
    score: float  # calibrated probability that the best candidate is right, in [0, 1]
    # Neither is the score too low (see `Calibration`), nor the text too short or long for a plate.
    readable: bool
    format: str  # such as "ru.car", of the best candidate; "unknown" if none fits
    characters: tuple[tuple[str, float], ...]  # of the best candidate, with their posteriors
    candidates: tuple[tuple[str, float], ...]  # with scores, best first; the raw best path, too

    @property
    def best(self) -> str:
        """The best candidate, readable or not; "" if there is none."""
        return self.candidates[0][0] if self.candidates else ""


@dataclass(frozen=True)
class Region:
    """Where a plate was issued: its code on the plate and an English name."""

    code: str
    name: str


@dataclass(frozen=True, eq=False)
class PlateFormat:
    """One kind of plate."""

    name: str  # as it stands in the answer, such as "ru.car"
    lines: int  # 1 or 2
    ground: str  # the colour behind the characters, one of `GROUNDS`
    weight: float  # how common it is beside the commonest format, roughly, in (0, 1]
    patterns: tuple[re.Pattern[str], ...]  # over the Latin text; a region code is group ``region``
    # For each pattern and length of region code, the usual characters of each place, and itself.
    spellings: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]
    rare_letters: str  # that the patterns accept, and that make a text less plausible
    common_letters: str  # those of I, O and Q that are issued as often as any other letter
    # Region code to English name; a code that is not among them is less plausible. Where codes
    # are not known there are none, or the whole country as "".
    regions: Mapping[str, str]
    native: Mapping[str, str]  # Latin letters to those on the plate
    aspects: tuple[float, ...]  # width by height of its plates; none where it doesn't tell
    top_band: bool  # whether a coloured band runs along their top


@dataclass(frozen=True)
class Match:
    """One way to understand a text: as which format and from which region."""

    format: PlateFormat
    rows: tuple[str, ...]  # of the text, as it stands on the plate
    region: Region | None
    weight: float  # by the text alone; 1 if nothing in it is rarer or commoner than expected

    @property
    def native(self) -> str:
        """The text in the letters of its country: "B840CK197" is "В840СК197"."""
        return "".join(self.format.native.get(char, char) for row in self.rows for char in row)


@dataclass(frozen=True, eq=False)
class Grammar:
    """The formats of a country; made by ``countries.read_country``."""

    name: str  # the country's, such as "ru"
    alphabet: str  # all characters of its texts
    letters: str  # of the usual formats
    formats: tuple[PlateFormat, ...]  # in the order of the definition
    regions: Mapping[str, str]  # region code to English name
    look_alikes: tuple[str, ...]  # groups of characters that are taken for one another
    abroad: "Grammar | None" = None  # further countries, joined by `beside`,
    home: "Grammar | None" = None  # and this country without them

    def beside(self, others: Sequence["Grammar"], share: float) -> "Grammar":
        """This country at home, and others with a share of its plates.

        They name only what home does not know: a text of home is judged as without them.
        """
        formats = (one for other in others for one in other.formats)
        rarer = tuple(replace(one, weight=one.weight * share) for one in formats)
        look_alikes = dict.fromkeys(group for other in others for group in other.look_alikes)
        abroad = replace(others[0], formats=rarer, look_alikes=tuple(look_alikes))
        return replace(self, abroad=abroad, home=self)

    def judge(self, text: str, evidence: Evidence | None = None) -> tuple[str, float]:
        """Name the likeliest format of a text, rows joined, and its plausibility.

        What contradicts the evidence gets a small weight. The format is "unknown" if none fits, or
        if the evidence speaks against all that do.
        """
        beliefs = _beliefs(self, evidence or Evidence(None))
        for grammar in filter(None, (self.home or self, self.abroad)):
            matches = _matches(grammar, text)
            found = ((m.format.name, m.weight * beliefs[m.format.name]) for m in matches)
            best = max(found, key=itemgetter(1), default=(UNKNOWN, 0.0))
            if best[1] >= _UNKNOWN_WEIGHT:
                return best
        usual = text.translate(_TO_SHAPE) in _LAYOUTS
        return UNKNOWN, _UNKNOWN_WEIGHT * (1.0 if usual else _ODD_LAYOUT)

    def respellings(self, text: str) -> tuple[str, ...]:
        """Spell a text as formats have it where only look-alikes stand in the way.

        A place decides between O and 0: "0002EX71" is "O002EX71" as a car's plate. None if
        a character out of place resembles none that belongs there.
        """
        own = _respellings(self.home or self, text)
        return own + self.abroad.respellings(text) if self.abroad else own

    def reading_of(self, text: str, format_name: str) -> Match | None:
        """Understand a text as a format of this country; None if it is none, or another's.

        The text alone does not tell: "AB123777" is a trailer of region 77 or a taxi of 777.
        """
        return next((m for m in _matches(self, text) if m.format.name == format_name), None)


@lru_cache(maxsize=64)
def _beliefs(grammar: Grammar, evidence: Evidence) -> dict[str, float]:
    """How far each format is believed before the text is read; 1 for home's likeliest."""
    lines, ground, aspect, top_band = evidence
    beliefs = {}
    for each in (*grammar.formats, *(grammar.abroad.formats if grammar.abroad else ())):
        belief = each.weight * (1.0 if lines in (None, each.lines) else _OTHER_LINES)
        if ground and any(ground):
            belief *= max(ground[GROUNDS.index(each.ground)] / max(ground), _LEAST_GROUND)
        if aspect and top_band and each.aspects:
            off = min(abs(log(aspect / own)) for own in each.aspects) / _ASPECT_SPREAD
            belief *= max(exp(-(off**2) / 2), _LEAST_ASPECT)
            band = top_band if each.top_band else 1 - top_band
            belief *= band / max(top_band, 1 - top_band)
        beliefs[each.name] = belief
    highest = max(beliefs[each.name] for each in grammar.formats)
    return {name: min(belief / highest, 1.0) for name, belief in beliefs.items()}


# Bounded: candidates of a busy gate never repeat.
@lru_cache(maxsize=4096)
def _matches(grammar: Grammar, text: str) -> tuple[Match, ...]:
    """The formats that a text follows, weighed by the text alone."""
    found = []
    for plate_format, patterns in _formats_of(grammar, text.translate(_TO_SHAPE)):
        fits = (pattern.fullmatch(text) for pattern in patterns)
        ways = [match.groupdict("") for match in fits if match]
        if ways:  # One from a listed region, if there is one.
            groups = min(ways, key=lambda way: way.get("region", "") not in plate_format.regions)
            code = groups.get("region", "")
            name = plate_format.regions.get(code)
            weight = _UNLISTED_REGION if code and plate_format.regions and not name else 1.0
            weight *= _RARE_LETTER if set(text) & set(plate_format.rare_letters) else 1.0
            weight *= _COMMON_LETTER ** sum(map(text.count, plate_format.common_letters))
            # Of the whole country: where its districts' codes end is not in the text.
            code = "" if name == plate_format.regions.get("") else code
            region = Region(code, name) if name else None
            cut = len(text) - len(groups.get("second", ""))
            rows = tuple(filter(None, (text[:cut], text[cut:])))
            found.append(Match(plate_format, rows, region, weight))
    return tuple(found)


@lru_cache(maxsize=4096)
def _respellings(grammar: Grammar, text: str) -> tuple[str, ...]:
    spelled = []
    for places in _spellings_of(grammar, len(text)):
        chars = [own.get(char, "") for own, char in zip(places, text, strict=True)]
        if all(chars):
            spelled.append("".join(chars))
    return tuple(new for new in dict.fromkeys(spelled) if new != text and _matches(grammar, new))


@lru_cache(maxsize=64)
def _spellings_of(grammar: Grammar, length: int) -> tuple[tuple[Mapping[str, str], ...], ...]:
    """For each layout of texts so long, how each place spells the characters it can explain."""
    layouts = dict.fromkeys(
        places for one in grammar.formats for places, _ in one.spellings if len(places) == length
    )
    return tuple(tuple(_spelling(allowed, grammar) for allowed in places) for places in layouts)


@lru_cache(maxsize=1024)
def _spelling(allowed: str, grammar: Grammar) -> Mapping[str, str]:
    """Characters to themselves where a place allows them, else to the first that resembles them."""
    spelled: dict[str, str] = {}
    for group in grammar.look_alikes:
        first = next((char for char in group if char in allowed), "")
        spelled = dict.fromkeys(group, first) | spelled if first else spelled
    return spelled | {char: char for char in allowed}


@lru_cache(maxsize=1024)
def _formats_of(
    grammar: Grammar, shape: str
) -> tuple[tuple[PlateFormat, list[re.Pattern[str]]], ...]:
    """The formats that have texts of a shape, and the patterns of these, each once."""

    def has(places: tuple[str, ...]) -> bool:
        symbols = zip(shape, places, strict=False)
        return len(places) == len(shape) and all(a in b.translate(_TO_SHAPE) for a, b in symbols)

    fitting = (
        (one, list(dict.fromkeys(pattern for places, pattern in one.spellings if has(places))))
        for one in grammar.formats
    )
    return tuple((one, patterns) for one, patterns in fitting if patterns)
