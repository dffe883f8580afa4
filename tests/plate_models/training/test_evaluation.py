"""`plates eval`: verdicts, their scoreboard, the comparison of reports, data sets and labels."""

import json
import os
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from photo_files import exif
from PIL import Image
from support import SAMPLES, labelled_set

from plate_models.detection import box_iou_xyxy
from plate_models.engines.nets import load_nets
from plate_models.images import decode
from plate_models.pipeline import Plate
from plate_models.recognition.decoding import Reading
from plate_models.training import labels
from plate_models.training.evaluation import scoreboard, sets
from plate_models.training.evaluation.comparison import compare, load_report
from plate_models.training.evaluation.scoreboard import READ, Answer, PlateResult, Scoreboard, score

BOX = (10.0, 20.0, 110.0, 45.0)
RIGHT, WRONG = "A111AA77", "A111AA71"


def answer(text, guess="", iou=0.9):
    """An answer; an unreadable plate has no text but a guess."""
    return Answer("a.jpg", BOX, text, guess or text, 0.9, "ru.car", 1, 0.8, iou)


def plate(text, label, *answers, photo="a.jpg", legible=True):
    """A labelled plate, the text read in the labelled box, and the answers matched to it."""
    return PlateResult(photo, labels.LabelledPlate(BOX, text, legible), answer(label), answers)


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        (plate(RIGHT, RIGHT, answer(RIGHT)), ""),
        (plate(RIGHT, RIGHT, answer(RIGHT, iou=0.4)), "not found"),
        (plate(RIGHT, WRONG, answer(WRONG)), "misread"),
        (plate(RIGHT, WRONG, answer(RIGHT), answer(WRONG, iou=0.3)), "misread"),
        (plate(RIGHT, WRONG, answer("", RIGHT)), "unreadable"),
        (plate(RIGHT, WRONG, answer(RIGHT)), "labelled box"),
        (plate(RIGHT, RIGHT, answer(RIGHT, iou=0.69)), "loose box"),
        (replace(plate(RIGHT, RIGHT, answer(RIGHT, iou=0.3)), least_iou=0.2), "loose box"),
        (plate("", WRONG, answer(WRONG), legible=False), ""),
        (plate("", WRONG, legible=False), "not found"),
    ],
)
def test_the_worst_failed_verdict_is_the_plates_failure(result, failure):
    assert result.failure == failure
    assert len(Scoreboard(plates=[result]).failure_lines()) == 1 + bool(failure)


def make_board():
    return Scoreboard(
        photos=3,
        plates=[
            plate("A111AA77", "A111AA77", answer("A111AA77", iou=0.8)),
            plate("B222BB77", "B222BB77", answer("B222BB7", iou=0.6)),
            plate("C333CC77", "C333CC7", answer("C333CC77", iou=0.2)),
            plate("", "X", answer("X"), legible=False),
        ],
        elsewhere=[answer("D444DD77", iou=0), answer("", "X", iou=0)],
    )


def test_the_scoreboard_counts_each_plate_once_in_each_metric():
    counts = {count.name: (count.hits, count.total) for count in make_board().counts()}
    assert list(counts.values())[:6] == [(3, 4), (2, 4), (2, 3), (1, 3), (1, 3), (2, 3)]
    assert "precision" not in counts
    assert counts["other boxes per photo"] == (2, 3)
    assert counts["readable texts there per photo"] == (1, 3)
    wrong, illegible, unlabelled = make_board().lines()
    assert "read B222BB7    right B222BB77," in wrong
    assert "read X          labelled as illegible" in illegible
    assert "read D444DD77   not labelled" in unlabelled
    # If every plate is labelled, any other box is a false positive and its text is wrong.
    whole = replace(make_board(), complete=True)
    assert {c.name: (c.hits, c.total) for c in whole.counts()}["precision"] == (3, 6)
    assert "read D444DD77   no plate is there" in whole.lines()[2]
    assert len(make_board().failure_lines()) == 1 + 2
    # A right answer does not hide a second one with a wrong text.
    bad = plate(RIGHT, RIGHT, answer(RIGHT), answer(WRONG, iou=0.2))
    assert bad.verdicts[READ] and [one.text for one in bad.wrong_texts] == [WRONG]


def test_the_table_has_a_row_for_each_set():
    rows = {"a": make_board(), "b": replace(make_board(), complete=True), "c": Scoreboard(photos=4)}
    detector, reader = "\n".join(scoreboard.table(rows)).split("End to end")
    assert [line.split()[0] for line in detector.splitlines()[3:6]] == ["a", "b", "c"]
    assert "3/6 18.8-81.2" in detector and "2/3" in detector
    for line, row in zip(reader.splitlines()[3:5], "ab", strict=True):
        assert line.split()[:5] == [row, "2/3", "20.8-93.9", "1/3", "6.1-79.2"]
    for one in (*rows.values(), Scoreboard()):
        json.dumps(one.to_dict(), allow_nan=False)
    assert "nothing to count" in scoreboard.table({})
    assert Scoreboard().counts()[0].to_dict()["rate"] is None


def test_o_equals_0_only_for_labels_that_confuse_them():
    mixed = plate("O002EX71", "0002EX71", answer("0OO2EX71"))
    assert not mixed.verdicts[READ] and mixed.wrong_texts
    mixed = replace(mixed, o_is_0=True)
    assert mixed.verdicts[READ] and not mixed.wrong_texts and mixed.failure == ""


def write_json(path, *plates, elsewhere=()):
    """Write a report as `plates eval --json` does."""
    head = {"weights": "sha256:12", "date": "2026-11-21", "engine": "served", "device": "cpu"}
    row = Scoreboard(photos=1, plates=[*plates], elsewhere=[*elsewhere]).to_dict()
    path.write_text(json.dumps({**head, "rows": {"set": row}}))
    return path


def test_comparison_lists_wins_and_losses_of_each_metric(tmp_path):
    before = [
        plate(RIGHT, WRONG, answer(WRONG), photo="0.jpg"),
        plate("B222BB77", "", answer("B222BB77"), photo="1.jpg"),
        plate("C333CC77", "C333CC77", photo="2.jpg"),
        plate(WRONG, RIGHT, answer(RIGHT), photo="3.jpg"),  # its label is corrected later
        plate("", RIGHT, answer(RIGHT), photo="4.jpg", legible=False),  # so is this one
        plate("", RIGHT, answer(RIGHT), photo="5.jpg", legible=False),
    ]
    after = [
        *(plate(RIGHT, RIGHT, answer(RIGHT), photo=f"{number}.jpg") for number in (0, 3, 4)),
        plate("B222BB77", "", answer("", "B"), photo="1.jpg"),
        *(before[2], before[5]),
        plate(RIGHT, RIGHT, photo="only_second.jpg"),
    ]
    first = load_report(write_json(tmp_path / "a.json", *before, elsewhere=(answer(WRONG, iou=0),)))
    second = load_report(write_json(tmp_path / "b.json", *after))
    assert (first["weights"], first["engine"]) == ("sha256:12", "served")
    lines = compare(first, second)
    assert [line.split()[-6:] for line in lines[1:5]] == [
        ["4", "1", "3", "2", "0", "0.500"],
        ["4", "1", "2", "2", "1", "1.000"],
        ["4", "1", "2", "2", "1", "1.000"],
        ["4", "2", "4", "2", "0", "0.500"],
    ]
    text = "\n".join(lines)
    assert text.count("won   0.jpg") == 4 and text.count("lost  1.jpg") == 2
    assert "2.jpg" not in text and "B222BB77 [-] IoU 0.90  ->  (B) [-] IoU 0.90" in text
    assert "set: boxes on no label 1, readable 1 -> 0, readable 0" in text
    assert compare(first, {**second, "rows": {}}) == []
    alone = load_report(write_json(tmp_path / "a.json", after[-2]))
    assert compare(alone, alone) == ["nothing changed"]


def test_recipes_move_boxes_like_the_pixels():
    image = np.zeros((120, 201, 3), np.uint8)
    image[40:60, 50:110] = (200, 150, 100)
    for name, recipe in sets.RECIPES.items():
        worse, view = recipe(image)
        assert worse.dtype == np.uint8 and worse.ndim == 3 and not (image[0, 0]).any(), name
        rows, columns = np.nonzero(worse.max(axis=2) > 20)
        seen = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        # Blur, JPEG and interlacing widen the rectangle by some pixels.
        assert np.abs(np.subtract(seen, sets.move_box((50, 40, 110, 60), view))).max() <= 6, name
    grey, red = (sets.RECIPES[name](image)[0][50, 80] for name in ("grey", "red alone"))
    assert len({*grey.tolist()}) == 1 and red.tolist() == [200] * 3


def test_a_straight_box_around_a_turned_plate_counts_as_found(tmp_path):
    straight = (300.0, 400.0, 820.0, 512.0)
    labelled_set(tmp_path, "blue_car.jpg")
    turned = [photo for photo in sets.worse(tmp_path) if "turned" in photo.row]
    assert len(turned) == 4
    for photo in turned:
        _, view = photo.recipe(np.zeros((1000, 1000, 3), np.uint8))
        assert abs(view[1, 0]) > 0.01, f"{photo.row}: nothing is turned"
        label = sets.move_box(straight, np.linalg.inv(view))
        assert box_iou_xyxy([sets.move_box(label, view)], [straight]).item() >= photo.least_iou


def test_each_detected_plate_is_matched_to_one_label():
    assert scoreboard.match([], []) == ([], [])
    assert scoreboard.match([(0, 0, 9, 9)], []) == ([[]], [])
    reading, crop = Reading("", 0.0, "unknown", (), ()), np.zeros((48, 188, 3), np.uint8)
    boxes = (0, 0, 100, 40), (0, 0, 100, 21), (500, 0, 600, 20)
    loose, tight, far = (Plate(box, (), 0.9, 1, reading, crop, np.zeros((0, 0))) for box in boxes)
    assert scoreboard.match([], [far]) == ([], [far])
    # The loose box covers both labels, and is matched to the one with the larger overlap.
    matched, elsewhere = scoreboard.match([(0, 0, 100, 20), (0, 32, 80, 40)], [loose, tight, far])
    assert matched == [[(tight, pytest.approx(20 / 21)), (loose, 0.5)], []]
    assert elsewhere == [far]


def test_data_sets_are_scored_by_what_their_labels_contain(monkeypatch, tmp_path):
    nets = load_nets()
    table = labelled_set(tmp_path / "ru_photos", "two_at_night.jpg") / "plates.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]))
    (tmp_path / "no_plates").mkdir()
    names = ["0.jpg", "a.JPG"]
    for name in names:
        (tmp_path / "no_plates" / name).symlink_to(SAMPLES / "blue_car.jpg")
    board = score(sets.russian(tmp_path), nets)["ru_photos"]
    # A text without a label is listed, not counted.
    (listed,) = board.lines()
    assert len(board.plates) == 1 and "read H781CC105  not labelled" in listed
    ((_, grey),) = score((p for p in sets.worse(tmp_path) if "grey" in p.row), nets).items()
    assert grey.plates[0].verdicts[READ]
    boards = score(sets.without_plates(tmp_path), nets)
    (held_out,) = (name for name in names if crc32(name.encode()) % 2)
    (wrong,) = boards["no_plates, held out"].lines()
    assert held_out in wrong and "read H724AE77   no plate is there" in wrong
    assert boards["no_plates, seen in training"].photos == 1
    scenes = ("green_car.jpg", "two_at_night.jpg")
    folder = labelled_set(tmp_path / "latin_photos", *scenes)
    rows = (folder / "plates.csv").read_text().splitlines()
    rows = [f"{row},{'country' if row == rows[0] else 'br'}" for row in rows]
    (folder / "plates.csv").write_text("\n".join(rows))
    latin = score(sets.latin(tmp_path), nets)
    assert [*latin] == ["latin_photos, Brazil"] and latin["latin_photos, Brazil"].plates[0].o_is_0
    folder = labelled_set(tmp_path / "world_photos", *scenes, "blue_car.jpg", "portrait.jpg")
    paths = (folder / "images").iterdir()
    chosen = {path.name for path in paths if crc32(path.name.encode()) % 5 == 0}
    assert {photo.name for photo in sets.world(tmp_path)} == chosen and len(chosen) < 4
    (folder / "images" / "w_1112.jpg").symlink_to(SAMPLES / "blue_car.jpg")
    with (folder / "plates.csv").open("a", encoding="utf-8") as file:
        file.write("w_1112.jpg,,10,20,90,60\n")
    seen = {"w_1112.jpg": {"plates": [[279, 525, 481, 571]]}}
    (tmp_path / "seen.json").write_text(json.dumps(seen))
    monkeypatch.setattr("plate_models.training.labels._FINDINGS", tmp_path / "seen.json")
    (known,) = (photo for photo in sets.world(tmp_path) if photo.name == "w_1112.jpg")
    assert [(one.text, one.lines, one.legible) for one in known.plates] == [("LXN2305", 2, True)]
    assert not score([known], nets)["world_photos"].elsewhere
    found = sets.samples(SAMPLES)
    assert found[0].complete and found[0].plates[0].legible and len(found) == 9


@pytest.mark.skipif(not os.environ.get("PLATES_DATA"), reason="PLATES_DATA names no real photos")
def test_released_weights_read_enough_plates_on_real_photos():
    data = Path(os.environ["PLATES_DATA"])
    boards = score((*sets.russian(data), *sets.without_plates(data)), load_nets())
    found, _, read_in_box, read, *_ = boards["ru_photos"].counts()
    assert (found.total, read.total) == (194, 181)
    assert found.hits >= 192
    assert read_in_box.hits >= 178
    assert read.hits >= 175
    assert not boards["no_plates, held out"].lines()


HEAD = "image,x0,y0,x1,y1,text,lines"


def write_labels(folder, row, head=HEAD):
    (folder / "images").mkdir(exist_ok=True)
    (folder / "plates.csv").write_text(f"{head}\n{row}\n")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_are_turned_like_their_photo(tmp_path, orientation):
    """Tables have boxes of the stored image; training and scoring use the upright photo."""
    pixels = np.zeros((60, 100, 3), np.uint8)
    pixels[10:30, 15:80] = 255
    write_labels(tmp_path, "b.png,15,10,80,30,A111 AA77,2,1", f"{HEAD},legible")
    with pytest.raises(FileNotFoundError, match=r"b\.png"):
        labels.load_labels(tmp_path)
    Image.fromarray(pixels).save(tmp_path / "images" / "b.png", exif=exif(orientation))
    (photo,) = labels.load_labels(tmp_path)
    rows, columns = np.nonzero(decode(photo.path.read_bytes())[..., 0])
    drawn = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert photo.plates == (labels.LabelledPlate(drawn, "A111AA77", True, 2),)
    write_labels(tmp_path, "b.png,15,60,80,90", "image,x0,y0,x1,y1")
    with pytest.raises(labels.LabelError, match="the stored photo of 100 x 60, got"):
        labels.load_labels(tmp_path)
    write_labels(tmp_path, "b.png,15,10,80,30", "image,x0,y0,x1,y1")
    assert labels.load_labels(tmp_path)[0].plates == (labels.LabelledPlate(drawn),)
    write_labels(tmp_path, "b.png,15,10,80,30\n" * 2, "image,x0,y0,x1,y1")
    with pytest.raises(labels.LabelError, match=r"line 3: b\.png has that box already"):
        labels.load_labels(tmp_path)


@pytest.mark.parametrize(
    ("row", "head", "reason"),
    [
        ("b.jpg,1,2,3", HEAD, ""),
        ("b.jpg,1,2,3,wide", HEAD, ""),
        ("b.jpg,1", "image,x0", "no column 'y0'"),
        ("", HEAD, "expected a row for each plate, found none"),
        ("b.jpg,1,2,3,4,A111AA77,3", HEAD, "lines: expected 1 or 2, got '3'"),
        ("b.jpg,5,2,3,4", HEAD, "expected x0 < x1"),
        ("b.jpg,1,2,3,4,A111AA77,1.0", f"{HEAD[:-5]}legible", "legible: expected 0, or 1 where"),
        ("b.jpg,1,2,3,4,А111АА77,1", HEAD, "text: expected Latin"),
        ("b.jpg,1,2,3,4,é111AA77,1", HEAD, "text: expected Latin"),
        ("b.jpg,1,2,3,4,,1", f"{HEAD[:-5]}legible", "legible: expected 0, or 1 where"),
        ("b.jpg,nan,2,3,4", f"\ufeff{HEAD}", "expected x0 < x1"),  # as Excel saves it
    ],
)
def test_errors_name_the_line_of_a_broken_label(tmp_path, row, head, reason):
    write_labels(tmp_path, row, head)
    with pytest.raises(labels.LabelError, match=rf"plates\.csv, line 2: {reason}"):
        labels.load_labels(tmp_path)


def test_neighbouring_frames_are_held_out_together():
    frames = [f"ro_dayride_type1_001.mp4_t_{second}.jpg" for second in range(0, 400, 10)]
    chosen = labels.validation_names(frames)
    assert 0 < len(chosen) < len(frames)
    for start in range(0, len(frames), 8):
        assert len(chosen & set(frames[start : start + 8])) in (0, 8)
