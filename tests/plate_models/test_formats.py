"""Formats: grammar, regions and native letters of all countries; definitions that are refused."""

import pytest
from spelled import BLUE, RED, WHITE

from plate_models.formats import available_countries, grammar_of, reading_of
from plate_models.recognition.countries import read_country
from plate_models.recognition.grammar import GROUNDS, Evidence, FormatError, Region
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


# An invented country with other letters and digits than Russia, no regions, and no native alphabet.
SMALL = """
[country]
name = "xx"
alphabet = "012LRZ/"
letters = "LR"
look_alikes = ["2Z"]

[[formats]]
name = "xx.cart"
patterns = ["LL##", "'Z'# '/R'"]
ground = "yellow"
"""

REGIONS = """
[country]
name = "yy"
alphabet = "0123ABC"
letters = "ABC"
region = ["#", "A#"]

[[formats]]
name = "yy.car"
patterns = ["L## R"]
ground = "white"

[regions]
"East" = "1 A1"
"West" = "2"
"""


def write(folder, source, old="", new=""):
    """Write a country's file with `old` replaced by `new`, or `new` appended if `old` is empty."""
    assert old in source
    path = folder / ("xx.toml" if source is SMALL else "yy.toml")
    text = source.replace(old, new, 1) if old else source + new
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def test_a_country_needs_only_an_alphabet_letters_and_formats(tmp_path):
    country = read_country(write(tmp_path, SMALL, SMALL, f"\ufeff{SMALL}"))[1]
    assert country.judge("LR12") == ("xx.cart", 1.0)
    assert country.judge("Z1/R") == ("xx.cart", 1.0)  # literals may be symbols of the language
    assert country.judge("LR13")[0] == country.judge("")[0] == "unknown"
    assert country.respellings("LRZ1") == ("LR21",)
    cart = country.reading_of("LR12", "xx.cart")
    assert cart is not None and (cart.native, cart.region) == ("LR12", None)
    for code, region in (("A1", Region("A1", "East")), ("3", None)):
        car = read_country(write(tmp_path, REGIONS))[1].reading_of(f"A12{code}", "yy.car")
        assert car is not None and car.region == region
    lettered = REGIONS.replace('"#", "A#"', '"L", "L#"').replace('"1 A1"', '"C A1"')
    path = write(tmp_path, lettered.replace("[[", 'region_of_all = "yy"\n[[', 1), '"2"', '"B"')
    for code, region in (("C", Region("C", "East")), ("A1", Region("A1", "East")), ("A", None)):
        car = read_country(path)[1].reading_of(f"A12{code}", "yy.car")
        assert car is not None and car.region == region
    # Countries don't share their caches.
    assert grammar_of("ru").judge("LR12")[0] == "unknown"


def test_a_slash_in_a_pattern_separates_two_rows(tmp_path):
    path = write(tmp_path, SMALL, """"LL##", "'Z'# '/R'\"""", '"LL / ##", "L / \'Z\'"')
    (cart,) = read_country(path)[1].formats
    assert cart.lines == 2 and cart.patterns[0].fullmatch("LR12")
    # "never" applies to the digits of one row, not across rows.
    path = write(tmp_path, SMALL, """"LL##", "'Z'# '/R'\"""", '"L# / ##L"')
    assert read_country(path)[1].judge("L000L")[0] == "xx.cart"
    path = write(tmp_path, SMALL, """"LL##", "'Z'# '/R'\"""", '"L# / ##L"]\nnever = ["000"')
    with pytest.raises(FormatError, match="no pattern has '000'"):
        read_country(path)


MALFORMED = [
    ("", "speed = 1", r"xx\.toml: formats\[0\]\.speed: Extra inputs"),
    ('name = "xx"', "", r"country\.name: Field required"),
    ('name = "xx"', 'name = "x"', r"country\.name must be the file's, 'xx', not 'x'"),
    ('"xx.cart"', '"xxx.cart"', r"format 'xxx.cart': 'name' must begin with 'xx\.'"),
    ('ground = "yellow"', 'ground = "green"', r"ground: expected .*'red', found 'green'"),
    ("", 'letters = "LQ"', r"'letters' has \['Q'\], not in the alphabet"),
    ('"012LRZ/"', '"0120"', r"country\.alphabet has a character twice"),
    ("", 'native = { L = "Ы", R = "Ы" }', r"'native' maps two characters to the same"),
    ("", 'native = { Q = "Ы" }', r"'native' has \['Q'\]"),
    ("'Z'#", "'Q'#", r"format 'xx.cart': pattern \"'Q'# .*\['Q'\] are not in the alphabet"),
    ("LL##", "LL/##/LL", r"expected 1 or 2 rows, none of them empty"),
    ("""["LL##", "'Z'# '/R'"]""", "[]", r"formats\[0\]\.patterns: .*at least 1 item"),
    ("LL##", "L / ##", r"patterns with different numbers of rows"),
    ("LL##", "L##R", r"R stands twice, or 'region' is missing"),
    ("", 'letters = ""', r"'LL##' matches nothing: a symbol stands for no character"),
    ("", "lengths = [5, 9]", r"'LL##': no text of it has one of the 'lengths'"),
    ("", 'never = ["000"]', r"'never': no pattern has '000' as its digits"),
    ("", 'never = ["0", "1", "2"]', r"matches nothing: all its serials are in 'never'"),
    ("", '[[formats]]\nname = "xx.cart"\npatterns = ["L"]\nground = "red"', "another format"),
    ("", '[regions]\n"East" = "1"', r"code '1' of 'East' is not one of \[\]"),
    *(("[country]", broken, r"not a country's definition") for broken in ("[country", "\udcff")),
]
MALFORMED_REGIONS = [
    ('"#", "A#"', '"#", "B#"', r"code 'A1' of 'East' is not one of \['#', 'B#'\]"),
    ('"A#"]', '"A#", "B#"]', r"format 'yy.car': 'region': no listed code fits 'B#'"),
    ('"A#"]', '"A#", "Q#"]', r"country: 'region' has \['Q'\], not in the alphabet"),
    ('"West" = "2"', '"West" = "1"', r"code '1' belongs to 'East' and 'West'"),
]


@pytest.mark.parametrize(
    ("source", "old", "new", "reason"),
    [(SMALL, *row) for row in MALFORMED] + [(REGIONS, *row) for row in MALFORMED_REGIONS],
)
def test_malformed_definitions_are_refused_with_the_reason(tmp_path, source, old, new, reason):
    read_country(write(tmp_path, source))
    path = write(tmp_path, source, old, new)
    with pytest.raises(FormatError, match=reason) as refused:
        read_country(path)
    assert str(path) in str(refused.value)
