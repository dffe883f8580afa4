"""Formats: grammar, regions and letters of Russian plates."""

import pytest

from plate_models import formats
from plate_models.spec import RECOGNIZER


@pytest.mark.parametrize("text", ["B840CK197", "H002EX71", "A111AA77", "O001OO77"])
def test_car_plates_are_known(text: str) -> None:
    assert formats.format_of(text) == "ru.car"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A000AA77",
        "A111AA7",
        "A111AA7777",
        "A111AA477",
        "1111AA77",
        "A11AA77",
        "А111АА77",
    ],
)
def test_everything_else_is_unknown(text: str) -> None:
    assert formats.format_of(text) == "unknown"
    assert formats.region_of(text) is None


def test_region_names_the_issuer() -> None:
    assert formats.region_of("B840CK197") == formats.Region("197", "Moscow")
    assert formats.region_of("A258EX19") == formats.Region("19", "Khakassia")
    assert formats.region_of("A111AA00") is None


def test_every_code_fits_the_grammar_and_has_one_region() -> None:
    codes = [code for codes in formats._CODES_OF_REGION.values() for code in codes.split()]
    assert len(codes) == len(set(codes)) == len(formats.REGIONS)
    assert all(formats.format_of(f"A111AA{code}") == "ru.car" for code in codes)


def test_native_and_latin_are_inverse_over_the_alphabet() -> None:
    native = formats.to_native(RECOGNIZER.alphabet)
    assert native.isascii() is False and native[:10] == RECOGNIZER.alphabet[:10]
    assert formats.to_latin(native) == RECOGNIZER.alphabet
    assert formats.to_native("B840CK197") == "В840СК197"


def test_prior_prefers_a_valid_plate_and_forbids_nothing() -> None:
    valid, no_region, unknown = map(formats.prior_of, ("A111AA77", "A111AA00", "ABC"))
    assert valid > no_region > unknown > 0
    assert formats.format_of("B666AD30") == "ru.car"
    assert formats.prior_of("B666AO30") > formats.prior_of("B666AD30") > unknown
