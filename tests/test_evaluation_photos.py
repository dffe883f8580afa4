"""The released weights scored on photos: the rendered samples, and real ones where at hand."""

import os
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from evaluation_cases import answer, labelled_set, plate
from PIL import Image
from published_recognizer import save_stand_ins

from plate_models.engines.nets import Nets, load_nets
from plate_models.pipeline import Plate
from plate_models.recognition.decoding import Reading
from plate_models.training.baseline import Baseline
from plate_models.training.evaluation.failure_sheet import failure_sheet
from plate_models.training.evaluation.labelled import evaluate
from plate_models.training.evaluation.matching import match
from plate_models.training.evaluation.results import Box
from plate_models.training.evaluation.scoreboard import Scoreboard
from plate_models.training.evaluation.sheet import WIDTH, photos_in, view
from plate_models.training.evaluation.world import evaluate_world
from plate_models.training.evaluation.world_sheet import world_sheet

SCENES = ("green_car.jpg", "two_at_night.jpg")


@pytest.fixture(scope="module")
def nets() -> Nets:
    return load_nets()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_stand_ins(tmp_path_factory.mktemp("published"))


def test_the_samples_are_found_and_read(tmp_path: Path, nets: Nets) -> None:
    data = labelled_set(tmp_path / "set", *SCENES, texts={"X556XM750": "X556XM75"})
    board = evaluate(data, nets)
    assert [one.hits for one in board.counts()] == [3, 3, 2, 2, 2, 1]
    ((wrong, read),) = board.wrong_texts
    assert (wrong.photo, wrong.text, read.text) == ("green_car.jpg", "X556XM75", "X556XM750")
    assert wrong.failure == "misread" and not board.photos_without
    assert not any(answer.text for answer in board.elsewhere)
    assert all(one.in_label.log_probs is not None for one in board.plates)
    assert all(one.in_label.crop is not None for one in board.plates)
    steps = [(one.text, one.grammar) for one in board.grammar.plates]
    assert steps == [(one.text, one.read_in_label) for one in board.plates]


def found_at(*boxes: Box) -> list[Plate]:
    reading = Reading("", 0.0, False, "unknown", (), ())
    return [Plate(box, (), 0.9, 1, reading, np.zeros((48, 188, 3), np.uint8)) for box in boxes]


def test_each_found_plate_answers_for_one_label() -> None:
    assert match([], []) == ([], []) and match([(0, 0, 9, 9)], []) == ([[]], [])
    loose, tight, far = found_at((0, 0, 100, 40), (0, 0, 100, 21), (500, 0, 600, 20))
    assert match([], [far]) == ([], [far])
    # The loose box covers both labels, and belongs to the one of which it covers more.
    matched, elsewhere = match([(0, 0, 100, 20), (0, 32, 80, 40)], [loose, tight, far])
    assert matched == [[(tight, pytest.approx(20 / 21)), (loose, 0.5)], []]
    assert elsewhere == [far]


def test_a_plate_without_label_is_listed_not_counted(tmp_path: Path, nets: Nets) -> None:
    data = labelled_set(tmp_path / "set", "two_at_night.jpg")
    table = data / "plates.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]))
    board = evaluate(data, nets)
    assert len(board.plates) == 1 and [one.text for one in board.unverified] == ["H781CC105"]


def test_false_plates_are_counted_on_the_held_out_half(tmp_path: Path, nets: Nets) -> None:
    data = tmp_path
    labelled_set(data / "ru_photos", "green_car.jpg")
    (data / "no_plates").mkdir()
    names = [f"{index}.jpg" for index in range(4)]
    for name in names:
        scene = labelled_set(data / name, "blue_car.jpg") / "images" / "blue_car.jpg"
        (data / "no_plates" / name).symlink_to(scene.resolve())
    board = evaluate(data, nets)
    held_out = [name for name in names if crc32(name.encode()) % 2]
    assert board.photos_without == len(held_out) > 0
    assert [(one.photo, one.text) for one in board.false_texts] == [
        (name, "H724AE77") for name in held_out
    ]


def test_the_published_recognizer_is_scored_beside(
    tmp_path: Path, nets: Nets, published: Path
) -> None:
    data = labelled_set(tmp_path / "set", "green_car.jpg", texts={"X556XM750": "0"})
    rows = {one.name: one for one in evaluate(data, nets, published).counts()}
    for crop in Baseline.crops:
        assert (rows[f"published recognizer, {crop}"].hits, 1) == (1, 1)
    with pytest.raises(FileNotFoundError, match=r"stn\.pt"):
        evaluate(data, nets, tmp_path)


def test_world_photos_that_are_held_out_are_listed(tmp_path: Path, nets: Nets) -> None:
    folder = labelled_set(tmp_path / "world_photos", *SCENES, "blue_car.jpg", "portrait.jpg")
    held_out = [
        path.name for path in (folder / "images").iterdir() if crc32(path.name.encode()) % 5 == 0
    ]
    report = evaluate_world(tmp_path, nets)
    assert report.photos == len(held_out) < 4
    assert {one.photo for one in report.readable} == set(held_out)
    assert len(report.overlaps) == len(report.readable) > 0
    sheet = world_sheet(report, photos_in(folder / "images"), ["weights"])
    assert sheet.width == WIDTH and sheet.height > 300


def red_pixels(sheet: Image.Image) -> int:
    pixels = np.asarray(sheet).astype(int)
    return int(((pixels[..., 0] > 180) & (pixels[..., 1:].max(axis=-1) < 30)).sum())


def test_the_sheet_marks_wrong_letters_only(tmp_path: Path) -> None:
    load = photos_in(labelled_set(tmp_path / "set", "green_car.jpg") / "images")

    def sheet(read: str, **fate: bool) -> Image.Image:
        one = plate("A111AA77", "", answer("", read, photo="green_car.jpg"), photo="green_car.jpg")
        return failure_sheet(Scoreboard([one]), load, ["weights"])

    perfect, wrong, short = (red_pixels(sheet(t)) for t in ("A111AA77", "A111AA71", "A111AA7"))
    assert perfect < wrong and perfect < short
    empty = failure_sheet(Scoreboard(), load, ["weights"])
    assert empty.width == WIDTH and red_pixels(empty) == 0


def test_a_view_shows_its_boxes_where_they_are() -> None:
    photo = np.zeros((100, 200, 3), np.uint8)
    photo[40:60, 90:110] = 255
    seen = np.asarray(view(photo, (120, 60), [((90.0, 40.0, 110.0, 60.0), (0, 255, 0))]))
    white = (seen == 255).all(axis=-1)
    green = (seen == (0, 255, 0)).all(axis=-1)
    rows, columns = np.nonzero(white)
    assert green.any() and seen.shape == (60, 120, 3)
    assert abs(rows.mean() - 29.5) < 1 and abs(columns.mean() - 59.5) < 1
    assert abs(np.nonzero(green)[0].mean() - 29.5) < 1
    beyond = np.asarray(view(photo, (120, 60), [((0.0, 0.0, 20.0, 10.0), (0, 255, 0))]))
    assert (beyond[0, 0] > 0).all()


@pytest.mark.skipif("PLATES_DATA" not in os.environ, reason="PLATES_DATA names no real photos")
def test_released_weights_reach_the_floors_on_real_photos(nets: Nets) -> None:
    board = evaluate(Path(os.environ["PLATES_DATA"]), nets)
    found, _, read_in_box, read, _, _, false_plates = board.counts()
    assert (found.total, read.total) == (194, 181)
    assert found.hits >= 192
    assert read_in_box.hits >= 178
    assert read.hits >= 175
    assert false_plates.hits == 0
