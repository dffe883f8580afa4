"""Fusion of one plate's frames: independent evidence adds up, no frame has a veto."""

from dataclasses import replace

import numpy as np
import pytest
import scripted
from spelled import LOST, WHITE, YELLOW, log_probs_of

from plate_models.formats import grammar_of
from plate_models.recognition.calibration import Calibration, logit
from plate_models.recognition.decoding import Evidence, Reading, choose_reading
from plate_models.spec import RECOGNIZER
from plates.cameras.fusion import Fusion, Reader

READER = Reader(grammar_of("ru"), calibration=Calibration(readable_from=0.9))
TIMID = replace(READER, calibration=Calibration(((-9.0, -10.0), (9.0, 0.0)), readable_from=0.4))


def seen(text, doubts=None, *, x=0.0, width=100.0, ground=WHITE):
    """A plate that shows a text; doubts are the odds of characters at a place."""
    log_probs, evidence = log_probs_of(text, doubts), Evidence(1, ground, 4.64, 0.05)
    return replace(scripted.seen(text, (x, 0), width), log_probs=log_probs, evidence=evidence)


def fuse(plates, reader, listed=()):  # the result for frames that show these plates
    fusion = Fusion(reader)
    for plate in plates:
        fusion.add(plate)
    return fusion.result(listed)


@pytest.mark.parametrize("reader", [READER, TIMID])
@pytest.mark.parametrize("doubts", [{}, {2: {"2": 0.6, "7": 0.4}}, {0: {"0": 0.9, "O": 0.1}}, LOST])
def test_one_frame_is_read_like_a_photo(doubts, reader):
    plate = seen("A127EX71", doubts)
    photo = choose_reading(plate.log_probs, Evidence(1, WHITE), reader.grammar, reader.calibration)
    every = fuse([plate], reader)
    fused = every.reading
    assert (fused.text, fused.readable, fused.format) == (photo.text, photo.readable, photo.format)
    assert fused.score == pytest.approx(photo.score, abs=1e-3)
    for text, score in photo.candidates:
        assert every.probabilities[text] == pytest.approx(score, abs=1e-3) and score <= photo.score
    for mine, other in zip(fused.characters, photo.characters, strict=True):
        assert mine[0] == other[0] and mine[1] == pytest.approx(other[1], abs=1e-2)


def test_frames_resolve_each_others_uncertain_characters():
    # In each single frame a wrong text is the likeliest.
    first = seen("A127EX71", {2: {"7": 0.6, "2": 0.4}})
    second = seen("A127EX71", {3: {"1": 0.6, "7": 0.4}}, x=900, width=130)
    third = seen("A127EX71", {6: {"1": 0.6, "7": 0.4}}, x=2000, width=170)
    frames = [first, second, third]
    assert "A127EX71" not in [fuse([each], READER).reading.candidates[0][0] for each in frames]
    fused = fuse(frames, READER)
    assert fused.reading.text == "A127EX71" and fused.reading.score > 0.97
    assert min(score for _, score in fused.reading.characters) > 0.97


def test_a_bad_frame_has_no_veto_and_a_small_one_little_weight():
    right = [seen("A127EX71", x=300 * place) for place in range(3)]
    other = seen("M993KK99", x=1200)
    assert fuse([*right, other], READER).reading.text == "A127EX71"
    alike = seen("A427EX71", {1: {"4": 0.9, "1": 0.1}}, x=500)
    doubtful = seen("A127EX71", {1: {"4": 0.1, "1": 0.9}})
    assert not fuse([doubtful, alike], READER).reading.readable
    smaller = replace(alike, quad=tuple((x / 4, y / 4) for x, y in alike.quad))
    assert fuse([doubtful, smaller], READER).reading.candidates[0][0] == "A127EX71"
    assert logit(fuse([doubtful, smaller], READER).reading.score) > 1


def test_frames_of_a_parked_car_count_once_and_those_of_a_moving_one_more():
    doubts = {2: {"2": 0.7, "7": 0.3}}
    alone = fuse([seen("A127EX71", doubts)], READER).reading
    parked = fuse([seen("A127EX71", doubts) for _ in range(200)], READER).reading
    assert parked.score == pytest.approx(alone.score, abs=1e-3) and not parked.readable
    moving = [seen("A127EX71", doubts, x=400 * n, width=60 * 1.3**n) for n in range(6)]
    assert logit(fuse(moving, READER).reading.score) > 1.3 * logit(alone.score)
    # Some errors are common to all frames, so that even very many leave some doubt.
    assert fuse(moving * 50, READER).reading.score < 0.95


def test_the_best_of_many_frames_are_kept():
    fusion = Fusion(READER)
    fusion.add(seen("A127EX71", width=200))
    for place in range(100):
        fusion.add(seen("A127EX71", {2: {"3": 0.5, "2": 0.5}}, x=5 * place, width=40))
    assert fusion.result().reading.text == "A127EX71"


def test_many_frames_do_not_outvote_the_grammar():
    # The recognizer takes the letter for a digit in each frame: that is one mistake, not ten.
    for letter, digit in ("O0", "B8"):
        doubts = {0: {digit: 0.9, letter: 0.1}}
        text = f"{letter}002EX71"
        frames = [seen(text, doubts, x=400 * n, width=60 * 1.2**n) for n in range(10)]
        reading = fuse(frames, READER).reading
        assert reading.candidates[0][0] == text and reading.characters[0][1] > 0.8
    # Sure frames don't either: in an unknown typeface the recognizer may be sure and wrong.
    sure = {0: {"0": 0.995, "O": 0.005}}
    frames = [seen("O002EX71", sure, x=400 * n, width=60 * 1.2**n) for n in range(10)]
    assert fuse(frames, READER).reading.candidates[0][0] == "O002EX71"


def test_frames_that_cannot_be_read_are_ignored():
    nothing = Reading("", 0.0, "unknown", (), ())
    plate = seen("A127EX71")
    broken = replace(plate, log_probs=np.full(plate.log_probs.shape, np.nan))
    empty = seen("")
    for frames in ([], [broken], [empty, broken]):
        fused = fuse(frames, READER, ["A127EX71"])
        assert fused.reading == nothing and fused.probabilities == {"A127EX71": 0.0}
    assert fuse([broken, plate, empty], READER).reading == fuse([plate], READER).reading


def test_listed_texts_get_probabilities_though_no_frame_suggests_them():
    frames = [seen("A127EX71", {2: {"2": 0.8, "7": 0.2}}, x=300 * n) for n in range(3)]
    listed = ["A177EX71", "М993КК99", *(f"A127EX{region}" for region in (50, 77, 78, 97, 99))]
    fused = fuse(frames, READER, listed)
    assert set(listed) <= set(fused.probabilities) and fused.probabilities["М993КК99"] == 0
    assert fused.probabilities["A177EX71"] > 0.01 > fused.probabilities["A127EX77"] > 0
    assert sum(fused.probabilities.values()) <= 1 + 1e-9
    assert len(fused.reading.candidates) == RECOGNIZER.candidates


def test_the_evidence_of_all_frames_determines_the_format():
    grounds = (YELLOW, WHITE, YELLOW)
    frames = [seen("AB12377", x=300 * n, ground=ground) for n, ground in enumerate(grounds)]
    assert fuse(frames[1:2], READER).reading.format != "ru.taxi"
    assert fuse(frames, READER).reading.format == "ru.taxi"
    places = [(x, Evidence(1 + (x > 0), WHITE)) for x in (0, 300, 600)]  # one line at first
    rows = [replace(seen("1234AB77", x=x), evidence=evidence) for x, evidence in places]
    assert fuse(rows, READER).reading.format == "ru.motorcycle"
