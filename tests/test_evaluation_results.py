"""A plate's fate, groups of plates, and two versions compared."""

import json
from pathlib import Path

import pytest
from evaluation_cases import answer, plate

from plate_models.training.evaluation.comparison import ReportError, compare, load_report
from plate_models.training.evaluation.groups import group, width_bounds
from plate_models.training.evaluation.results import FAILURES, PlateResult
from plate_models.training.evaluation.scoreboard import Scoreboard
from plate_models.training.evaluation.tables import group_lines
from plate_models.training.evaluation.world import WorldReport

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
    assert failure == "" or failure in FAILURES


def test_a_wrong_text_on_a_bad_box_is_not_hidden() -> None:
    bad = plate(RIGHT, RIGHT, answer(RIGHT), answer(WRONG, iou=0.2))
    assert bad.read and [one.text for one in bad.wrong_texts] == [WRONG]
    illegible = plate("", WRONG, answer(WRONG), legible=False)
    board = Scoreboard([bad, illegible], elsewhere=[answer("B222BB77", iou=0), answer("", "X")])
    assert [one.text for _, one in board.wrong_texts] == [WRONG]
    assert [one.text for one in board.unverified] == [WRONG, "B222BB77"]


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


def test_scoreboard_names_every_wrong_text() -> None:
    text = "\n".join(board().lines())
    assert "the grammar wins 0 and breaks 0" in text
    assert "Wrong readable texts: 3" in text
    assert "read B222BB7    right B222BB77" in text and text.count("no plate there") == 2
    assert len(board().failure_lines()) == 1 + 2


def test_terciles_hold_a_third_each_and_groups_of_one_are_left_out() -> None:
    plates = [plate(RIGHT, RIGHT, photo="still_1.jpg", width=float(w)) for w in range(50, 80)]
    groups = group(plates)
    narrow, wide = width_bounds([one.width for one in plates])
    assert [len(one.plates) for one in groups] == [10, 10, 10]
    assert {one.by for one in groups} == {"width"}
    assert max(one.width for one in groups[0].plates) < narrow
    assert min(one.width for one in groups[2].plates) > wide
    assert f"under {narrow:.0f} px" == groups[0].name
    assert group([]) == [] and group_lines([]) == []


def test_groups_by_light_source_and_lines_cover_every_plate() -> None:
    plates = [
        plate(RIGHT, RIGHT, photo="dashcam_7.jpg", light="dark"),
        plate(RIGHT, RIGHT, photo="photo_7.jpg", lines=2),
        plate(RIGHT, RIGHT, photo="photo_9.jpg", light=""),
        plate(RIGHT, RIGHT, photo="noname.jpg"),
    ]
    found = {(one.by, one.name): len(one.plates) for one in group(plates)}
    assert found == {
        ("light", "dark"): 1,
        ("light", "day"): 2,
        ("light", "not labelled"): 1,
        ("source", "dashcam"): 1,
        ("source", "photo"): 2,
        ("source", "other"): 1,
        ("lines", "1 in a plate"): 3,
        ("lines", "2 in a plate"): 1,
    }
    assert len(group_lines(group(plates))) == 1 + 3 * 2 + len(found)


def test_sources_that_name_photos_are_no_groups() -> None:
    plates = [plate(RIGHT, RIGHT, photo=f"{index}_x.jpg") for index in range(20)]
    assert not group(plates)


def test_comparison_lists_wins_and_losses_of_each_metric() -> None:
    won = plate(RIGHT, WRONG, answer(WRONG)), plate(RIGHT, RIGHT, answer(RIGHT))
    lost = plate("B222BB77", "", answer("B222BB77")), plate("B222BB77", "", answer("", "B"))
    same = plate("C333CC77", "C333CC77"), plate("C333CC77", "C333CC77")
    pairs = [
        tuple(PlateResult(**{**vars(one), "photo": f"{index}.jpg"}) for one in pair)
        for index, pair in enumerate((won, lost, same))
    ]
    extra = plate(RIGHT, RIGHT, photo="only_second.jpg")
    comparison = compare([a for a, _ in pairs], [*(b for _, b in pairs), extra])
    changes = {
        one.metric.name: (
            one.right,
            [b.photo for _, b in one.wins],
            [b.photo for _, b in one.losses],
        )
        for one in comparison.metrics
    }
    assert changes == {
        "detector recall, IoU 0.5": ((2, 2), [], []),
        "detector recall, IoU 0.7": ((2, 2), [], []),
        "recognizer exact match, labelled box": ((1, 2), ["0.jpg"], []),
        "end-to-end exact match": ((1, 1), ["0.jpg"], ["1.jpg"]),
        "no wrong text end to end": ((2, 3), ["0.jpg"], []),
    }
    assert (comparison.plates, comparison.relabelled, comparison.only_in) == (3, 0, (0, 1))
    text = "\n".join(comparison.lines())
    assert "won   0.jpg" in text and "lost  1.jpg" in text and "2.jpg" not in text


def test_a_mended_label_is_told_and_an_illegible_plate_not_compared() -> None:
    before, after = plate(WRONG, RIGHT, answer(RIGHT)), plate(RIGHT, RIGHT, answer(RIGHT))
    assert compare([before], [after]).relabelled == 1
    comparison = compare([plate("", RIGHT, answer(RIGHT), legible=False)], [after])
    assert [len(one.pairs) for one in comparison.metrics] == [1, 1, 0, 0, 0]
    nothing = compare([], [])
    assert nothing.plates == 0 and all(one.p == 1 for one in nothing.metrics)


def test_a_kept_report_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    kept = {"weights": "sha256:12", "date": "2026-11-21", "labelled": board().to_dict()}
    path.write_text(json.dumps(kept))
    report = load_report(path)
    assert report.plates == board().plates and report.weights == "sha256:12"
    verdicts = kept["labelled"]["plates"][1]["verdicts"]  # type: ignore[index]
    assert verdicts["end-to-end exact match"] is False


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"\xff", b'{"labelled": {"plates": [{}]}}', b'{"labelled": 1}']
)
def test_files_that_are_no_reports_are_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ReportError, match=r"a\.json"):
        load_report(path)
    with pytest.raises(ReportError, match="missing"):
        load_report(tmp_path / "missing")
