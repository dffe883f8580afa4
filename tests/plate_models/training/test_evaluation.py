"""The scoreboard: verdicts on plates, versions compared, photos scored."""

import json
import os
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from published_recognizer import save_stand_ins
from support import SAMPLES, labelled_set

from plate_models.engines.nets import Nets, load_nets
from plate_models.pipeline import PipelineConfig, Plate
from plate_models.recognition import ctc
from plate_models.recognition.decoding import Evidence, Reading
from plate_models.spec import RECOGNIZER
from plate_models.training.baseline import Baseline
from plate_models.training.evaluation.comparison import ReportError, compare, load_report
from plate_models.training.evaluation.labelled import GrammarSteps, Scoreboard, evaluate
from plate_models.training.evaluation.results import Answer, PlateResult, match
from plate_models.training.evaluation.world import WorldReport, evaluate_world

BOX = (10.0, 20.0, 110.0, 45.0)


def answer(text: str, guess: str = "", iou: float = 0.9, photo: str = "a.jpg") -> Answer:
    """An answer; one that is held back has a guess and no text."""
    crop = np.zeros((48, 188, 3), np.uint8)
    return Answer(photo, BOX, text, guess or text, 0.9, "ru.car", 1, 0.8, iou, crop)


def plate(
    text: str, label: str, *answers: Answer, width: float = 100, light: str = "day", **about: Any
) -> PlateResult:
    """A labelled plate, what is read in its label, and the answers on it."""
    about = {"photo": "a.jpg", "legible": True, "lines": 1} | about
    box = (10.0, 20.0, 10.0 + width, 45.0)
    return PlateResult(
        box=box, text=text, light=light, in_label=answer(label), answers=answers, **about
    )


RIGHT = "A111AA77"
WRONG = "A111AA71"


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        (plate(RIGHT, RIGHT, answer(RIGHT)), ""),
        (plate(RIGHT, RIGHT), "not found"),
        (plate(RIGHT, RIGHT, answer(RIGHT, iou=0.4)), "not found"),
        (plate(RIGHT, WRONG, answer(WRONG)), "misread"),
        (plate(RIGHT, WRONG, answer(RIGHT), answer(WRONG, iou=0.3)), "misread"),
        (plate(RIGHT, RIGHT, answer(WRONG)), "cut"),
        (plate(RIGHT, RIGHT, answer("", RIGHT)), "cut"),
        (plate(RIGHT, WRONG, answer("", RIGHT)), "unreadable"),
        (plate(RIGHT, WRONG, answer(RIGHT)), "labelled box"),
        (plate(RIGHT, RIGHT, answer(RIGHT, iou=0.69)), "loose box"),
        (plate("", WRONG, answer(WRONG), legible=False), ""),
        (plate("", WRONG, legible=False), "not found"),
    ],
)
def test_why_a_plate_failed(result: PlateResult, failure: str) -> None:
    assert result.failure == failure
    assert Scoreboard([result]).failures == ([result] if failure else [])


def board() -> Scoreboard:
    return Scoreboard(
        [
            plate("A111AA77", "A111AA77", answer("A111AA77", iou=0.8)),
            plate("B222BB77", "B222BB77", answer("B222BB7", iou=0.6)),
            plate("C333CC77", "C333CC7", answer("C333CC77", iou=0.2)),
            plate("", "X", answer("X"), legible=False),
        ],
        photos_without=40,
        false_texts=[answer("A111AA77", photo="x.jpg"), answer("B222BB77", photo="x.jpg")],
    )


def test_scoreboard_counts_each_thing_once() -> None:
    rows = [(count.hits, count.total) for count in board().counts()]
    assert rows == [(3, 4), (2, 4), (2, 3), (1, 3), (2, 3), (1, 24), (2, 40)]
    for report in (board(), Scoreboard(), WorldReport()):
        json.dumps(report.to_dict(), allow_nan=False)
        assert report.lines()
    text = "\n".join(board().lines())
    assert "Wrong readable texts: 3" in text and "the grammar wins 0 and breaks 0" in text
    assert "read B222BB7    right B222BB77" in text and text.count("no plate there") == 2
    assert len(board().failure_lines()) == 1 + 2
    # A wrong text on a bad box is not hidden.
    bad = plate(RIGHT, RIGHT, answer(RIGHT), answer(WRONG, iou=0.2))
    assert bad.read and [one.text for one in bad.wrong_texts] == [WRONG]
    illegible = plate("", WRONG, answer(WRONG), legible=False)
    unsure = Scoreboard([bad, illegible], elsewhere=[answer("B222BB77", iou=0), answer("", "X")])
    assert [one.text for _, one in unsure.wrong_texts] == [WRONG]
    assert [one.text for one in unsure.unverified] == [WRONG, "B222BB77"]


def kept(path: Path, *plates: PlateResult, part: str = "labelled") -> Path:
    """A report as `plates eval --json` keeps it."""
    head = {"weights": "sha256:12", "date": "2026-11-21"}
    path.write_text(json.dumps({**head, part: Scoreboard([*plates]).to_dict()}))
    return path


def test_comparison_lists_wins_and_losses_of_each_metric(tmp_path: Path) -> None:
    before = [
        plate(RIGHT, WRONG, answer(WRONG), photo="0.jpg"),
        plate("B222BB77", "", answer("B222BB77"), photo="1.jpg"),
        plate("C333CC77", "C333CC77", photo="2.jpg"),
        plate(WRONG, RIGHT, answer(RIGHT), photo="3.jpg"),  # its label is mended later
        plate("", RIGHT, answer(RIGHT), photo="4.jpg", legible=False),  # and so is this one's
    ]
    after = [
        plate(RIGHT, RIGHT, answer(RIGHT), photo="0.jpg"),
        plate("B222BB77", "", answer("", "B"), photo="1.jpg"),
        plate("C333CC77", "C333CC77", photo="2.jpg"),
        plate(RIGHT, RIGHT, answer(RIGHT), photo="3.jpg"),
        plate(RIGHT, RIGHT, answer(RIGHT), photo="4.jpg"),
        plate(RIGHT, RIGHT, photo="only_second.jpg"),
    ]
    for part in ("labelled", "rendered"):
        first, second = (
            load_report(kept(tmp_path / "a.json", *side, part=part)) for side in (before, after)
        )
        assert (first.weights, first.engine, first.date) == ("sha256:12", "", "2026-11-21")
        assert first.plates == json.loads(json.dumps([one.to_dict() for one in before]))
        lines = compare(first.plates, second.plates).lines()
        assert [line.split()[-6:] for line in lines[1:6]] == [
            ["5", "4", "4", "0", "0", "1.000"],
            ["5", "4", "4", "0", "0", "1.000"],
            ["4", "1", "3", "2", "0", "0.500"],
            ["4", "1", "2", "2", "1", "1.000"],
            ["4", "2", "4", "2", "0", "0.500"],
        ]
        text = "\n".join(lines)
        assert text.count("won   0.jpg") == 3 and text.count("lost  1.jpg") == 1
        assert "2.jpg" not in text and "B222BB77 [-] IoU 0.90  ->  (B) [-] IoU 0.90" in text
        assert "label changed between the two: 2" in text and "only in the second: 1" in text
    assert compare([], []).pairs == [] and "1.000" in compare([], []).lines()[1]


def test_files_that_are_no_reports_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(ReportError, match=r"a\.json"):
        load_report(path)
    broken = (b"", b"[]", b"{}", b"\xff", b'{"labelled": {"plates": [{}]}}', b'{"labelled": 1}')
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(ReportError, match=r"a\.json"):
            load_report(path)


WHITE = Evidence(1, {"white": 0.96, "yellow": 0.01, "blue": 0.01, "black": 0.01, "red": 0.01})


@pytest.mark.parametrize(
    ("right", "first", "rest", "verdict"),
    [
        ("O002EX71", {"0": 0.6, "O": 0.4}, "002EX71", "wins"),
        ("0002EX71", {"0": 0.6, "O": 0.4}, "002EX71", "breaks"),
        ("A127EX71", {"A": 1.0}, "127EX71", ""),
        ("A121EX71", {"A": 1.0}, "127EX71", ""),
        ("00021X71", {"0": 0.6, "O": 0.4}, "0021X71", ""),  # keeps to no format
        ("A127EX71", {"A": np.nan}, "127EX71", ""),
    ],
)
def test_wins_and_breaks_of_the_grammar_are_counted_and_listed(
    right: str, first: dict[str, float], rest: str, verdict: str
) -> None:
    probs = np.full((RECOGNIZER.classes, RECOGNIZER.steps), 1e-6)
    probs[len(RECOGNIZER.alphabet)] = 1.0
    for index, shares in enumerate([first, *({char: 1.0} for char in rest)]):
        probs[:, 1 + 2 * index] = 1e-6
        for char, share in shares.items():
            probs[ctc.encode(char)[0], 1 + 2 * index] = share
    steps = GrammarSteps.of(right, np.log(probs / probs.sum(axis=0)), WHITE, PipelineConfig())
    assert steps.verdict == verdict
    board = Scoreboard(grammar=[steps])
    kept = board.to_dict()["grammar"]
    assert [len(kept["wins"]), len(kept["breaks"])] == [verdict == "wins", verdict == "breaks"]
    assert kept["right"]["grammar"] == (steps.grammar == right)
    assert not verdict or f"{verdict} {right}: greedy 0002EX71" in "\n".join(board.lines())


SCENES = ("green_car.jpg", "two_at_night.jpg")


@pytest.fixture(scope="module")
def nets() -> Nets:
    return load_nets()


def test_the_samples_are_found_and_read(tmp_path: Path, nets: Nets) -> None:
    data = labelled_set(tmp_path / "set", *SCENES, texts={"X556XM750": "X556XM75"})
    (tmp_path / "published").mkdir()
    board = evaluate(data, nets, save_stand_ins(tmp_path / "published"))
    assert [one.hits for one in board.counts()] == [3, 3, 2, 2, 2, 1, 0, 0]
    for crop, count in zip(Baseline.crops, board.counts()[-2:], strict=True):
        assert (count.name, count.total) == (f"published recognizer, {crop}", 3)
    assert {text for one in board.plates for text in one.published.values()} == {"0"}
    with pytest.raises(FileNotFoundError, match=r"stn\.pt"):
        evaluate(data, nets, tmp_path)
    ((wrong, read),) = board.wrong_texts
    assert (wrong.photo, wrong.text, read.text) == ("green_car.jpg", "X556XM75", "X556XM750")
    assert wrong.failure == "misread" and not board.photos_without
    assert not any(answer.text for answer in board.elsewhere)
    steps = [(one.text, one.grammar) for one in board.grammar]
    assert steps == [(one.text, one.read_in_label) for one in board.plates]


def test_each_found_plate_answers_for_one_label() -> None:
    assert match([], []) == ([], []) and match([(0, 0, 9, 9)], []) == ([[]], [])
    reading, crop = Reading("", 0.0, False, "unknown", (), ()), np.zeros((48, 188, 3), np.uint8)
    loose, tight, far = (
        Plate(box, (), 0.9, 1, reading, crop, np.zeros((0, 0)))
        for box in ((0, 0, 100, 40), (0, 0, 100, 21), (500, 0, 600, 20))
    )
    assert match([], [far]) == ([], [far])
    # The loose box covers both labels, and belongs to the one of which it covers more.
    matched, elsewhere = match([(0, 0, 100, 20), (0, 32, 80, 40)], [loose, tight, far])
    assert matched == [[(tight, pytest.approx(20 / 21)), (loose, 0.5)], []]
    assert elsewhere == [far]


def test_plates_without_label_and_photos_without_plates(tmp_path: Path, nets: Nets) -> None:
    data = labelled_set(tmp_path / "ru_photos", "two_at_night.jpg")
    table = data / "plates.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]))
    (tmp_path / "no_plates").mkdir()
    names = ["0.jpg", "a.jpg"]
    for name in names:
        (tmp_path / "no_plates" / name).symlink_to(SAMPLES / "blue_car.jpg")
    board = evaluate(tmp_path, nets)
    # What stands on a photo without its label is listed, not counted.
    assert len(board.plates) == 1 and [one.text for one in board.unverified] == ["H781CC105"]
    (held_out,) = (name for name in names if crc32(name.encode()) % 2)
    assert board.photos_without == 1
    assert [(one.photo, one.text) for one in board.false_texts] == [(held_out, "H724AE77")]


def test_world_photos_that_are_held_out_are_listed(tmp_path: Path, nets: Nets) -> None:
    folder = labelled_set(tmp_path / "world_photos", *SCENES, "blue_car.jpg", "portrait.jpg")
    held_out = [
        path.name for path in (folder / "images").iterdir() if crc32(path.name.encode()) % 5 == 0
    ]
    report = evaluate_world(tmp_path, nets)
    assert report.photos == len(held_out) < 4
    assert {one.photo for one in report.readable} == set(held_out)
    assert len(report.overlaps) == len(report.readable) > 0


@pytest.mark.skipif("PLATES_DATA" not in os.environ, reason="PLATES_DATA names no real photos")
def test_released_weights_reach_the_floors_on_real_photos(nets: Nets) -> None:
    board = evaluate(Path(os.environ["PLATES_DATA"]), nets)
    found, _, read_in_box, read, _, _, false_plates = board.counts()
    assert (found.total, read.total) == (194, 181)
    assert found.hits >= 192
    assert read_in_box.hits >= 178
    assert read.hits >= 175
    assert false_plates.hits == 0
