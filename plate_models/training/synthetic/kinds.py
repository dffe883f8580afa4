"""The kinds of plates: what stands where on each, and in which colours.

Sizes are those of GOST R 50577. The places of the characters of type 1 were measured on
photos; those of all other kinds follow the standard's figures as well as they could be
recalled, which is why they vary more from plate to plate (``PlateKind.looseness``).
Lengths are in millimetres from the plate's left top corner.
"""

from dataclasses import dataclass
from typing import TypeAlias

Point: TypeAlias = tuple[float, float]
Box: TypeAlias = tuple[float, float, float, float]
RGB: TypeAlias = tuple[float, float, float]

CAR = "ru.car"
# Dividers end inside the line of the frame.
_EDGE = 3.8


@dataclass(frozen=True)
class Ground:
    """The colours of a plate."""

    name: str  # of the sheet's colour
    sheet: tuple[RGB, RGB]  # range of the sheet's colour in full light, RGB in [0, 255]
    light_ink: bool = False  # characters are white; else black


WHITE = Ground("white", ((250, 250, 250), (250, 250, 250)))
YELLOW = Ground("yellow", ((222, 146, 0), (255, 214, 70)))
BLUE = Ground("blue", ((8, 48, 125), (50, 112, 215)), light_ink=True)
BLACK = Ground("black", ((8, 8, 10), (52, 52, 56)), light_ink=True)
RED = Ground("red", ((138, 5, 14), (214, 46, 50)), light_ink=True)


@dataclass(frozen=True)
class Group:
    """Characters side by side on one foot line."""

    centres: tuple[float, ...]  # middle of each character
    foot: float  # where they stand
    digit_height: float = 76.0
    letter_height: float = 58.0


@dataclass(frozen=True)
class Layout:
    """Where things stand on a plate."""

    size_mm: tuple[float, float]  # width and height of the plate
    serial: tuple[Group, ...]  # the groups of the serial number in reading order
    region: Group  # the region's code; dividers, country sign and flag move with it
    dividers: tuple[Box, ...]  # lines (x0, y0, x1, y1) around the region
    country: Point  # left end and top of "RUS"
    country_height: float  # of its letters
    flag: Box  # its box (x0, y0, x1, y1)
    screws: tuple[Point, ...]  # where plates are screwed on

    @property
    def characters(self) -> int:
        """Length of the texts that fit."""
        return sum(len(group.centres) for group in (*self.serial, self.region))


@dataclass(frozen=True)
class PlateKind:
    """One kind of plate."""

    name: str  # of its format, such as "ru.car"
    # Its serial numbers: "L" is a letter, "#" a digit, others stand for themselves. The region's
    # code follows.
    serials: tuple[str, ...]
    # One or more for each length of its texts; which one is a matter of chance.
    layouts: tuple[Layout, ...]
    lines: int = 1  # of text, 1 or 2
    upper: int = 4  # characters of the upper line, if there are two
    ground: Ground = WHITE  # its colours
    # flag_share, holder_share, divider_share: Factors on a style's chances of these, and the chance
    # of each divider.
    flag_share: float = 1.0
    holder_share: float = 1.0
    divider_share: float = 1.0
    latin: bool = False  # a "D" is the Latin letter, not the Cyrillic De
    looseness: float = 0.03  # standard deviation of the sizes and the gaps of groups, as a share

    @property
    def smallest_mm(self) -> tuple[float, float]:
        """Width and height of the smallest plate of the kind."""
        return min(layout.size_mm for layout in self.layouts)

    def rows(self, text: str) -> tuple[str, ...]:
        """A text line by line; one entry for a plate with one line."""
        return (text,) if self.lines == 1 else (text[: self.upper], text[self.upper :])

    def layouts_of(self, text: str) -> tuple[Layout, ...]:
        """The layouts that a text fits.

        Raises ValueError: There is none.
        """
        fitting = tuple(layout for layout in self.layouts if layout.characters == len(text))
        if not fitting:
            lengths = sorted({layout.characters for layout in self.layouts})
            expected = " or ".join(map(str, lengths))
            raise ValueError(
                f"{text!r}: {self.name} has {expected} characters, this has {len(text)}"
            )
        return fitting


def kind_named(name: str) -> PlateKind:
    """The kind of a format.

    Raises ValueError: The renderer has no such kind.
    """
    if name not in KINDS:
        raise ValueError(f"expected a kind of plate out of {', '.join(KINDS)}, got {name!r}")
    return KINDS[name]


def _long(
    serial: tuple[float, ...], region: tuple[float, ...], divider: float, country: float = 405
) -> Layout:
    """One line on 520 x 112 mm, the region with "RUS" and flag below it on the right."""
    return Layout(
        size_mm=(520, 112),
        serial=(Group(serial, 94.8),),
        region=Group(region, 71.5, digit_height=58),
        dividers=((divider, _EDGE, divider, 112 - _EDGE),),
        country=(country, 79.5),
        country_height=20,
        flag=(466, 78.5, 509, 101),
        screws=((20, 56), (503, 56)),
    )


_REGION_2, _REGION_3 = (426.0, 469.3), (391.0, 434.0, 476.3)


def _high(
    size_mm: tuple[float, float], upper: Group, lower: Group, region: Group, sign_height: float
) -> Layout:
    """Two lines: the region to the right of the lower line, "RUS" and flag below it."""
    (width, height), middle = size_mm, sum(region.centres) / len(region.centres)
    divider = (max(lower.centres) + min(region.centres)) / 2 + 2
    top, ceiling = region.foot + 0.35 * sign_height, 0.525 * height
    flag = middle + 0.6 * sign_height, top, middle + 2.6 * sign_height, top + sign_height
    side = 0.22 * width
    return Layout(
        size_mm=size_mm,
        serial=(upper, lower),
        region=region,
        dividers=(
            (divider, ceiling, divider, height - _EDGE),
            (divider - 1, ceiling, width - _EDGE, ceiling),
        ),
        country=(middle - 2.7 * sign_height, top),
        country_height=sign_height,
        flag=flag,
        screws=((side, 8), (width - side, 8), (side, height - 8), (width - side, height - 8)),
    )


_SQUARE = tuple(
    _high(
        (290, 170),
        Group((49, 117, 175, 233), 81, 70, 54),
        Group((47, 100), 156, letter_height=54),
        region,
        14,
    )
    for region in (Group((186, 230), 143, 50), Group((168, 207, 246), 143, 48))
)
# After the standard of 2018, and the larger one before it.
_MOTORCYCLE = tuple(
    _high((190, 145), Group((33, 75, 117, 159), 69, 56), Group((32, 68), 130, 0, 42), region, 11)
    for region in (Group((119, 149), 115, 36), Group((109, 135, 161), 115, 34))
) + tuple(
    _high((245, 185), Group((42, 96, 150, 204), 88, 70), Group((42, 92), 168, 0, 56), region, 14)
    for region in (Group((157, 197), 150, 48), Group((143, 177, 211), 150, 46))
)
_TRACTOR = tuple(
    _high((288, 206), Group((54, 114, 174, 234), 96, 76), Group((52, 104), 184, 0, 58), region, 16)
    for region in (Group((182, 228), 168, 56), Group((163, 205, 247), 168, 52))
)

_ALL = (
    PlateKind(
        CAR,
        ("L###LL",),
        # Measured; a three-digit region takes its room from the serial number.
        (
            _long((61.2, 124.5, 180.3, 236.3, 300.2, 355.4), _REGION_2, 397),
            _long((49.5, 105.7, 161.5, 217.6, 274, 329.7), _REGION_3, 369),
        ),
        looseness=0.0,
    ),
    PlateKind("ru.car.square", ("L###LL",), _SQUARE, lines=2, holder_share=0.7, divider_share=0.5),
    PlateKind(
        "ru.motorcycle", ("####LL",), _MOTORCYCLE, lines=2, holder_share=0.35, divider_share=0.5
    ),
    PlateKind("ru.tractor", ("####LL",), _TRACTOR, lines=2, holder_share=0.2, divider_share=0.5),
    PlateKind(
        "ru.trailer",
        ("LL####",),
        (
            _long((56, 108, 176, 232, 288, 344), _REGION_2, 397),
            _long((44, 95, 158, 213, 268, 323), _REGION_3, 367),
        ),
        holder_share=0.5,
    ),
    PlateKind(
        "ru.taxi",
        ("LL###",),
        (
            _long((68, 123, 196, 256, 316), _REGION_2, 393),
            _long((54, 108, 178, 236, 294), _REGION_3, 365),
        ),
        ground=YELLOW,
        flag_share=0.5,
    ),
    PlateKind(
        "ru.police",
        ("L####",),
        (
            _long((64, 138, 197, 256, 315), _REGION_2, 391),
            _long((52, 122, 179, 236, 293), _REGION_3, 365),
        ),
        ground=BLUE,
        flag_share=0.3,
    ),
    PlateKind(
        "ru.military",
        ("####LL",),
        (_long((54, 110, 166, 222, 288, 343), _REGION_2, 395, 416),),
        ground=BLACK,
        flag_share=0.0,
        holder_share=0.6,
    ),
    PlateKind(
        "ru.diplomatic",
        ("###CD#", "###D###", "###T###"),
        (
            _long((52, 106, 160, 222, 272, 335), _REGION_2, 393, 416),
            _long((44, 93, 142, 198, 254, 303, 352), _REGION_2, 395, 416),
        ),
        ground=RED,
        flag_share=0.0,
        latin=True,
    ),
)
KINDS = {kind.name: kind for kind in _ALL}
