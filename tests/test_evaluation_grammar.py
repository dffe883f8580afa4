"""What the grammar wins and breaks, on log-probabilities made for it."""

import json

import numpy as np
import pytest

from plate_models.recognition import ctc
from plate_models.recognition.decoding import Evidence
from plate_models.spec import RECOGNIZER
from plate_models.training.evaluation.grammar import Case, GrammarReport, Steps, compare

WHITE = Evidence(1, {"white": 0.96, "yellow": 0.01, "blue": 0.01, "black": 0.01, "red": 0.01})


def case_of(text: str, place: int, odds: dict[str, float], right: str) -> Case:
    probs = np.full((RECOGNIZER.classes, RECOGNIZER.steps), 1e-6)
    probs[RECOGNIZER.blank] = 1.0
    for index, char in enumerate(text):
        step = 1 + 2 * index
        probs[:, step] = 1e-6
        for other, share in (odds if index == place else {char: 1.0}).items():
            probs[ctc.encode(other)[0], step] = share
    return np.log(probs / probs.sum(axis=0)), WHITE, right


# The place settles it; the place misleads (a plate that keeps to no format); nothing to do.
WON = case_of("0002EX71", 0, {"0": 0.6, "O": 0.4}, "O002EX71")
BROKEN = case_of("00021X71", 0, {"0": 0.6, "O": 0.4}, "00021X71")
MISLED = case_of("0002EX71", 0, {"0": 0.6, "O": 0.4}, "0002EX71")
CLEAR = case_of("A127EX71", 0, {"A": 1.0}, "A127EX71")
WRONG = case_of("A127EX71", 0, {"A": 1.0}, "A121EX71")


def test_no_cases_win_and_break_nothing() -> None:
    report = compare([])
    assert report == GrammarReport() and report.wins == report.breaks == ()
    assert report.right == {"greedy": 0, "beam": 0, "grammar": 0}
    assert len(report.lines()) == 1


def test_wins_and_breaks_are_told_apart_and_listed() -> None:
    report = compare([WON, MISLED, CLEAR, WRONG, BROKEN])
    assert report.wins == (Steps("O002EX71", "0002EX71", "0002EX71", "O002EX71"),)
    assert report.breaks == (Steps("0002EX71", "0002EX71", "0002EX71", "O002EX71"),)
    assert report.right == {"greedy": 3, "beam": 3, "grammar": 3}
    assert [plate.text for plate in report.plates][2:] == ["A127EX71", "A121EX71", "00021X71"]
    head, win, loss = report.lines()
    assert "of 5" in head and "wins 1 and breaks 1" in head
    assert "wins O002EX71" in win and "breaks 0002EX71" in loss
    assert json.loads(json.dumps(report.to_dict()))["wins"][0]["beam"] == "0002EX71"


def test_the_beams_own_win_is_listed_too() -> None:
    # Two paths spell "A…", the single likeliest one leaves it out.
    log_probs, evidence, right = case_of("A127EX71", 0, {"A": 0.4}, "A127EX71")
    probs = np.exp(log_probs)
    probs[:, :2] = 1e-9
    probs[RECOGNIZER.blank, :2], probs[ctc.encode("A")[0], :2] = 0.6, 0.4
    (win,) = compare([(np.log(probs), evidence, right)]).wins
    assert win == Steps("A127EX71", "127EX71", "A127EX71", "A127EX71")


def test_an_unreadable_plate_is_wrong_at_every_step() -> None:
    nothing = np.full((RECOGNIZER.classes, RECOGNIZER.steps), np.nan)
    report = compare([(nothing, WHITE, "A127EX71")])
    assert report.plates == (Steps("A127EX71", "", "", ""),) and not report.breaks


def test_another_alphabet_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 24 classes"):
        compare([(np.zeros((4, 5)), WHITE, "A")])
