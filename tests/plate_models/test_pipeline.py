"""read_plates with stand-ins for the nets: geometry, chunks, decoding, answers."""

import numpy as np
import pytest
import torch
from torch import Tensor

from plate_models.pipeline import read_plates
from plate_models.recognition import ctc
from plate_models.recognition.decoding import choose_reading
from plate_models.rectification import normalize
from plate_models.spec import DETECTOR, RECOGNIZER, RECTIFIER

# The plate fills that share of its crop.
SHARE = 0.8
STRAIGHT = torch.tensor([[SHARE, 0, 0], [0, SHARE, 0]])


def logits_of(text: str, confidence: float = 12.0) -> Tensor:
    """(C, T) logits whose best path spells the text."""
    logits = torch.zeros(RECOGNIZER.classes, RECOGNIZER.steps)
    path = [RECOGNIZER.blank] * RECOGNIZER.steps
    path[1 : 2 * len(text) : 2] = ctc.encode(text)
    for step, label in enumerate(path):
        logits[label, step] = confidence
    return logits


def detector_of(*rows: list[float]):  # type: ignore[no-untyped-def]
    def detect(canvas: Tensor) -> Tensor:
        assert canvas.dtype == torch.uint8 and canvas.shape[:2] == (1, 3)
        assert tuple(canvas.shape[2:]) in DETECTOR.canvases_hw
        candidates = torch.zeros(1, DETECTOR.max_candidates, 6)
        for index, row in enumerate(rows):
            candidates[0, index] = torch.tensor(row)
        return candidates

    return detect


def rectify(crops: Tensor) -> tuple[Tensor, Tensor]:
    assert crops.shape[1:] == (3, *RECTIFIER.crop_hw) and len(crops) <= RECTIFIER.max_batch_size
    height, width = RECTIFIER.rectified_hw
    return crops[:, :, :height, :width], STRAIGHT.expand(len(crops), 2, 3)


def recognize(plates: Tensor) -> Tensor:
    assert len(plates) <= RECOGNIZER.max_batch_size
    return logits_of("B840CK197").expand(len(plates), -1, -1)


PHOTO = torch.zeros(448, 768, 3, dtype=torch.uint8)


def test_no_plates_is_an_empty_list() -> None:
    assert read_plates(PHOTO, detector_of(), rectify, recognize) == []


def test_a_plate_comes_back_in_photo_pixels() -> None:
    photo = torch.zeros(896, 1536, 3, dtype=torch.uint8)
    row = [100.0, 50.0, 200.0, 80.0, 0.9, 0.0]
    (plate,) = read_plates(photo, detector_of(row), rectify, recognize)
    assert plate.detection_score == pytest.approx(0.9)
    assert plate.reading.text == "B840CK197" and plate.reading.format == "ru.car"
    margin_h, margin_w = RECTIFIER.crop_margin_hw
    half_w, half_h = 100 * (1 + margin_w) * SHARE, 30 * (1 + margin_h) * SHARE
    assert plate.quad[0] == pytest.approx((300 - half_w, 130 - half_h), abs=1.5)
    assert plate.quad[2] == pytest.approx((300 + half_w, 130 + half_h), abs=1.5)
    assert plate.box == pytest.approx((*plate.quad[0], *plate.quad[2]), abs=0.01)
    assert plate.crop.shape == (*RECTIFIER.shown_hw, 3) and plate.crop.dtype == np.uint8
    assert plate.lines == 1


def test_the_box_of_what_is_not_readable_is_the_detectors() -> None:
    def recognize_nothing(plates: Tensor) -> Tensor:
        return torch.zeros(len(plates), RECOGNIZER.classes, RECOGNIZER.steps)

    row = [100.0, 50.0, 200.0, 80.0, 0.9, 0.0]
    (plate,) = read_plates(PHOTO, detector_of(row), rectify, recognize_nothing)
    assert plate.box == pytest.approx((100, 50, 200, 80)) and not plate.reading.readable


def test_a_grey_photo_is_no_evidence_against_colour() -> None:
    """By infrared light a taxi's plate is as white as all others."""

    def recognize_taxi(plates: Tensor) -> Tensor:
        return logits_of("AB12377").expand(len(plates), -1, -1)

    row = [100.0, 50.0, 200.0, 80.0, 0.9, 0.0]
    photo = torch.full_like(PHOTO, 200)
    photo[55:75:4, 110:190:3] = 10
    (grey,) = read_plates(photo, detector_of(row), rectify, recognize_taxi)
    assert (grey.reading.text, grey.reading.format) == ("AB12377", "ru.taxi")
    photo[200:] = torch.tensor([20, 60, 160], dtype=torch.uint8)
    (coloured,) = read_plates(photo, detector_of(row), rectify, recognize_taxi)
    assert coloured.reading.format == "unknown"


def test_boxes_around_quads_stay_inside_the_photo() -> None:
    row = [0.0, 0.0, 100.0, 30.0, 0.9, 0.0]
    (plate,) = read_plates(PHOTO, detector_of(row), rectify, recognize)
    assert plate.quad[0][0] < 0 and plate.box[:2] == (0, 0)


def test_a_plate_that_has_one_line_after_all_is_read_as_one() -> None:
    as_two = [100.0, 50.0, 200.0, 80.0, 0.9, 1.0]
    (plate,) = read_plates(PHOTO, detector_of(as_two), rectify, recognize)
    assert plate.lines == 1 and plate.reading.text == "B840CK197"


def test_a_short_plate_of_one_line_is_read_as_two_as_well() -> None:
    photo = PHOTO.clone()
    photo[224:] = 255
    short = [100.0, 224.0 - 40, 200.0, 224.0 + 40, 0.9, 0.0]
    (plate,) = read_plates(photo, detector_of(short), rectify, recognize_rows)
    assert plate.lines == 2 and plate.reading.text == "A123BC77"


def recognize_rows(plates: Tensor) -> Tensor:
    """Reads a row's brightness: the upper half of the photo is black, the lower white."""
    texts = {True: "BC77", False: "A123"}
    bright = (plates.mean(dim=(1, 2, 3)) > 0).tolist()
    return torch.stack([logits_of(texts[flag]) for flag in bright])


def test_a_plate_of_two_lines_is_read_row_by_row() -> None:
    photo = PHOTO.clone()
    photo[224:] = 255
    square = [100.0, 224.0 - 40, 200.0, 224.0 + 40, 0.9, 1.0]
    (plate,) = read_plates(photo, detector_of(square), rectify, recognize_rows)
    assert plate.lines == 2
    assert plate.reading.candidates[0][0] == "A123BC77"
    margin_h, margin_w = RECTIFIER.two_line_margin_hw
    half_w, half_h = 50 * (1 + margin_w) * SHARE, 40 * (1 + margin_h) * SHARE
    assert plate.quad[0] == pytest.approx((150 - half_w, 224 - half_h), abs=1.5)
    assert plate.crop[:20].max() < 60 and plate.crop[-20:].min() > 200


def test_a_plate_that_its_box_cut_is_looked_at_again() -> None:
    """Black plate on white, twice as long as its box: the rectifier points beyond the crop."""
    photo = torch.full((448, 768, 3), 255, dtype=torch.uint8)
    photo[200:220, 300:500] = 0
    looks = []

    def rectify_by_ink(crops: Tensor) -> tuple[Tensor, Tensor]:
        looks.append(len(crops))
        ink = (crops[:, 0, RECTIFIER.crop_hw[0] // 2] < 0).float().mean(dim=1)
        theta = STRAIGHT.expand(len(crops), 2, 3).clone()
        theta[:, 0, 0] = torch.where(ink > 0.95, 1.8, ink)
        height, width = RECTIFIER.rectified_hw
        return crops[:, :, :height, :width], theta

    rows = [[350.0, 200, 450, 220, 0.9, 0], [20.0, 20, 120, 40, 0.8, 0]]
    cut, _ = read_plates(photo, detector_of(*rows), rectify_by_ink, recognize)
    assert looks == [2, 1]
    assert cut.quad[0][0] == pytest.approx(300, abs=5) and cut.quad[1][0] == pytest.approx(
        500, abs=5
    )


def test_lines_may_be_mixed_in_one_photo() -> None:
    rows = [
        [100.0, 10.0, 200.0, 90.0, 0.9, 1.0],
        [300.0, 10.0, 400.0, 30.0, 0.8, 0.0],
        [500.0, 10.0, 600.0, 90.0, 0.7, 1.0],
    ]
    plates = read_plates(PHOTO, detector_of(*rows), rectify, recognize_rows)
    assert [p.reading.candidates[0][0] for p in plates] == ["A123A123", "A123", "A123A123"]


def test_overlapping_candidates_are_one_plate() -> None:
    rows = [
        [100.0, 50, 200, 80, 0.9, 0],
        [102.0, 51, 201, 80, 0.8, 0],
        [400.0, 50, 500, 80, 0.7, 0],
    ]
    plates = read_plates(PHOTO, detector_of(*rows), rectify, recognize)
    assert [plate.detection_score for plate in plates] == pytest.approx([0.9, 0.7])


def test_more_plates_than_one_batch_holds() -> None:
    rows = [[7.0 * i, 10.0 * i, 7.0 * i + 40, 10.0 * i + 9, 0.9, 0] for i in range(40)]
    plates = read_plates(PHOTO, detector_of(*rows), rectify, recognize)
    assert len(plates) == 40
    assert {plate.reading.text for plate in plates} == {"B840CK197"}


@pytest.mark.parametrize("shape", [(0, 0, 3), (10, 10), (10, 10, 4), (1, 10, 10, 3)])
def test_wrong_shapes_are_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected an image"):
        read_plates(torch.zeros(shape, dtype=torch.uint8), detector_of(), rectify, recognize)


def test_normalize_maps_bytes_to_about_minus_one_and_one() -> None:
    ends = normalize(torch.tensor([0, 255], dtype=torch.uint8))
    assert ends.tolist() == pytest.approx([-127.5 / 128, 127.5 / 128])


def reading_of(logits: Tensor):  # type: ignore[no-untyped-def]
    return choose_reading(ctc.log_softmax(logits.numpy()))


def test_certain_plate_is_readable_with_a_score_near_one() -> None:
    reading = reading_of(logits_of("H002EX71"))
    assert reading.readable and reading.score > 0.99
    assert [char for char, _ in reading.characters] == list("H002EX71")


def test_unknown_format_is_read_but_not_answered() -> None:
    reading = reading_of(logits_of("ABC123"))
    assert reading.text == "" and not reading.readable and reading.format == "unknown"
    assert reading.candidates[0][0] == "ABC123"


def test_one_uncertain_character_makes_a_plate_unreadable() -> None:
    logits = logits_of("H002EX71")
    logits[:, 3] = 0
    logits[[0, 8], 3] = torch.tensor([6.0, 5.9])
    reading = reading_of(logits)
    assert not reading.readable and reading.format == "ru.car"
    assert {text for text, _ in reading.candidates} >= {"H002EX71", "H802EX71"}


def test_the_grammar_settles_a_near_tie_and_keeps_the_raw_text() -> None:
    logits = logits_of("O002EX71")
    logits[:, 1] = 0
    logits[[ctc.encode("0")[0], ctc.encode("O")[0]], 1] = torch.tensor([6.2, 6.0])
    raw = ctc.greedy_decode(ctc.log_softmax(logits.numpy()))
    reading = reading_of(logits)
    assert raw == "0002EX71" and reading.candidates[0][0] == "O002EX71"
    assert raw in {text for text, _ in reading.candidates}


def test_the_grammar_does_not_overrule_what_is_clear() -> None:
    assert reading_of(logits_of("0002EX71")).candidates[0][0] == "0002EX71"


def test_blank_crop_reads_as_nothing() -> None:
    logits = np.zeros((RECOGNIZER.classes, RECOGNIZER.steps))
    logits[RECOGNIZER.blank] = 50
    reading = choose_reading(ctc.log_softmax(logits))
    assert reading.candidates == () and reading.score == 0 and not reading.readable
