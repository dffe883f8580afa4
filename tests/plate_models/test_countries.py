"""Countries' definitions (TOML files): what they can express, and which ones are refused."""

import pytest

from plate_models.formats import grammar_of
from plate_models.recognition.countries import read_country
from plate_models.recognition.grammar import FormatError, Region

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
