"""Formats: grammar, regions and letters of Russian plates."""

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
        *("", "A000AA77", "A111AA7", "A111AA7777", "A111AA477", "11111AA77", "A11AA77", "A1111"),
        *("А111АА77", "AD123477", "000CD177", "1234AB177D", "A111AA77\n", "A１１１AA77"),
    ],
)
def test_everything_else_is_unknown(text: str) -> None:
    assert RUSSIA.judge(text)[0] == "unknown"
    assert RUSSIA.readings_of(text) == ()
    assert formats.region_of(text) is None


def test_ground_and_region_tell_a_trailer_from_a_taxi() -> None:
    assert names_of("AB123777", 1, WHITE) == ["ru.trailer", "ru.taxi"]
    assert names_of("AB123777", 1, ground("yellow")) == ["ru.taxi", "ru.trailer"]
    regions = [match.region for match in RUSSIA.readings_of("AB123777", 1, WHITE)]
    assert [region and region.code for region in regions] == ["77", "777"]
    # 516 is no region, 16 is.
    trailer, taxi = RUSSIA.readings_of("AB123516")
    assert (trailer.format.name, taxi.format.name) == ("ru.trailer", "ru.taxi")
    assert trailer.region == formats.Region("16", "Tatarstan") and taxi.region is None
    assert trailer.weight > 10 * taxi.weight


def test_what_contradicts_the_evidence_is_less_plausible_not_forbidden() -> None:
    assert names_of("A123477", 1, WHITE) == ["ru.police"]
    assert RUSSIA.judge("A123477", 1, WHITE)[0] == "unknown"
    assert 0 < RUSSIA.judge("A123477", 1, WHITE)[1] < RUSSIA.judge("A123477", 1, ground("blue"))[1]
    assert names_of("1234AB77", 1) == ["ru.military", "ru.motorcycle", "ru.tractor"]
    assert names_of("1234AB77", 2, WHITE)[:2] == ["ru.motorcycle", "ru.tractor"]
    # No photo is so blue, and no ground so sure, that a clear car plate in it isn't one.
    for seen in (ground("blue"), {**dict.fromkeys(WHITE, 0.0), "black": 1.0}):
        assert all(match.weight > 0 for match in RUSSIA.readings_of("A123BC77", 1, seen))
        assert RUSSIA.judge("A123BC77", 1, seen)[0] == "ru.car"
    valid, no_region, rare, unknown = (
        RUSSIA.judge(text)[1] for text in ("A111AA77", "A111AA00", "A111AD77", "ABC")
    )
    assert valid == 1 and valid > no_region > unknown > 0 and valid > rare > unknown


def test_region_names_the_issuer() -> None:
    for text, name, region in (
        ("B840CK197", "ru.car", formats.Region("197", "Moscow")),
        ("A258EX19", "ru.car", formats.Region("19", "Khakassia")),
        ("A111AA00", "ru.car", None),
        ("AB123777", "ru.taxi", formats.Region("777", "Moscow")),
        ("AB123777", "ru.trailer", formats.Region("77", "Moscow")),
        ("1234AB77", "ru.military", None),  # its digits are no region
        ("1234AB77", "unknown", None),
    ):
        assert formats.region_of(text, name) == region
    assert len(formats.REGIONS) == 167 and len(set(formats.REGIONS.values())) == 90
    for code in formats.REGIONS:
        assert RUSSIA.judge(f"A111AA{code}")[0] == "ru.car"
        assert formats.region_of(f"A111AA{code}").code == code


def test_every_letter_has_its_own_native_one() -> None:
    assert RUSSIA.alphabet == RECOGNIZER.alphabet
    native = formats.to_native(RECOGNIZER.alphabet)
    assert native.isascii() is False and native[:10] == RECOGNIZER.alphabet[:10]
    assert len(set(native)) == len(native)
    assert formats.to_native("B840CK197") == "В840СК197"
    # A Latin D is another letter than the Cyrillic one.
    assert RUSSIA.judge("B666AD30")[0] == "ru.car" and formats.to_native("B666AD30") == "В666АД30"
    assert formats.to_native("001D00177") == "001D00177"
    assert formats.to_native("001CD177", "ru.diplomatic") == "001CD177"
    lengths = {len(places) for form in RUSSIA.formats for places in form.places}
    assert max(lengths) <= RECOGNIZER.max_text_length
