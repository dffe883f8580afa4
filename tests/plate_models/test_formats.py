"""Formats: grammar, regions and letters of Russian plates."""

import subprocess
import sys

import pytest

from plate_models import formats
from plate_models.formats import RUSSIA
from plate_models.spec import RECOGNIZER

WHITE = {"white": 0.96, "yellow": 0.01, "blue": 0.01, "black": 0.01, "red": 0.01}


def ground(colour: str) -> dict[str, float]:
    return {**dict.fromkeys(WHITE, 0.01), colour: 0.96}


def names_of(
    text: str, lines: int | None = None, seen: dict[str, float] | None = None
) -> list[str]:
    return [match.format.name for match in RUSSIA.readings_of(text, lines, seen)]


@pytest.mark.parametrize("text", ["B840CK197", "H002EX71", "A111AA77", "O001OO77"])
def test_car_plates_are_known(text: str) -> None:
    assert RUSSIA.judge(text)[0] == "ru.car"


@pytest.mark.parametrize(
    ("text", "lines", "colour", "name"),
    [
        ("A123BC77", 1, "white", "ru.car"),
        ("A123BC777", 2, "white", "ru.car.square"),
        ("1234AB77", 2, "white", "ru.motorcycle"),
        ("AB123477", 1, "white", "ru.trailer"),
        ("AB1234777", 1, "white", "ru.trailer"),
        ("AB12377", 1, "yellow", "ru.taxi"),
        ("AB123777", 1, "yellow", "ru.taxi"),
        ("A123477", 1, "blue", "ru.police"),
        ("A1234777", 1, "blue", "ru.police"),
        ("1234AB77", 1, "black", "ru.military"),
        ("001CD177", 1, "red", "ru.diplomatic"),
        ("001D00177", 1, "red", "ru.diplomatic"),
        ("001T00177", 1, "red", "ru.diplomatic"),
    ],
)
def test_every_kind_is_known_on_its_ground(text: str, lines: int, colour: str, name: str) -> None:
    found, weight = RUSSIA.judge(text, lines, ground(colour))
    assert found == name and weight >= 0.3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A000AA77",
        "A111AA7",
        "A111AA7777",
        "A111AA477",
        "11111AA77",
        "A11AA77",
        "A1111",
        "А111АА77",
        "AD123477",
        "000CD177",
        "1234AB177D",
        "A111AA77\n",
        "A１１１AA77",
    ],
)
def test_everything_else_is_unknown(text: str) -> None:
    assert RUSSIA.judge(text)[0] == "unknown"
    assert RUSSIA.readings_of(text) == ()
    assert formats.region_of(text) is None


def test_the_ground_tells_a_trailer_from_a_taxi() -> None:
    assert names_of("AB123777", 1, WHITE) == ["ru.trailer", "ru.taxi"]
    assert names_of("AB123777", 1, ground("yellow")) == ["ru.taxi", "ru.trailer"]
    regions = [match.region for match in RUSSIA.readings_of("AB123777", 1, WHITE)]
    assert [region and region.code for region in regions] == ["77", "777"]


def test_the_region_list_tells_a_trailer_from_a_taxi_where_the_ground_does_not() -> None:
    # 516 is no region, 16 is; 00 is no region, 700 isn't either, 702 is and 02 too.
    trailer, taxi = RUSSIA.readings_of("AB123516")
    assert (trailer.format.name, taxi.format.name) == ("ru.trailer", "ru.taxi")
    assert trailer.region == formats.Region("16", "Tatarstan") and taxi.region is None
    assert trailer.weight > 10 * taxi.weight


def test_a_motorcycle_is_commoner_than_a_tractor() -> None:
    assert names_of("1234AB77", 2, WHITE)[:2] == ["ru.motorcycle", "ru.tractor"]


def test_what_contradicts_the_evidence_is_less_plausible_not_forbidden() -> None:
    assert names_of("A123477", 1, WHITE) == ["ru.police"]
    assert RUSSIA.judge("A123477", 1, WHITE)[0] == "unknown"
    assert 0 < RUSSIA.judge("A123477", 1, WHITE)[1] < RUSSIA.judge("A123477", 1, ground("blue"))[1]
    assert names_of("1234AB77", 1) == ["ru.military", "ru.motorcycle", "ru.tractor"]
    # No photo is so blue that a clear car plate in it isn't one.
    assert RUSSIA.judge("A123BC77", 1, ground("blue"))[0] == "ru.car"


def test_a_ground_that_says_nothing_changes_nothing() -> None:
    unclear = dict.fromkeys(WHITE, 0.2)
    for text in ("A123BC77", "AB123777", "A123477", "ABC"):
        for lines in (None, 1, 2):
            assert RUSSIA.judge(text, lines, unclear) == RUSSIA.judge(text, lines)
            assert RUSSIA.judge(text, lines, {}) == RUSSIA.judge(text, lines)
            assert RUSSIA.judge(text, lines, {"white": 0.0}) == RUSSIA.judge(text, lines)


def test_no_ground_is_so_sure_that_it_rules_a_format_out() -> None:
    certain = {**dict.fromkeys(WHITE, 0.0), "black": 1.0}
    assert all(match.weight > 0 for match in RUSSIA.readings_of("A123BC77", 1, certain))
    assert RUSSIA.judge("A123BC77", 1, certain)[0] == "ru.car"


def test_likelihoods_may_have_any_scale() -> None:
    tiny = {colour: likelihood / 1000 for colour, likelihood in WHITE.items()}
    assert RUSSIA.judge("AB123777", 1, tiny) == pytest.approx(RUSSIA.judge("AB123777", 1, WHITE))


def test_a_place_decides_between_look_alikes() -> None:
    assert RUSSIA.respellings("0002EX71") == ("O002EX71",)
    assert RUSSIA.respellings("AO02EX71") == ("A002EX71",)
    assert RUSSIA.respellings("A8028X71") == ("A802BX71",)
    assert RUSSIA.respellings("A1027771") == ("A102TT71",)
    # Where formats disagree about a text, each has its spelling; weights tell them apart.
    assert {"001D00177", "O010OO177"} <= set(RUSSIA.respellings("001OO0177"))
    # One that already follows its format has nothing to settle; 1 and 7 are both digits.
    assert RUSSIA.respellings("A127EX71") == ()
    assert RUSSIA.respellings("") == RUSSIA.respellings("ABC") == ()


def test_region_names_the_issuer() -> None:
    assert formats.region_of("B840CK197") == formats.Region("197", "Moscow")
    assert formats.region_of("A258EX19") == formats.Region("19", "Khakassia")
    assert formats.region_of("A111AA00") is None
    assert formats.region_of("AB123777", "ru.taxi") == formats.Region("777", "Moscow")
    assert formats.region_of("AB123777", "ru.trailer") == formats.Region("77", "Moscow")
    # The digits of a military plate are no region.
    assert formats.region_of("1234AB77", "ru.military") is None
    assert formats.region_of("1234AB77", "unknown") is None


def test_every_code_fits_the_grammar() -> None:
    assert len(formats.REGIONS) == 167 and len(set(formats.REGIONS.values())) == 90
    for code in formats.REGIONS:
        assert RUSSIA.judge(f"A111AA{code}")[0] == "ru.car"
        assert formats.region_of(f"A111AA{code}").code == code


def test_every_letter_has_its_own_native_one() -> None:
    native = formats.to_native(RECOGNIZER.alphabet)
    assert native.isascii() is False and native[:10] == RECOGNIZER.alphabet[:10]
    assert len(set(native)) == len(native)
    assert formats.to_native("B840CK197") == "В840СК197"


def test_a_latin_d_is_another_letter_than_the_cyrillic_one() -> None:
    assert formats.to_native("B666AD30") == "В666АД30"
    assert formats.to_native("001D00177") == "001D00177"
    assert formats.to_native("001CD177", "ru.diplomatic") == "001CD177"


def test_a_valid_plate_is_the_most_plausible_and_nothing_is_forbidden() -> None:
    valid, no_region, rare, unknown = (
        RUSSIA.judge(text)[1] for text in ("A111AA77", "A111AA00", "A111AD77", "ABC")
    )
    assert valid == 1 and valid > no_region > unknown > 0 and valid > rare > unknown
    assert RUSSIA.judge("B666AD30")[0] == "ru.car"


def test_texts_are_of_the_recognizers_alphabet_and_fit_its_answer() -> None:
    assert RUSSIA.alphabet == RECOGNIZER.alphabet
    lengths = {len(places) for form in RUSSIA.formats for places in form.places}
    assert max(lengths) <= RECOGNIZER.max_text_length


def test_formats_are_light() -> None:
    code = "import sys, plate_models.formats; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "torch", "cv2"} & set(run.stdout.split())
