"""Readings: CTC, candidates, the grammar's influence, scores, logits that are not finite."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from spelled import BLACK, BLANK, BLUE, LOST, RED, WHITE, YELLOW, log_probs_along, log_probs_of

from plate_models.formats import grammar_of
from plate_models.recognition import ctc
from plate_models.recognition.calibration import Calibration
from plate_models.recognition.decoding import Evidence, Reading, choose_reading
from plate_models.spec import RECOGNIZER

RUSSIA = grammar_of("ru")
# Caps scores at 0.99995.
CAPPED = Calibration(((-9.9, -9.9), (9.9, 9.9)))
NOTHING = Reading("", 0.0, "unknown", (), ())
ALPHABET = "AB1"


def texts_of(reading):
    return [text for text, _ in reading.candidates]


def test_blanks_and_no_steps_are_an_empty_reading_and_huge_logits_are_read():
    assert choose_reading(log_probs_of("")) == NOTHING
    assert choose_reading(np.zeros((RECOGNIZER.classes, 0))) == NOTHING
    huge = 1e37 * np.sign(log_probs_of("B840CK197") + 1).astype(np.float32)
    assert choose_reading(ctc.log_softmax(huge)).text == "B840CK197"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("places", [(0, 0), (BLANK, 7), (slice(None), slice(None))])
def test_logits_that_are_not_finite_are_an_empty_reading(bad, places):
    logits = log_probs_of("B840CK197").astype(np.float32)
    logits[places] = bad
    assert choose_reading(ctc.log_softmax(logits)) == NOTHING
    joined = ctc.join_rows(log_probs_of("A123"), ctc.log_softmax(logits))
    assert choose_reading(joined, Evidence(lines=2)) == NOTHING


@pytest.mark.parametrize(
    ("seen", "right", "place"),
    [("0002EX71", "O002EX71", 0), ("AO02EX71", "A002EX71", 1), ("A8028X71", "A802BX71", 4)],
)
def test_the_place_of_a_look_alike_decides_between_letter_and_digit(seen, right, place):
    doubts = {place: {seen[place]: 0.6, right[place]: 0.4}}
    reading = choose_reading(log_probs_of(seen, doubts), Evidence(1, WHITE))
    assert reading.text == right and seen in texts_of(reading)
    # The character is certain: of the two look-alikes only one is valid in this place.
    assert reading.characters[place][1] > 0.9


def test_a_character_stays_uncertain_if_both_candidates_are_valid():
    reading = choose_reading(log_probs_of("A127EX71", {2: {"2": 0.5, "7": 0.4, "": 0.1}}))
    assert not reading.readable and reading.format == "ru.car"
    assert reading.characters[2][1] == pytest.approx(0.5 / 0.9, abs=0.02)
    assert reading.characters[1][1] > 0.99


def test_a_look_alike_that_the_beam_dropped_is_a_candidate():
    log_probs = log_probs_of("0112EX71", LOST)
    listed = [text for text, _ in ctc.beam_decode(log_probs)]
    assert "O112EX71" not in listed and "0112EX71" in listed
    spec = replace(RECOGNIZER, candidates=50)
    scores = dict(choose_reading(log_probs, Evidence(1, WHITE), spec=spec).candidates)
    assert scores["O112EX71"] > scores["0112EX71"] > 0


def test_the_grammar_does_not_overrule_clear_characters():
    clear = log_probs_of("0002EX71", {0: {"0": 1 - 1e-5, "O": 1e-5}})
    for log_probs, text in ((clear, "0002EX71"), (log_probs_of("ABC123"), "ABC123")):
        reading = choose_reading(log_probs, Evidence(1, WHITE), RUSSIA)
        assert reading.candidates[0][0] == text and reading.score > 0.5
        assert (reading.text, reading.readable, reading.format) == ("", False, "unknown")


def test_a_format_of_another_country_overrules_even_a_clear_look_alike():
    clear = log_probs_of("EADOR64", {3: {"O": 1 - 1e-5, "0": 1e-5}})
    reading = choose_reading(clear, Evidence(lines=2), grammar_of("ru", "br"))
    assert (reading.best, reading.format) == ("EAD0R64", "br.motorcycle")
    assert reading.characters[3][1] == pytest.approx(reading.score, abs=0.05)


def test_a_text_of_unknown_format_is_readable_only_if_it_is_sure():
    sure = ctc.log_softmax(30 * log_probs_of("O000OO"))
    # Less than 1: an O may be a 0.
    reading = choose_reading(sure, calibration=Calibration(elsewhere_readable_from=0.98))
    assert (reading.text, reading.readable, reading.format) == ("O000OO", True, "unknown")
    timid = replace(CAPPED, elsewhere_readable_from=1.0)
    assert choose_reading(sure, calibration=timid).text == ""
    bold = replace(CAPPED, readable_from=1.0, elsewhere_readable_from=0.9)
    assert choose_reading(sure, calibration=bold).readable
    # An unknown format needs a higher score than a known one.
    doubts = {2: {"0": 0.99, "6": 0.01}}
    assert choose_reading(log_probs_of("H002EX71", doubts), Evidence(1, WHITE)).readable
    reading = choose_reading(log_probs_of("AB0012", doubts), Evidence(1, WHITE), RUSSIA)
    assert reading.score == pytest.approx(0.99, abs=0.005)
    assert reading.text == "" and reading.candidates[0][0] == "AB0012"


@pytest.mark.parametrize(
    ("text", "doubts", "lines", "ground"),
    [
        ("B078TO152", {1: {"0": 0.4, "O": 0.55, "": 0.05}}, 1, WHITE),
        ("1807BO178", {0: {"1": 0.4, "I": 0.55, "": 0.05}}, 2, WHITE),
        ("1807BO52", {1: {"8": 0.4, "B": 0.55, "": 0.05}}, 1, BLACK),
        ("TO80752", {3: {"0": 0.4, "O": 0.55, "": 0.05}}, 1, YELLOW),
        ("TO80752", {}, 1, None),  # in a grey photo, too
        ("B807152", {6: {"2": 0.4, "Z": 0.55, "": 0.05}}, 1, BLUE),
    ],
)
def test_other_countries_do_not_change_the_reading_of_a_russian_plate(text, doubts, lines, ground):
    log_probs, evidence = log_probs_of(text, doubts), Evidence(lines, ground)
    before = choose_reading(log_probs, evidence, RUSSIA)
    assert before.readable and before.format.startswith("ru.")
    assert choose_reading(log_probs, evidence, grammar_of(*RECOGNIZER.countries)) == before


def test_common_layouts_decide_look_alikes_in_texts_of_unknown_format():
    every = grammar_of(*RECOGNIZER.countries)
    seen = [log_probs_of("12ABC6O", {6: {"O": p, "0": 1 - p}}) for p in (0.6, 0.99)]
    doubtful, clear = (choose_reading(each, grammar=every) for each in seen)
    assert (doubtful.best, clear.best) == ("12ABC60", "12ABC6O")
    assert doubtful.format == clear.format == "unknown" and doubtful.score > 0.9


def test_letters_rare_in_most_countries_are_likely_where_all_letters_are_issued():
    seen = log_probs_of("DLB4809", {0: {"D": 0.6, "O": 0.4}})
    assert choose_reading(seen, grammar=grammar_of("ru", "br")).candidates[0][0] == "OLB4809"
    assert choose_reading(seen, grammar=grammar_of("ru", "kz")).candidates[0][0] == "DLB4809"
    clear = log_probs_of("DLB4809", {0: {"D": 0.8, "O": 0.2}})
    assert choose_reading(clear, grammar=grammar_of("ru", "br")).candidates[0][0] == "DLB4809"


def test_the_text_of_the_best_path_stays_among_the_candidates():
    doubts = {i: {"A": 0.4, **dict.fromkeys("BEKMHP", 0.1)} for i in (0, 4, 5)}
    log_probs = log_probs_of("A123AA77", doubts | {1: {"O": 0.4, "1": 0.35, "2": 0.25}})
    raw = ctc.greedy_decode(log_probs)
    reading = choose_reading(log_probs, spec=replace(RECOGNIZER, candidates=2))
    assert raw == "AO23AA77" and texts_of(reading) == ["A123AA77", raw]


def test_ground_and_lines_determine_the_format_and_decide_uncertain_characters():
    unclear = log_probs_of("A123477", {1: {"1": 0.5, "B": 0.5}})
    rows = ctc.join_rows(log_probs_of("113"), log_probs_of("3AB77"))
    square = ctc.join_rows(log_probs_of("A123"), log_probs_of("BC777"))
    for log_probs, evidence, text, name in (
        (log_probs_of("H002EX71"), Evidence(), "H002EX71", "ru.car"),
        (square, Evidence(2, WHITE), "A123BC777", "ru.car.square"),
        (log_probs_of("001CD177"), Evidence(1, RED), "001CD177", "ru.diplomatic"),
        (log_probs_of("001T00177"), Evidence(1, RED), "001T00177", "ru.diplomatic"),
        (log_probs_of("1133AB77"), Evidence(1, BLACK), "1133AB77", "ru.military"),
        (log_probs_of("AB123777"), Evidence(1, YELLOW), "AB123777", "ru.taxi"),
        (log_probs_of("AB123777"), Evidence(), "AB123777", "ru.trailer"),
        (rows, Evidence(lines=2), "1133AB77", "ru.motorcycle"),
        (unclear, Evidence(1, BLUE), "A123477", "ru.police"),
        (unclear, Evidence(1, YELLOW), "AB23477", "ru.taxi"),
    ):
        reading = choose_reading(log_probs, evidence)
        assert (reading.text, reading.format) == (text, name)
        assert reading.score == reading.candidates[0][1]
        if log_probs is not unclear:
            assert reading.readable and reading.score > 0.98
            assert [char for char, _ in reading.characters] == list(text)
            assert all(p > 0.99 for _, p in reading.characters)
    assert choose_reading(log_probs_of("1133AB77"), Evidence(1, YELLOW)).format == "unknown"


def test_scores_are_calibrated_and_the_threshold_applies_to_them():
    log_probs = log_probs_of("H002EX71", {2: {"0": 0.8, "6": 0.2}})
    plain = choose_reading(log_probs)
    assert plain.readable and plain.score == pytest.approx(0.8, abs=0.01)
    # This calibration halves the odds of every text.
    shift = -float(np.log(2))
    halved = Calibration(knots=((-20.0, -20.0 + shift), (20.0, 20.0 + shift)))
    reading = choose_reading(log_probs, calibration=halved)
    assert reading.score == pytest.approx(2 / 3, abs=0.02) and reading.readable
    assert texts_of(reading) == texts_of(plain)
    best, *others = [score for _, score in reading.candidates]
    assert best == reading.score and 0.99 < best + sum(others) <= 1
    refused = choose_reading(log_probs, calibration=replace(halved, readable_from=0.7))
    assert not refused.readable and refused.text == "" and refused.candidates == reading.candidates


def test_the_probability_of_other_texts_and_of_no_text_lowers_the_score():
    reading = choose_reading(log_probs_of("A", {0: {"A": 0.1, "": 0.9}}))
    assert reading.candidates[0][0] == "A" and reading.score == pytest.approx(0.1, abs=0.01)
    doubts = {i: dict.fromkeys("1234568", 1 / 7) for i in (1, 2, 3)}
    reading = choose_reading(log_probs_of("A111AA77", doubts))
    assert reading.score < 0.02 and not reading.readable


def test_a_rare_format_scores_like_a_common_one_with_equally_clear_characters():
    doubts = {2: {"2": 0.8, "3": 0.04, "4": 0.04, "5": 0.04, "6": 0.04, "7": 0.04}}
    doubts |= {3: {"3": 0.9, "2": 0.025, "4": 0.025, "5": 0.025, "6": 0.025}}
    car = choose_reading(log_probs_of("A123BC77", doubts), Evidence(1, WHITE))
    trailer = choose_reading(log_probs_of("AB123477", doubts), Evidence(1, WHITE))
    assert (car.format, trailer.format) == ("ru.car", "ru.trailer")
    assert trailer.score == pytest.approx(car.score, abs=0.01)


def test_texts_shorter_or_longer_than_any_plate_are_unreadable():
    bold = Calibration(elsewhere_readable_from=0.5)
    for text, readable in (("AB", False), ("AB1", True), ("EH20CRMS815", False)):
        reading = choose_reading(ctc.log_softmax(30 * log_probs_of(text)), calibration=bold)
        assert (reading.candidates[0][0], reading.readable) == (text, readable)


@pytest.mark.parametrize(("classes", "steps"), [(2, 1), (2, 5), (3, 4), (4, 1), (4, 4), (4, 5)])
def test_probabilities_equal_the_sum_over_every_path(classes, steps, monkeypatch):
    log_probs = ctc.log_softmax(2 * np.random.default_rng(7).normal(size=(classes, steps)))
    alphabet = ALPHABET[: classes - 1]
    exact = {}
    for path in itertools.product(range(classes), repeat=steps):
        merged = [k for k, _ in itertools.groupby(path) if k != classes - 1]
        text = "".join(alphabet[k] for k in merged)
        probability = float(np.exp(sum(log_probs[k, t] for t, k in enumerate(path))))
        exact[text] = exact.get(text, 0.0) + probability
    with monkeypatch.context() as unpruned:
        unpruned.setattr(ctc, "_PRUNE_BELOW", 0.0)
        assert dict(ctc.beam_decode(log_probs, alphabet, width=1000)) == pytest.approx(exact)
    narrow = ctc.beam_decode(log_probs, alphabet, width=4)
    assert narrow[0][0] == max(exact, key=exact.__getitem__)
    assert [p for _, p in narrow] == sorted((p for _, p in narrow), reverse=True)
    assert all(p <= exact[text] + 1e-12 for text, p in narrow)
    lengths = range(log_probs.shape[1] + 2)
    texts = ["".join(t) for n in lengths for t in itertools.product(alphabet, repeat=n)]
    found = ctc.text_probabilities(log_probs, texts, alphabet)
    assert found == pytest.approx([exact.get(text, 0.0) for text in texts])
    for text in texts:
        if 1 <= len(text) <= 3:
            expected = [
                [exact.get(text[:i] + char + text[i + 1 :], 0.0) for char in (*alphabet, "")]
                for i in range(len(text))
            ]
            alternatives = ctc.character_alternatives(log_probs, text, alphabet)
            assert alternatives == pytest.approx(np.array(expected)), text


def test_joined_rows_are_decoded_one_after_the_other():
    rows = [log_probs_along(path, 0.9, ALPHABET) for path in ("AA-1", "1-B-")]
    joined = ctc.join_rows(*rows)
    # "AA" within a row is one "A"; a row's last "1" and the next row's first "1" are two.
    assert ctc.greedy_decode(joined, ALPHABET) == "A11B"
    assert ctc.beam_decode(joined, ALPHABET)[0][0] == "A11B"
    upper = ctc.text_probabilities(rows[0], ["A1"], ALPHABET)[0]
    lower = ctc.text_probabilities(rows[1], ["1B"], ALPHABET)[0]
    # The sum also has the other splits of the text into rows, which are far less likely.
    together = ctc.text_probabilities(joined, ["A11B"], ALPHABET)[0]
    assert together == pytest.approx(upper * lower, rel=0.01)


def test_an_error_names_what_does_not_fit_the_alphabet():
    with pytest.raises(ValueError, match=r"expected 37 classes.*got 4"):
        ctc.greedy_decode(log_probs_along("A-A", 0.9, ALPHABET))
    with pytest.raises(ValueError, match="'Q'"):
        ctc.encode("AQ", ALPHABET)
