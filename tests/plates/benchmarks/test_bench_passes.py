"""`plates bench passes`: its verdicts on what a camera reports of rendered films."""

import numpy as np
import pytest
from scripted import seen

from api.answers import Candidate
from plate_models.training.benchmark.passes import Film
from plate_models.training.labels import LabelledPlate
from plates.benchmarks.passes import START, judge, measure, summarize
from plates.cameras.events import BestView, Evidence, Pass, Times

LEFT, RIGHT, NOWHERE = (10.0, 10.0, 110.0, 32.0), (300.0, 10.0, 400.0, 32.0), (600, 300, 700, 322)
IN_LEFT, IN_RIGHT = (60.0, 21.0), (350.0, 21.0)


def quad(box):
    x0, y0, x1, y1 = box
    return (x0, y0), (x1, y0), (x1, y1), (x0, y1)


def report(text, first, last, box=LEFT, frames=5, kind="pass.ended", name="a", score=0.9):
    return Pass.model_construct(
        id=name, type=kind, text=text, readable=bool(text), score=score,
        candidates=[Candidate(text=text or "A1", score=score)],
        evidence=Evidence.model_construct(frames_seen=frames),
        time=Times.model_construct(first=START + first, last=START + last, best=START + last),
        best=BestView(box=box, quad=quad(box)),
    )  # fmt: skip


def judged(*reports):
    """Judge reports of a film: one plate is on the left, one on the right and legible late."""
    left = LabelledPlate(LEFT, "A123BC77", True, quad=quad(LEFT), kind="ru.car")
    right = [
        LabelledPlate(RIGHT, "A124BC77", number > 6, quad=quad(RIGHT), kind="ru.car")
        for number in range(10)
    ]
    truths = tuple(((0, left), (1, plate)) for plate in right)
    # The left plate is unreadable at first; the view of the right one with the best score is wrong.
    plates = [
        [seen("A123BC77", IN_LEFT, sure=0.3 if n < 4 else 0.99), seen("A124BC77", IN_RIGHT)]
        for n in range(10)
    ]
    plates[5][1] = seen("A128BC77", IN_RIGHT, sure=0.9999)
    film = Film("alike-0007", (1280, 720), (), tuple(n / 5 for n in range(10)), truths)
    timed = [one if isinstance(one, tuple) else (2.0, one) for one in reports]
    return judge(film, plates, timed)


LEFT_ONE = report("A123BC77", 0, 1.8, frames=10, score=1.0)
RIGHT_ONE = report("A124BC77", 0, 1.8, RIGHT, 10, name="b")


@pytest.mark.parametrize(
    ("reports", "verdicts"),
    [
        ([LEFT_ONE, RIGHT_ONE], [set(), set()]),
        ([RIGHT_ONE], [{"missed", "wrong"}, set()]),
        # Of several reports the one with the most frames counts.
        ([report("B1", 0, 0.6, name="c"), LEFT_ONE, RIGHT_ONE], [{"split"}, set()]),
        ([LEFT_ONE, RIGHT_ONE, report("", 0, 1, NOWHERE)], [{"stray"}, set(), set()]),
    ],
)
def test_passes_are_missed_split_stray_or_wrong(reports, verdicts):
    names = ("missed", "split", "stray", "wrong")
    assert [{name for name in names if row[name]} for row in judged(*reports)] == verdicts


def test_a_pass_is_late_from_its_first_readable_frame_to_its_first_readable_report():
    early = report("A123BC77", 0, 0.8, kind="pass.updated")
    unsure = report("", 0, 0.4, kind="pass.updated")
    for updates, late in (([], 1.2), ([(0.4, unsure), (1.0, early)], 0.2), ([(0.2, early)], 0.0)):
        found, missed = judged(*updates, LEFT_ONE)
        assert found["late_s"] == pytest.approx(late) and not found["wrong"] and found["clear"]
        assert missed["late_s"] == np.inf and missed["wrong"] and missed["clear"]


def test_verdicts_are_summed_up_by_kind_and_country():
    wrong = report("B124BC77", 0, 1.8, RIGHT, 10, name="b", score=0.9)
    stray = report("B1", 0, 1, NOWHERE)
    films = (LEFT_ONE, RIGHT_ONE), (LEFT_ONE, wrong), (LEFT_ONE, stray)
    figures = summarize([row for reports in films for row in judged(*reports)])
    kind, whole = figures.tables["kinds"]
    assert kind | {"kind": "all"} == whole and kind["kind"] == "alike"
    counts = {"passes": 6, "missed": 1, "split": 0, "stray": 1, "clear": 6, "clear, wrong": 2}
    assert whole == whole | counts | {"wrong": 2, "readable, wrong": 2}
    # Of five scores, three 1.0 and two 0.9, one is wrong.
    assert figures.figures["ece"] == pytest.approx((0.9 + 0.1) / 5, abs=0.001)
    russian, other, together = figures.tables["ways"]
    assert russian["best frame wrong"].startswith("3/6 ") and other["best frame wrong"] == "0/0"
    assert russian["all frames wrong"].startswith("2/6 ")
    assert russian == together | {"passes": russian["passes"]}


def test_a_rendered_film_is_read_without_a_miss():
    (row,) = measure("glimpse", 1)
    assert row["passes"] and not row["missed"] and not row["wrong"]
