"""The plate formats of one country or several, and how plausible a text is by them.

A grammar is a prior, not a filter: it weights the recognizer's candidates and forbids none. The
gateway imports this file: no torch, no numpy.
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
# The ground colours that appearance.py distinguishes.
GROUNDS = ("white", "yellow", "blue", "black", "red")

# Weight of the hypothesis "no known format", relative to a valid text. It fits every text, ground
# and number of lines; a text whose best format weighs less is of unknown format.
_UNKNOWN_WEIGHT = 0.02
# Factor on that weight if the text has none of the layouts below.
_ODD_LAYOUT = 0.05
_RARE_LETTER = 0.05
# Most of the recognizer's training had fewer of I, O and Q than of other letters, by this factor.
# The last part has as many, but with a factor of 1 fewer real plates are readable.
_COMMON_LETTER = 1 / 0.35
_UNLISTED_REGION = 0.05
_OTHER_LINES = 0.02
# No photo is clear enough for the ground's colour to rule out a format.
_LEAST_GROUND = 0.02
# Standard deviation of the log aspect ratio: plates are tilted, in holders, or behind tow bars.
_ASPECT_SPREAD = 0.15
_LEAST_ASPECT = 0.1
# A text's shape is the text with "L" for each letter and "#" for each digit.
_TO_SHAPE = str.maketrans(string.digits + string.ascii_uppercase, 10 * "#" + 26 * "L")
# Shapes of the world's plates, in the file's order: they tell O from 0 in texts of unknown format.
_LAYOUTS = dict.fromkeys(
    tomllib.loads((Path(__file__).parent / "layouts.toml").read_text("utf-8"))["layouts"]
)


def country_of(format_name: str) -> str:
    """The country of a format such as "ru.car"; "" if it is unknown."""
    country, dot, _ = format_name.partition(".")
    return country if dot else ""


class FormatError(ValueError):
    """A country's definition is malformed; the message names the file, place and reason."""


class Evidence(NamedTuple):
    """What is seen of a plate beside its text; None if not known."""

    lines: int | None = 1
    ground: tuple[float, ...] | None = None  # likelihoods of `GROUNDS`, of any scale
    aspect: float | None = None  # width / height
    top_band: float | None = None  # probability of a blue band along the top, in (0, 1)


@dataclass(frozen=True)
class Reading:
    """The text of one plate, as far as it can be read."""

    # "" if not readable: the score is too low (see `Calibration`), or the length is not that of a
    # plate's text.
    text: str
    score: float  # calibrated probability that the best candidate is right, in [0, 1]
    format: str  # of the best candidate, such as "ru.car"; "unknown" if none fits
    characters: tuple[tuple[str, float], ...]  # of the best candidate, with their posteriors
    candidates: tuple[tuple[str, float], ...]  # with scores, best first, including the best path

    @property
    def readable(self) -> bool:
        """Whether there is a text."""
        return self.text != ""

    @property
    def best(self) -> str:
        """The best candidate, readable or not; "" if there is none."""
        return self.candidates[0][0] if self.candidates else ""


@dataclass(frozen=True)
class Region:
    """The region that issued a plate: its code on the plate and an English name."""

    code: str
    name: str


@dataclass(frozen=True, eq=False)
class PlateFormat:
    """One kind of plate."""

    name: str  # as in answers, such as "ru.car"
    lines: int  # 1 or 2
    ground: str  # the colour behind the characters, one of `GROUNDS`
    weight: float  # its rough frequency relative to the commonest format, in (0, 1]
    patterns: tuple[re.Pattern[str], ...]  # over the Latin text; a region code is group ``region``
    # Per pattern and length of region code: the usual characters of each place, and the pattern.
    spellings: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]
    rare_letters: str  # accepted by the patterns, but they make a text less plausible
    common_letters: str  # those of I, O and Q that are issued as often as any other letter
    # Region code to English name; other codes are less plausible. Empty if codes are not known; the
    # key "" stands for the whole country.
    regions: Mapping[str, str]
    native: Mapping[str, str]  # Latin letters to those on the plate
    aspects: tuple[float, ...]  # width / height of its plates; empty if it is no evidence
    top_band: bool  # whether a coloured band runs along the top of its plates


@dataclass(frozen=True)
class Match:
    """One interpretation of a text: its format and region."""

    format: PlateFormat
    rows: tuple[str, ...]  # the text, divided into the plate's rows
    region: Region | None
    weight: float  # by the text alone; 1 unless something in it is rarer or commoner than expected

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
    look_alikes: tuple[str, ...]  # groups of characters that are mistaken for one another
    abroad: "Grammar | None" = None  # further countries, joined by `beside`
    home: "Grammar | None" = None  # this country without them

    def beside(self, others: Sequence["Grammar"], share: float) -> "Grammar":
        """Join others to this home country, with the weights of their formats times `share`.

        A text in a format of the home country is judged as if there were no others.
        """
        formats = (one for other in others for one in other.formats)
        rarer = tuple(replace(one, weight=one.weight * share) for one in formats)
        look_alikes = dict.fromkeys(group for other in others for group in other.look_alikes)
        abroad = replace(others[0], formats=rarer, look_alikes=tuple(look_alikes))
        return replace(self, abroad=abroad, home=self)

    def judge(self, text: str, evidence: Evidence | None = None) -> tuple[str, float]:
        """Return the likeliest format of a text, rows joined, and the text's plausibility.

        Formats that contradict the evidence get a small weight. The format is "unknown" if none
        fits, or if the evidence contradicts all that fit.
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
        """Respell a text to fit formats, by replacing characters with their look-alikes.

        The place decides between O and 0: "0002EX71" becomes "O002EX71", a car's plate. The result
        is empty if a misplaced character resembles none that is allowed in its place.
        """
        own = _respellings(self.home or self, text)
        return own + self.abroad.respellings(text) if self.abroad else own

    def reading_of(self, text: str, format_name: str) -> Match | None:
        """Match a text with a format of this country; None if there is no such format or match.

        The text alone is ambiguous: "AB123777" is a trailer of region 77 or a taxi of 777.
        """
        return next((m for m in _matches(self, text) if m.format.name == format_name), None)


@lru_cache(maxsize=64)
def _beliefs(grammar: Grammar, evidence: Evidence) -> dict[str, float]:
    """Each format's weight by the evidence beside the text; 1 for the home country's likeliest."""
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


# Bounded: the camera of a busy gate always produces new candidates.
@lru_cache(maxsize=4096)
def _matches(grammar: Grammar, text: str) -> tuple[Match, ...]:
    """The formats that match a text, weighted by the text alone."""
    found = []
    for plate_format, patterns in _formats_of(grammar, text.translate(_TO_SHAPE)):
        fits = (pattern.fullmatch(text) for pattern in patterns)
        ways = [match.groupdict("") for match in fits if match]
        if ways:  # prefer one with a listed region
            groups = min(ways, key=lambda way: way.get("region", "") not in plate_format.regions)
            code = groups.get("region", "")
            name = plate_format.regions.get(code)
            weight = _UNLISTED_REGION if code and plate_format.regions and not name else 1.0
            weight *= _RARE_LETTER if set(text) & set(plate_format.rare_letters) else 1.0
            weight *= _COMMON_LETTER ** sum(map(text.count, plate_format.common_letters))
            # For the whole country there is no code: the text does not show where a code ends.
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
    """Per layout of this length: for each place, the respellings of characters that fit there."""
    layouts = dict.fromkeys(
        places for one in grammar.formats for places, _ in one.spellings if len(places) == length
    )
    return tuple(tuple(_spelling(allowed, grammar) for allowed in places) for places in layouts)


@lru_cache(maxsize=1024)
def _spelling(allowed: str, grammar: Grammar) -> Mapping[str, str]:
    """Map characters that a place allows to themselves, others to the first allowed look-alike."""
    spelled: dict[str, str] = {}
    for group in grammar.look_alikes:
        first = next((char for char in group if char in allowed), "")
        spelled = dict.fromkeys(group, first) | spelled if first else spelled
    return spelled | {char: char for char in allowed}


@lru_cache(maxsize=1024)
def _formats_of(
    grammar: Grammar, shape: str
) -> tuple[tuple[PlateFormat, list[re.Pattern[str]]], ...]:
    """The formats that have texts of a shape, each with its patterns of that shape, once each."""

    def has(places: tuple[str, ...]) -> bool:
        symbols = zip(shape, places, strict=False)
        return len(places) == len(shape) and all(a in b.translate(_TO_SHAPE) for a, b in symbols)

    fitting = (
        (one, list(dict.fromkeys(pattern for places, pattern in one.spellings if has(places))))
        for one in grammar.formats
    )
    return tuple((one, patterns) for one, patterns in fitting if patterns)
