"""Countries as data: what a definition can say, and what is refused."""

import pytest

from plate_models.formats import grammar_of
from plate_models.recognition.countries import read_country
from plate_models.recognition.grammar import FormatError, Region

# A country that never was: other letters, other digits, no regions, no second alphabet.
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


def written(folder, source, old="", new=""):
    """A country's file, with a part replaced, or something added where there is no old part."""
    assert old in source
    path = folder / ("xx.toml" if source is SMALL else "yy.toml")
    text = source.replace(old, new, 1) if old else source + new
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def test_a_small_country_needs_little(tmp_path):
    country = read_country(written(tmp_path, SMALL, SMALL, f"\ufeff{SMALL}"))[1]
    assert country.judge("LR12") == ("xx.cart", 1.0)
    assert country.judge("Z1/R") == ("xx.cart", 1.0)  # literals may be symbols of the language
    assert country.judge("LR13")[0] == country.judge("")[0] == "unknown"
    assert country.respellings("LRZ1") == ("LR21",)
    cart = country.reading_of("LR12", "xx.cart")
    assert cart is not None and (cart.native, cart.region) == ("LR12", None)
    for code, region in (("A1", Region("A1", "East")), ("3", None)):
        car = read_country(written(tmp_path, REGIONS))[1].reading_of(f"A12{code}", "yy.car")
        assert car is not None and car.region == region
    lettered = REGIONS.replace('"#", "A#"', '"L", "L#"').replace('"1 A1"', '"C A1"')
    path = written(tmp_path, lettered.replace("[[", 'region_of_all = "yy"\n[[', 1), '"2"', '"B"')
    for code, region in (("C", Region("C", "East")), ("A1", Region("A1", "East")), ("A", None)):
        car = read_country(path)[1].reading_of(f"A12{code}", "yy.car")
        assert car is not None and car.region == region
    # Two countries don't share what they remember.
    assert grammar_of("ru").judge("LR12")[0] == "unknown"


def test_rows_are_counted(tmp_path):
    path = written(tmp_path, SMALL, """"LL##", "'Z'# '/R'\"""", '"LL / ##", "L / \'Z\'"')
    (cart,) = read_country(path)[1].formats
    assert cart.lines == 2 and cart.patterns[0].fullmatch("LR12")
    # A run of digits ends with its row.
    path = written(tmp_path, SMALL, """"LL##", "'Z'# '/R'\"""", '"L# / ##L"')
    assert read_country(path)[1].judge("L000L")[0] == "xx.cart"
    path = written(tmp_path, SMALL, """"LL##", "'Z'# '/R'\"""", '"L# / ##L"]\nnever = ["000"')
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
def test_malformed_definitions_are_refused_by_name(tmp_path, source, old, new, reason):
    read_country(written(tmp_path, source))
    path = written(tmp_path, source, old, new)
    with pytest.raises(FormatError, match=reason) as refused:
        read_country(path)
    assert str(path) in str(refused.value)
