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
from plates.benchmarks.passes import (
    START,
    ReadFilm,
    best_and_fused,
    judge,
    read_film,
    summarize,
)
from plates.cameras.events import BestView, Evidence, Pass, Times
from plates.cameras.frames import SeenPlate
from plates.cameras.fusion import Reader

READER = Reader(calibration=UNCALIBRATED)
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
    left = LabelledPlate(LEFT, "A123BC77", True, quad=quad(LEFT), kind="ru.car")
    right = [
        LabelledPlate(RIGHT, "A124BC77", legible, quad=quad(RIGHT), kind="ru.car")
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
        (
            [report("A123BC77", 0, 0.6), report("A123BC77", 1, 1.8, name="c"), RIGHT_ONE],
            ["split", ""],
        ),
        ([report("A123BC77", 0, 1.8), RIGHT_ONE, report("", 0, 1, NOWHERE)], ["stray", "", ""]),
    ],
)
def test_reports_are_judged(reports, verdicts):
    found = judge(film(), [(2.0, one) for one in reports], READER)
    assert [row["verdict"] for row in found] == verdicts


def test_the_first_sure_report_is_timed():
    early = report("A123BC77", 0, 0.8, kind="pass.updated")
    unsure = report("", 0, 0.4, kind="pass.updated")
    ended = report("A123BC77", 0, 1.8)
    for updates, late in (([], 1.2), ([(0.4, unsure), (1.0, early)], 0.2), ([(0.2, early)], 0.0)):
        found, missed = judge(film(), [*updates, (2.0, ended)], READER)
        assert found["late_s"] == pytest.approx(late) and found["right"] and found["clear"]
        assert missed["late_s"] == np.inf and not missed["right"] and missed["clear"]


def test_all_frames_together_outweigh_the_best_one():
    plates = [seen(text, score=score, sure=sure) for text, score, sure in (
        ("A128BC77", 0.95, 0.6), ("A123BC7", 0.6, 0.6), ("A123BC77", 0.8, 0.99),
    )]  # fmt: skip
    assert best_and_fused(plates, READER) == ("A128BC77", "A123BC77")
    assert best_and_fused([], READER) == ("", "")


def test_outcomes_are_summed_up():
    film_ = film()
    good = [(2.0, report("A123BC77", 0, 1.8, frames=10, score=1.0)), (2.0, RIGHT_ONE)]
    wrong = report("B124BC77", 0, 1.8, RIGHT, 10, name="b", score=0.9)
    rows = [*judge(film_, good, READER), *judge(film_, [good[0], (2.0, wrong)], READER)]
    rows += judge(film_, [good[0], (2.0, report("B1", 0, 1, NOWHERE))], READER)
    figures = summarize(rows).figures
    kind, whole = figures["kinds"]
    assert kind | {"kind": "all"} == whole and kind["kind"] == "alike"
    counts = {"passes": 6, "missed": 1, "split": 0, "stray": 1, "clear": 6, "clear, wrong": 2}
    assert whole == whole | counts | {"wrong": 2, "readable, wrong": 2}
    # Of five scores, three 1.0 and two 0.9, one is wrong.
    assert figures["ece"] == pytest.approx((0.9 + 0.1) / 5, abs=0.001)
    russian, other, together = figures["ways"]
    assert russian["fusion wrong"].startswith("0/6 ") and other["fusion wrong"] == "0/0"
    assert russian == together | {"passes": russian["passes"]}


def test_a_film_is_read_once(tmp_path, monkeypatch):
    read = read_film(("glimpse", 1), tmp_path)
    texts = {plate.text for truths in read.truths for _, plate in truths}
    assert {plate.text for plates in read.plates for plate in plates} - {""} == texts
    monkeypatch.setattr(rendering, "render_film", None)
    again = read_film(("glimpse", 1), tmp_path)
    assert again.truths == read.truths and again.times_s == read.times_s
