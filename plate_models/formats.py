"""Plate formats: their grammar, Russian region codes, Latin and Cyrillic letters.

Texts are written with the Latin look-alikes of the Cyrillic letters on the plate,
after GOST R 50577: "H002EX71" is what a Russian reader calls "Н002ЕХ71".
"""

import re
from dataclasses import dataclass
from functools import lru_cache

UNKNOWN = "unknown"
LETTERS = "ABEKMHOPCTYX"
_TO_NATIVE = str.maketrans("ABEKMHOPCTYXD", "АВЕКМНОРСТУХД")
_TO_LATIN = str.maketrans("АВЕКМНОРСТУХД", "ABEKMHOPCTYXD")

# Name: the codes issued for it, oldest first.
_CODES_OF_REGION = {
    "Adygea": "01 101",
    "Bashkortostan": "02 102 702",
    "Buryatia": "03 103",
    "Altai Republic": "04",
    "Dagestan": "05 105",
    "Ingushetia": "06",
    "Kabardino-Balkaria": "07",
    "Kalmykia": "08",
    "Karachay-Cherkessia": "09 109",
    "Karelia": "10",
    "Komi": "11 111",
    "Mari El": "12",
    "Mordovia": "13 113",
    "Sakha (Yakutia)": "14",
    "North Ossetia": "15",
    "Tatarstan": "16 116 716",
    "Tuva": "17",
    "Udmurtia": "18 118",
    "Khakassia": "19",
    "Chuvashia": "21 121",
    "Altai Krai": "22 122",
    "Krasnodar Krai": "23 93 123 193 323",
    "Krasnoyarsk Krai": "24 84 88 124",
    "Primorsky Krai": "25 125 725",
    "Stavropol Krai": "26 126",
    "Khabarovsk Krai": "27 127",
    "Amur Oblast": "28",
    "Arkhangelsk Oblast": "29",
    "Astrakhan Oblast": "30 130",
    "Belgorod Oblast": "31 131",
    "Bryansk Oblast": "32",
    "Vladimir Oblast": "33 133",
    "Volgograd Oblast": "34 134",
    "Vologda Oblast": "35",
    "Voronezh Oblast": "36 136",
    "Ivanovo Oblast": "37",
    "Irkutsk Oblast": "38 85 138",
    "Kaliningrad Oblast": "39 91",
    "Kaluga Oblast": "40",
    "Kamchatka Krai": "41",
    "Kemerovo Oblast": "42 142",
    "Kirov Oblast": "43",
    "Kostroma Oblast": "44",
    "Kurgan Oblast": "45",
    "Kursk Oblast": "46",
    "Leningrad Oblast": "47 147",
    "Lipetsk Oblast": "48",
    "Magadan Oblast": "49",
    "Moscow Oblast": "50 90 150 190 250 550 750 790",
    "Murmansk Oblast": "51",
    "Nizhny Novgorod Oblast": "52 152 252",
    "Novgorod Oblast": "53",
    "Novosibirsk Oblast": "54 154 754",
    "Omsk Oblast": "55 155",
    "Orenburg Oblast": "56 156",
    "Oryol Oblast": "57",
    "Penza Oblast": "58 158",
    "Perm Krai": "59 81 159",
    "Pskov Oblast": "60",
    "Rostov Oblast": "61 161 761",
    "Ryazan Oblast": "62",
    "Samara Oblast": "63 163 763",
    "Saratov Oblast": "64 164",
    "Sakhalin Oblast": "65",
    "Sverdlovsk Oblast": "66 96 196",
    "Smolensk Oblast": "67",
    "Tambov Oblast": "68",
    "Tver Oblast": "69 169",
    "Tomsk Oblast": "70",
    "Tula Oblast": "71",
    "Tyumen Oblast": "72 172",
    "Ulyanovsk Oblast": "73 173",
    "Chelyabinsk Oblast": "74 174 774",
    "Zabaykalsky Krai": "75 80",
    "Yaroslavl Oblast": "76",
    "Moscow": "77 97 99 177 197 199 777 797 799 977",
    "Saint Petersburg": "78 98 178 198",
    "Jewish Autonomous Oblast": "79",
    "Crimea": "82",
    "Nenets Autonomous Okrug": "83",
    "Khanty-Mansi Autonomous Okrug": "86 186",
    "Chukotka": "87",
    "Yamalo-Nenets Autonomous Okrug": "89",
    "Sevastopol": "92",
    "Baikonur": "94",
    "Chechnya": "20 95",
    "Donetsk": "180",
    "Luhansk": "181",
    "Kherson": "184",
    "Zaporizhzhia": "185",
}
REGIONS = {code: name for name, codes in _CODES_OF_REGION.items() for code in codes.split()}


@dataclass(frozen=True)
class Region:
    """Where a plate was issued: its code on the plate and an English name."""

    code: str
    name: str


@dataclass(frozen=True)
class PlateFormat:
    """One kind of plate: its name in answers and its grammar.

    Attributes:
        name: As it stands in the answer, such as "ru.car".
        pattern: A regular expression over the Latin text with a group ``region``.
    """

    name: str
    pattern: re.Pattern[str]


FORMATS = (
    # GOST R 50577 type 1. A serial number 000 is never issued. Its letters don't include
    # Д, yet plates with one are seen; it takes a clear reading, see prior_of.
    PlateFormat(
        "ru.car",
        re.compile(
            rf"[{LETTERS}D](?!000)\d{{3}}[{LETTERS}D]{{2}}(?P<region>\d{{2}}|[123579]\d{{2}})"
        ),
    ),
)


def to_native(text: str) -> str:
    """Write a text in the letters of its country: "B840CK197" as "В840СК197"."""
    return text.translate(_TO_NATIVE)


def to_latin(text: str) -> str:
    """The inverse of :func:`to_native`."""
    return text.translate(_TO_LATIN)


# Bounded: candidates of a busy gate never repeat.
@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[str, str]:
    for plate_format in FORMATS:
        match = plate_format.pattern.fullmatch(text)
        if match:
            return plate_format.name, match["region"]
    return UNKNOWN, ""


def format_of(text: str) -> str:
    """Name the format whose grammar a text follows, or "unknown"."""
    return _parse(text)[0]


def region_of(text: str) -> Region | None:
    """Tell where a plate was issued; None if its format or its code is not known."""
    code = _parse(text)[1]
    return Region(code, REGIONS[code]) if code in REGIONS else None


def prior_of(text: str) -> float:
    """How plausible a text is before anything was seen, relative to a valid one.

    Weighs the candidates of one plate; it forbids none.

    Returns:
        1 for a known format with an issued region code and the standard's letters, less
        for everything else.
    """
    if region_of(text) and "D" not in text:
        return 1.0
    return 0.02 if format_of(text) == UNKNOWN else 0.05
