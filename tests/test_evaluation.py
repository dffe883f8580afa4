"""The scoreboard: counts, intervals, distances, labels; on real photos where they are at hand."""

import json
import os
from pathlib import Path

import pytest

from plate_models.evaluation import PlateResult, Scoreboard
from plate_models.figures import edit_distance, events, proportion, ratio
from plate_models.labels import load_labels, load_negatives


def result(text: str, iou: float, label: str, *found: str, legible: bool = True) -> PlateResult:
    return PlateResult("a.jpg", text, 100.0, "day", legible, iou, label, found)


def test_wilson_interval_of_a_published_example() -> None:
    # 10 of 20: Newcombe 1998, Statistics in Medicine 17, method 3, gives 0.299 to 0.701.
    half = proportion("", [True] * 10 + [False] * 10)
    assert half.interval_95 == pytest.approx((0.299, 0.701), abs=5e-4)
    assert proportion("", [True] * 20).interval_95 == pytest.approx((0.839, 1), abs=1e-3)


def test_poisson_interval_is_close_to_the_exact_one() -> None:
    # Exact bounds from the chi-squared distribution (Garwood 1936): 0 gives 0 to 3.689,
    # 10 gives 4.795 to 18.390.
    assert events("", 0, 1).interval_95 == pytest.approx((0, 3.689), rel=0.01)
    assert events("", 10, 2).interval_95 == pytest.approx((4.795 / 2, 18.390 / 2), rel=0.005)


def test_ratio_resamples_plates_not_characters() -> None:
    # One plate of 100 has all errors: a share of the resamples draws it not at all.
    errors = ratio("", [9] + [0] * 99, [9] * 100)
    assert errors.rate == pytest.approx(0.01)
    assert errors.interval_95 is not None
    assert errors.interval_95[0] == 0 and 0.02 < errors.interval_95[1] < 0.05


def test_nothing_counted_has_no_rate() -> None:
    for count in (proportion("", []), events("", 0, 0), ratio("", [], [])):
        assert count.rate is None and count.interval_95 is None


@pytest.mark.parametrize(
    ("found", "right", "distance"),
    [
        ("", "", 0),
        ("", "ABC", 3),
        ("ABC", "ABC", 0),
        ("AC", "ABC", 1),
        ("AXC", "ABC", 1),
        ("BA", "AB", 2),
    ],
)
def test_edit_distance(found: str, right: str, distance: int) -> None:
    assert edit_distance(found, right) == edit_distance(right, found) == distance


def test_scoreboard_counts_each_thing_once() -> None:
    board = Scoreboard(
        [
            result("A111AA77", 0.8, "A111AA77", "A111AA77"),
            result("B222BB77", 0.6, "B222BB77", "B222BB7"),
            result("C333CC77", 0.2, "C333CC7"),
            result("", 0.9, "X", legible=False),
        ],
        photos_without=40,
        false_texts=[("x.jpg", "A111AA77"), ("x.jpg", "B222BB77")],
    )
    rows = [(count.hits, count.total) for count in board.counts()]
    assert rows == [(3, 4), (2, 4), (2, 3), (1, 3), (1, 24), (2, 40)]
    json.dumps(board.to_dict(), allow_nan=False)
    json.dumps(Scoreboard().to_dict(), allow_nan=False)


def test_labels_are_read_and_missing_photos_are_named(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    rows = "image,x0,y0,x1,y1,text,legible,light\nb.jpg,1,2,3,4,A111AA77,1,dark\n"
    (tmp_path / "plates.csv").write_text(rows)
    with pytest.raises(FileNotFoundError, match=r"b\.jpg"):
        load_labels(tmp_path)
    (tmp_path / "images" / "b.jpg").touch()
    (photo,) = load_labels(tmp_path)
    assert photo.plates[0].box == (1, 2, 3, 4) and photo.plates[0].legible


def test_negatives_are_split_in_two_without_overlap(tmp_path: Path) -> None:
    for index in range(30):
        (tmp_path / f"{index}.jpg").touch()
    held_out = {photo.path for photo in load_negatives(tmp_path, held_out=True)}
    trained = {photo.path for photo in load_negatives(tmp_path, held_out=False)}
    assert len(held_out) > 5 and len(trained) > 5
    assert not held_out & trained and len(held_out | trained) == 30


@pytest.mark.skipif("PLATES_DATA" not in os.environ, reason="PLATES_DATA names no real photos")
def test_released_weights_reach_the_floors_on_real_photos() -> None:
    from plate_models.evaluation import evaluate
    from plate_models.weights import load_modules

    board = evaluate(Path(os.environ["PLATES_DATA"]), load_modules())
    found, _, read_in_box, read, _, false_plates = board.counts()
    assert (found.total, read.total) == (194, 181)
    assert found.hits >= 184
    assert read_in_box.hits >= 156
    assert read.hits >= 145
    assert false_plates.hits <= 1
