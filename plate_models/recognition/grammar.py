"""What may stand on the plates of a country, and how plausible a text is.

A grammar is a prior, not a filter: it weighs what the recognizer saw, and nothing is
forbidden. The gateway imports this file: no torch, no numpy.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter

UNKNOWN = "unknown"
# The colours that appearance.py can tell apart.
GROUNDS = ("white", "yellow", "blue", "black", "red")

# How far a text is believed beside a valid one. The hypothesis "no format of ours" fits
# every text, ground and number of lines: what is less plausible than it, is unknown.
_UNKNOWN_WEIGHT = 0.02
_RARE_LETTER = 0.05
_UNLISTED_REGION = 0.05
_OTHER_LINES = 0.02
# No photo is so clear that the ground's colour rules a format out.
_LEAST_GROUND = 0.02


class FormatError(ValueError):
    """A country's definition is malformed; names the file, the place and the reason."""


@dataclass(frozen=True)
class Region:
    """Where a plate was issued: its code on the plate and an English name."""

    code: str
    name: str


@dataclass(frozen=True, eq=False)
class PlateFormat:
    """One kind of plate.

    Attributes:
        name: As it stands in the answer, such as "ru.car".
        lines: 1 or 2.
        ground: Colour behind the characters, one of `GROUNDS`.
        weight: How common it is beside the commonest format, roughly, in (0, 1].
        patterns: Over the Latin text; a group ``region`` where there is a region code.
        places: For each pattern and length of region code, the usual characters of
            each place.
        rare_letters: Letters that the patterns accept and that make a text less plausible.
        region_listed: Whether a region code outside the country's list is less plausible.
        native: Latin letters to those on the plate.
    """

    name: str
    lines: int
    ground: str
    weight: float
    patterns: tuple[re.Pattern[str], ...]
    places: tuple[tuple[str, ...], ...]
    rare_letters: str
    region_listed: bool
    native: Mapping[str, str]


@dataclass(frozen=True)
class Match:
    """One way to understand a text: as which format, from which region, and how plausible."""

    format: PlateFormat
    region: Region | None
    # In (0, 1]; 1 for a valid text of the commonest format that ground and lines speak for.
    weight: float


@dataclass(frozen=True, eq=False)
class Grammar:
    """The formats of a country; made by ``countries.load_country``.

    Attributes:
        name: The country, such as "ru".
        alphabet: All characters of its texts.
        letters: Letters of the usual formats.
        formats: In the order of the definition.
        regions: Region code to English name.
        look_alikes: Groups of characters that are taken for one another.
        native: Latin letters to the country's own.
    """

    name: str
    alphabet: str
    letters: str
    formats: tuple[PlateFormat, ...]
    regions: Mapping[str, str]
    look_alikes: tuple[str, ...]
    native: Mapping[str, str]

    def readings_of(
        self, text: str, lines: int | None = None, ground: Mapping[str, float] | None = None
    ) -> tuple[Match, ...]:
        """List the formats that a text, rows joined, can be: most plausible first.

        The ground is likelihoods of colours, of any scale; a colour that is not in it counts as
        the least likely one. What contradicts the ground or the lines gets a small weight.
        """
        beliefs = _beliefs(self, lines, tuple(ground.items()) if ground else ())
        matches = [
            Match(m.format, m.region, m.weight * beliefs[m.format.name])
            for m in _matches(self, text)
        ]
        return tuple(sorted(matches, key=lambda match: -match.weight))

    def judge(
        self, text: str, lines: int | None = None, ground: Mapping[str, float] | None = None
    ) -> tuple[str, float]:
        """Name a text's likeliest format and say how plausible the text is, in (0, 1].

        The arguments are those of `readings_of`. The format is "unknown" if none fits, or if
        the evidence speaks against all that do.
        """
        beliefs = _beliefs(self, lines, tuple(ground.items()) if ground else ())
        # Called for every text that is weighed: no list of matches is made, as above.
        found = ((m.format.name, m.weight * beliefs[m.format.name]) for m in _matches(self, text))
        best = max(found, key=itemgetter(1), default=(UNKNOWN, 0.0))
        return best if best[1] >= _UNKNOWN_WEIGHT else (UNKNOWN, _UNKNOWN_WEIGHT)

    def respellings(self, text: str) -> tuple[str, ...]:
        """Spell a text as formats have it where only look-alikes stand in the way.

        A place decides between O and 0: "0002EX71" is "O002EX71" as a car's plate. None if
        a character out of place resembles none that belongs there.
        """
        return _respellings(self, text)

    def region_of(self, text: str, format_name: str | None = None) -> Region | None:
        """Tell where a plate was issued; None if format or code are not known.

        The text alone does not always tell: "AB123777" is a trailer of region 77 or a taxi of
        777. Without a format's name the likeliest one counts.
        """
        matches = self.readings_of(text)
        return next((m.region for m in matches if format_name in (None, m.format.name)), None)

    def to_native(self, text: str, format_name: str | None = None) -> str:
        """Write a text in the letters of its country: "B840CK197" as "В840СК197"."""
        if format_name is None:
            format_name = self.judge(text)[0]
        table = next((f.native for f in self.formats if f.name == format_name), self.native)
        return text.translate({ord(latin): own for latin, own in table.items()})


@lru_cache(maxsize=64)
def _beliefs(
    grammar: Grammar, lines: int | None, ground: tuple[tuple[str, float], ...]
) -> dict[str, float]:
    """How far each format is believed before the text is read; 1 for the likeliest."""
    likelihoods = dict(ground)
    least, most = min(likelihoods.values(), default=0.0), max(likelihoods.values(), default=0.0)
    beliefs = {}
    for each in grammar.formats:
        belief = each.weight * (1.0 if lines in (None, each.lines) else _OTHER_LINES)
        if most > 0:
            belief *= max(likelihoods.get(each.ground, least) / most, _LEAST_GROUND)
        beliefs[each.name] = belief
    highest = max(beliefs.values())
    return {name: belief / highest for name, belief in beliefs.items()}


# Bounded: candidates of a busy gate never repeat.
@lru_cache(maxsize=4096)
def _matches(grammar: Grammar, text: str) -> tuple[Match, ...]:
    """The formats that a text follows, weighed by the text alone."""
    found = []
    for plate_format in _formats_of(grammar, len(text)):
        fits = (pattern.fullmatch(text) for pattern in plate_format.patterns)
        match = next((match for match in fits if match), None)
        if match:
            code = match.groupdict().get("region")
            listed = plate_format.region_listed and code is not None
            name = grammar.regions.get(code or "") if listed else None
            weight = _UNLISTED_REGION if listed and name is None else 1.0
            weight *= _RARE_LETTER if set(text) & set(plate_format.rare_letters) else 1.0
            region = Region(code, name) if code and name else None
            found.append(Match(plate_format, region, weight))
    return tuple(found)


@lru_cache(maxsize=4096)
def _respellings(grammar: Grammar, text: str) -> tuple[str, ...]:
    layouts = dict.fromkeys(p for one in _formats_of(grammar, len(text)) for p in one.places)
    spelled = (_respelled(text, places, grammar.look_alikes) for places in layouts)
    return tuple(dict.fromkeys(new for new in spelled if new != text and _matches(grammar, new)))


@lru_cache(maxsize=64)
def _formats_of(grammar: Grammar, length: int) -> tuple[PlateFormat, ...]:
    """The formats that have texts of a length, with the places of these texts alone."""
    found = []
    for plate_format in grammar.formats:
        places = tuple(places for places in plate_format.places if len(places) == length)
        if places:
            found.append(replace(plate_format, places=places))
    return tuple(found)


def _respelled(text: str, places: tuple[str, ...], look_alikes: tuple[str, ...]) -> str:
    """Replace what is out of place by what resembles it; "" if nothing does."""
    spelled = []
    for char, allowed in zip(text, places, strict=True):
        if char not in allowed:
            similar = (other for group in look_alikes if char in group for other in group)
            char = next((other for other in similar if other in allowed), "")
        if not char:
            return ""
        spelled.append(char)
    return "".join(spelled)
