"""`plates bench passes`: films are read once, and what is reported of them is judged rightly."""

import numpy as np
import pytest

from api.answers import Candidate
from plate_models.recognition import ctc
from plate_models.recognition.calibration import UNCALIBRATED
from plate_models.recognition.grammar import GROUNDS
from plate_models.spec import RECOGNIZER
from plate_models.training.benchmark import passes as rendering
from plate_models.training.labels import LabelledPlate
from plates.benchmarks import outcomes
from plates.benchmarks.films import ReadFilm, read_film
from plates.benchmarks.outcomes import START, Outcome, compare, fit_calibration, join, judge
from plates.cameras.events import BestView, Evidence, Pass, Times
from plates.cameras.frames import SeenPlate
from plates.cameras.fusion import Reader

READER = Reader(passes=UNCALIBRATED)
LEFT, RIGHT, NOWHERE = (10.0, 10.0, 110.0, 32.0), (300.0, 10.0, 400.0, 32.0), (600, 300, 700, 322)


def quad(box):
    x0, y0, x1, y1 = box
    return (x0, y0), (x1, y0), (x1, y1), (x0, y1)


def seen(text, box=LEFT, score=0.9, sure=0.99):
    """A plate whose every character has so much of the probability."""
    classes = ctc.encode(text, RECOGNIZER.alphabet)
    columns = np.full((len(RECOGNIZER.alphabet) + 1, 2 * len(text) + 1), -9.0)
    columns[-1, ::2] = columns[classes, 2 * np.arange(len(text)) + 1] = np.log(sure)
    shown = text if score > 0.5 else ""
    candidates = ((text, score),)
    crop, ground = np.zeros((48, 188, 3), np.uint8), dict.fromkeys(GROUNDS, 1.0)
    return SeenPlate(box, quad(box), 0.9, 1, shown, score, candidates, columns, crop, ground)


def report(text, first, last, box=LEFT, frames=5, kind="pass.ended", name="a", score=0.9):
    return Pass.model_construct(
        id=name, type=kind, text=text, readable=bool(text), score=score, format="ru.car",
        candidates=[Candidate(text=text or "A1", score=score)],
        evidence=Evidence.model_construct(frames_seen=frames),
        time=Times.model_construct(first=START + first, last=START + last, best=START + last),
        best=BestView(box=box, quad=quad(box)),
    )  # fmt: skip


def film():
    """Two plates for 10 frames: one left, and one right that is small in all but three."""
    left = LabelledPlate(LEFT, "A123BC77", True, quad=quad(LEFT))
    right = [
        LabelledPlate(RIGHT, "A124BC77", legible, quad=quad(RIGHT))
        for legible in [False] * 7 + [True] * 3
    ]
    plates = [
        (seen("A123BC77", score=0.3 if n < 4 else 0.9), seen("A124BC77", RIGHT)) for n in range(10)
    ]
    times = tuple(n / 5 for n in range(10))
    truths = tuple(((0, left), (1, plate)) for plate in right)
    return ReadFilm("alike-0007", (1280, 720), times, truths, tuple(plates))


RIGHT_ONE = report("A124BC77", 0, 1.8, RIGHT, 10, name="b")


@pytest.mark.parametrize(
    ("reports", "verdicts"),
    [
        ([report("A123BC77", 0, 1.8, frames=10), RIGHT_ONE], ["", ""]),
        ([RIGHT_ONE], ["missed", ""]),
        ([report("A124BC77", 0, 1.8, RIGHT, 20)], ["merged", ""]),
        (
            [report("A123BC77", 0, 0.6), report("A123BC77", 1, 1.8, name="c"), RIGHT_ONE],
            ["split", ""],
        ),
        (
            [report("A123BC77", 0, 1.2), report("A123BC77", 1, 1.8, name="c"), RIGHT_ONE],
            ["doubled", ""],
        ),
        ([report("A123BC77", 0, 1.8), RIGHT_ONE, report("", 0, 1, NOWHERE)], ["stray", "", ""]),
    ],
)
def test_reports_are_judged(reports, verdicts):
    found = judge(film(), [(2.0, one) for one in reports], READER)
    assert [outcome.verdict for outcome in found] == verdicts


def test_the_first_sure_report_is_timed():
    early = report("A123BC77", 0, 0.8, kind="pass.updated")
    unsure = report("", 0, 0.4, kind="pass.updated")
    ended = report("A123BC77", 0, 1.8)
    for updates, late in (([], 1.2), ([(0.4, unsure), (1.0, early)], 0.2), ([(0.2, early)], 0.0)):
        outcome, missed = judge(film(), [*updates, (2.0, ended)], READER)
        assert outcome.late_s == pytest.approx(late) and outcome.right and outcome.clear
        assert missed.late_s == np.inf and not missed.right and missed.clear


def test_four_ways_of_joining_differ():
    plates = [seen(text, score=score, sure=sure) for text, score, sure in (
        ("A128BC77", 0.95, 0.6), ("A123BC7", 0.7, 0.6), ("A123BC7", 0.6, 0.6),
        ("A123BC77", 0.8, 0.99), ("B123BC77", 0.5, 0.6),
    )]  # fmt: skip
    assert list(join(plates, READER).values()) == ["A128BC77", "A123BC7", "A123BC77", "A123BC77"]
    assert set(join([], READER).values()) == {""}


def outcome(guesses, score=0.9, right=True):
    event = report("A1" if right else "B1", 0, 1, score=score)
    return Outcome("glimpse-0001", "ru.car", "A1", True, "", event, None, guesses)


def test_ways_are_compared_and_scores_calibrated():
    pairs = [("A1", "A1")] * 12 + [("B1", "A1")] * 6 + [("B1", "B1")] * 2
    best, fused = compare([outcome({outcomes.BEST: a, "fusion": b}) for a, b in pairs])
    assert (best["wrong"], fused["wrong"], fused["per error of best frame"]) == (8, 2, 0.25)
    low, high = map(float, fused["95 % of that"].split(" - "))
    assert low == 0 and 0.4 < high < 0.8
    scores = [(score, n % 10 < 10 * score) for score in (0.2, 0.9) for n in range(500)]
    assert outcomes.calibration_error(scores) == pytest.approx(0)
    assert outcomes.calibration_error([(1.0, right) for _, right in scores]) == pytest.approx(0.45)
    fitted = fit_calibration([outcome({}, score=s / 2, right=r) for s, r in scores])
    assert fitted.apply(0.45) == pytest.approx(0.9, abs=0.01)
    assert fitted.apply(0.1) == pytest.approx(0.2, abs=0.01) and fitted.readable_from > 0.9


def test_a_film_is_read_once(tmp_path, monkeypatch):
    read = read_film(("glimpse", 1), tmp_path)
    texts = {plate.text for truths in read.truths for _, plate in truths}
    assert {plate.text for plates in read.plates for plate in plates} - {""} == texts
    monkeypatch.setattr(rendering, "render_film", None)
    again = read_film(("glimpse", 1), tmp_path)
    assert again.truths == read.truths and again.times_s == read.times_s
