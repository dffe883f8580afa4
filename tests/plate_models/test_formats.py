"""Formats: grammar, regions and native letters of the plates of Russia and other countries."""

import pytest
from spelled import BLUE, RED, WHITE

from plate_models.formats import available_countries, grammar_of, reading_of
from plate_models.recognition.grammar import GROUNDS, Evidence, Region
from plate_models.spec import RECOGNIZER

RUSSIA, EVERY = grammar_of("ru"), grammar_of(*RECOGNIZER.countries)


@pytest.mark.parametrize(
    "text",
    [
        *("", "A000AA77", "A111AA7", "A111AA7777", "A111AA477", "11111AA77", "A11AA77", "A1111"),
        *("А111АА77", "AD123477", "000CD177", "1234AB177D", "A111AA77\n", "A１１１AA77"),
    ],
)
def test_texts_of_no_russian_format_are_unknown(text):
    assert RUSSIA.judge(text)[0] == "unknown"
    assert reading_of(text, "unknown") is reading_of(text, "ru.car") is None


def test_a_format_that_contradicts_the_evidence_is_less_plausible_but_possible():
    assert RUSSIA.judge("A123477", Evidence(1, WHITE))[0] == "unknown"
    white, blue = (RUSSIA.judge("A123477", Evidence(1, each))[1] for each in (WHITE, BLUE))
    assert 0 < white < blue
    assert RUSSIA.judge("1234AB77", Evidence(1))[0] == "ru.military"
    assert RUSSIA.judge("AB123516")[0] == "ru.trailer"  # 516 is no region, 16 is
    assert RUSSIA.judge("1234AB77", Evidence(2, WHITE))[0] == "ru.motorcycle"
    # Neither a blue tint nor a sure other ground makes a clear car plate anything else.
    for seen in (BLUE, tuple(float(ground == "black") for ground in GROUNDS)):
        assert RUSSIA.judge("A123BC77", Evidence(1, seen))[0] == "ru.car"
    texts = ("A111AA77", "A111AA00", "A111AD77", "ABC")
    valid, no_region, rare, unknown = (RUSSIA.judge(text)[1] for text in texts)
    assert valid == 1 and valid > no_region > unknown > 0 and valid > rare > unknown


def test_a_reading_has_its_region_and_its_rows():
    for text, name, region, rows in (
        ("B840CK197", "ru.car", Region("197", "Moscow"), ["B840CK197"]),
        ("B840CK197", "ru.car.square", Region("197", "Moscow"), ["B840", "CK197"]),
        ("A258EX19", "ru.car", Region("19", "Khakassia"), ["A258EX19"]),
        ("A111AA00", "ru.car", None, ["A111AA00"]),
        ("AB123777", "ru.taxi", Region("777", "Moscow"), ["AB123777"]),
        ("AB123777", "ru.trailer", Region("77", "Moscow"), ["AB123777"]),
        ("AB123516", "ru.taxi", None, ["AB123516"]),
        ("1234AB77", "ru.military", None, ["1234AB77"]),  # its digits are no region
        ("1234AB77", "ru.motorcycle", Region("77", "Moscow"), ["1234", "AB77"]),
    ):
        match = reading_of(text, name)
        assert match is not None and (match.region, list(match.rows)) == (region, rows)
    assert len(RUSSIA.regions) == 167 and len(set(RUSSIA.regions.values())) == 90
    assert all(RUSSIA.judge(f"A111AA{code}") == ("ru.car", 1) for code in RUSSIA.regions)


def test_native_texts_have_the_countrys_own_letters():
    texts = ["B840CK197", "E456HK77", "M789OP77", "T123XY77", "B666AD30", "001D00177", "001CD177"]
    # The D of diplomats is a Latin letter; the D of cars stands for a Cyrillic one.
    natives = ["В840СК197", "Е456НК77", "М789ОР77", "Т123ХУ77", "В666АД30", "001D00177", "001CD177"]
    assert [reading_of(text, RUSSIA.judge(text)[0]).native for text in texts] == natives


# A text of each format, its lines and ground, its region's code and name.
ABROAD = [
    ("BA123CD", 1, "sk.car", "BA", "Bratislava"),
    ("1AB2345", 1, "cz.car", "A", "Prague"),
    ("5U23456", 2, "cz.car.square", "U", "Ústí nad Labem Region"),
    ("WE12345", 1, "pl.car", "WE", "Masovian"),
    ("WOT12CA", 1, "pl.car.county", "WOT", "Masovian"),
    ("ABC1D23", 1, "br.car", "", "Brazil"),
    ("ABC1234", 1, "br.car.old", "", "Brazil"),
    ("123ABC02", 1, "kz.car", "02", "Almaty"),
    ("1234AB7", 1, "by.car", "7", "Minsk"),
    ("BC1234AX", 1, "ua.car", "BC", "Lviv"),
    ("30A123BC", 1, "uz.car", "30", "Samarkand"),
    ("01KG123ABC", 1, "kg.car", "01", "Bishkek"),
    ("TR95XMA", 1, "ro.car", "TR", "Teleorman"),
    ("SG05YPO", 1, "gb.car", "S", "Scotland"),
    ("AB120CX", 1, "fr.car", "", "France"),
    ("1234BCD", 1, "es.car", "", "Spain"),
    ("MH04JM8765", 1, "in.car", "MH", "Maharashtra"),
]


@pytest.mark.parametrize(("text", "lines", "name", "code", "region"), ABROAD)
def test_formats_of_other_countries_are_known_but_less_likely(text, lines, name, code, region):
    assert RUSSIA.judge(text, Evidence(lines, WHITE))[0] == "unknown"
    found, abroad = EVERY.judge(text, Evidence(lines, WHITE))
    assert found == name and RUSSIA.judge(text, Evidence(lines, WHITE))[1] < abroad < 1
    assert grammar_of(name[:2]).judge(text, Evidence(lines, WHITE))[1] > abroad  # at home
    match = reading_of(text, name)
    assert match is not None and match.region == Region(code, region)
    assert match.native == text and "".join(match.rows) == text and len(match.rows) == lines


# Countries that the released weights don't name, but can be selected.
SELECTABLE = [
    *(("LRZ123", "lt.car"), ("KB4512", "lv.car"), ("123ABC", "ee.car"), ("ABC12", "fi.car")),
    *(("ABC12D", "se.car"), ("EL12345", "no.car"), ("AB12345", "dk.car"), ("G123BD", "nl.car")),
    *(("1ABC123", "be.car"), ("W12345X", "at.car"), ("ZH123456", "ch.car"), ("AABB123", "hu.car")),
    *(("CB1234AB", "bg.car"), ("BG123AB", "rs.car"), ("ZG1234AB", "hr.car"), ("YZA1234", "gr.car")),
    *(("AA12BB", "pt.car"), ("171C14281", "ie.car"), ("34ABC123", "tr.car"), ("AB123CD", "ge.car")),
    *(("35AB123", "am.car"), ("10AB123", "az.car"), ("ABC123", "md.car"), ("1234AB01", "tj.car")),
    *(("12345678", "il.car"), ("AB123CD", "ar.car"), ("LEA1234", "pk.car"), ("7JGF111", "us.car")),
]


@pytest.mark.parametrize(("text", "name"), SELECTABLE)
def test_a_selected_countrys_formats_are_known(text, name):
    country = grammar_of(name[:2])
    assert country.judge(text)[0] == name
    for digit, letter in ("0O", "1I"):
        spelled = text.replace(digit, letter)
        assert spelled == text or text in (spelled, *country.respellings(spelled))
    assert country.judge(f"{text}9X")[0] == "unknown"


@pytest.mark.parametrize("country", [name[:2] for _, name in SELECTABLE])
def test_each_format_of_a_selected_country_is_the_likeliest_on_its_own_plates(country):
    for each in grammar_of(country).formats:
        ground = tuple(0.96 if name == each.ground else 0.01 for name in GROUNDS)
        seen = Evidence(each.lines, ground, each.aspects[0], 0.95 if each.top_band else 0.05)
        found = set()
        for places, _ in each.spellings:
            text = "".join(chars[len(chars) // 3] for chars in places)
            found.add(grammar_of(country).judge(text, seen)[0])
        assert each.name in found, found


def test_polish_serials_lack_the_letters_that_look_like_digits():
    poland = grammar_of("pl")
    names = [poland.judge(text)[0] for text in ("WOT12CA", "WOT12CB", "SO260CA", "SO260CZ")]
    assert names == ["pl.car.county", "unknown", "pl.car", "unknown"]
    assert poland.respellings("WOT12CB") == ("WOT12C8",)


def test_german_texts_that_begin_with_a_listed_district_are_far_more_plausible():
    germany = grammar_of("de")
    listed, unlisted = (germany.judge(text)[1] for text in ("IKAB12", "KSJXD18"))  # IK, not IKA
    assert listed > 10 * unlisted
    names = [germany.judge(text)[0] for text in ("MA123", "MXY123", "BIRAB123", "BIRAB1234")]
    assert names == ["unknown", "de.car", "de.car", "unknown"]


def test_aspect_ratio_and_band_distinguish_formats_with_the_same_pattern():
    def weight(text, aspect, band):
        return EVERY.judge(text, Evidence(1, WHITE, aspect, band))[1]

    assert weight("ABC1234", 3.0, 0.05) > 10 * weight("ABC1234", 3.0, 0.95)
    assert weight("ABC1D23", 3.0, 0.95) > 10 * weight("ABC1D23", 3.0, 0.05)
    assert weight("BA123CD", 4.5, 0.05) > 5 * weight("BA123CD", 3.0, 0.05)
    assert weight("ABC1234", 3.0, 0.5) == weight("ABC1234", 3.0, 0.05)  # 0.5 is no evidence
    # Of Brazil's plates only those of Mercosul have a band.
    assert EVERY.judge("ABC1234", Evidence(2, WHITE, 1.2, 0.05))[0] == "br.motorcycle.old"
    assert EVERY.judge("ABC1234", Evidence(1, RED, 3.1, 0.05))[0] == "br.commercial"
    assert weight("A123BC77", 2.0, 0.95) == weight("A123BC77", 4.6, 0.05)  # Russia has no sizes_mm


def test_the_recognizers_alphabet_and_length_suffice_for_every_country():
    assert {*RECOGNIZER.countries, *(name[:2] for _, name in SELECTABLE)} == {
        *available_countries()
    }
    for country in map(grammar_of, available_countries()):
        assert set(country.alphabet) <= set(RECOGNIZER.alphabet)
        lengths = {len(places) for form in country.formats for places, _ in form.spellings}
        assert max(lengths) <= RECOGNIZER.max_text_length


def test_a_part_of_a_russian_plate_matches_no_other_country():
    for part in ("123BC16", "A123BC", "A123BC7", "23BC777", "BC777", "AB123", "1234AB"):
        for lines in (1, 2):
            assert EVERY.judge(part, Evidence(lines, WHITE))[0] == "unknown", part
