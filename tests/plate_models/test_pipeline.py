"""read_plates with fake nets: which boxes are read how, and which plates are returned."""

from dataclasses import replace
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
from spelled import log_probs_of

from plate_models.formats import grammar_of
from plate_models.pipeline import PipelineConfig, read_plates
from plate_models.recognition import ctc
from plate_models.recognition.calibration import UNCALIBRATED
from plate_models.spec import DETECTOR, RECOGNIZER, RECTIFIER

HOME = "B840CK197"
BLUR = np.zeros((RECOGNIZER.classes, RECOGNIZER.steps))  # every character equally likely
BOLD = PipelineConfig(calibration=replace(UNCALIBRATED, elsewhere_readable_from=0.5))
BRAZIL = replace(BOLD, grammar=grammar_of("br"))
# The share of its crop that a plate fills.
SHARE = 0.8
STRAIGHT = np.array([[SHARE, 0, 0], [0, SHARE, 0]], np.float32)
PHOTO = np.zeros((448, 768, 3), np.uint8)
ROW = [100.0, 50.0, 200.0, 80.0, 0.9, 0.0]


def recognizer_of(text):
    logits = log_probs_of(text) if isinstance(text, str) else text
    return lambda plates: np.stack([logits] * len(plates))


def detector_of(*rows, near=()):
    """A net that finds `rows`, or `near` in a smaller photo, which has a bar above it."""

    def detect(canvas):
        assert canvas.dtype == np.uint8 and canvas.shape[:2] == (1, 3)
        assert canvas.shape[2:] in DETECTOR.canvases_hw
        candidates = np.zeros((1, DETECTOR.max_candidates, 6), np.float32)
        bar = (canvas[0, :, 0] == DETECTOR.pad_value).all()
        for index, row in enumerate(near if bar else rows):
            candidates[0, index] = row
        return candidates

    return detect


def rectify(crops):
    assert crops.shape[1:] == (3, *RECTIFIER.crop_hw) and len(crops) <= RECTIFIER.max_batch_size
    height, width = RECTIFIER.rectified_hw
    return crops[:, :, :height, :width], np.stack([STRAIGHT] * len(crops))


def recognize(plates):
    assert len(plates) <= RECOGNIZER.max_batch_size
    return recognizer_of(HOME)(plates)


def test_plates_are_returned_in_photo_pixels():
    photo = np.zeros((896, 1536, 3), np.uint8)
    (plate,) = read_plates(photo, detector_of(ROW), rectify, recognize)
    assert plate.reading.text == "B840CK197" and plate.reading.format == "ru.car"
    margin_h, margin_w = RECTIFIER.crop_margin_hw
    half_w, half_h = 100 * (1 + margin_w) * SHARE, 30 * (1 + margin_h) * SHARE
    assert plate.quad[0] == pytest.approx((300 - half_w, 130 - half_h), abs=1.5)
    assert plate.quad[2] == pytest.approx((300 + half_w, 130 + half_h), abs=1.5)
    assert plate.box == pytest.approx((*plate.quad[0], *plate.quad[2]), abs=0.01)
    assert plate.crop.shape == (*RECTIFIER.shown_hw, 3) and plate.crop.dtype == np.uint8


def test_a_grey_photo_is_no_evidence_against_colour():
    """In infrared light a taxi's yellow plate is as white as all others."""
    photo = np.full_like(PHOTO, 200)
    photo[55:75:4, 110:190:3] = 10
    taxi = recognizer_of("AB12377")
    (grey,) = read_plates(photo, detector_of(ROW), rectify, taxi)
    assert (grey.reading.text, grey.reading.format) == ("AB12377", "ru.taxi")
    photo[200:] = (20, 60, 160)
    (coloured,) = read_plates(photo, detector_of(ROW), rectify, taxi)
    assert coloured.reading.format == "unknown"


def test_a_readable_plates_box_is_the_hull_of_its_quad_inside_the_photo():
    (plate,) = read_plates(PHOTO, detector_of([9.0, 0.0, 109, 30, 0.9, 0]), rectify, recognize)
    assert plate.quad[0][1] < 0 and plate.box[:2] == (plate.quad[0][0], 0)
    (plate,) = read_plates(PHOTO, detector_of(ROW), rectify, recognizer_of(BLUR))
    assert plate.box == pytest.approx((100, 50, 200, 80)) and not plate.reading.readable
    assert read_plates(PHOTO, detector_of(), rectify, recognize) == []


@pytest.mark.parametrize("x", [200, 1790, 1960, 3400])
def test_small_plates_of_a_large_photo_are_found_in_its_tiles(x):
    """The photo is four tiles, which meet around x = 1920 and y = 1080."""
    batches = []

    def read(width, y=1070, still=True, least_px=20, blurred=0):
        def detect(canvas):
            rows, columns = np.nonzero((canvas[0] == 255).all(axis=0))
            candidates = np.zeros((1, DETECTOR.max_candidates, 6), np.float32)
            if len(rows) and np.ptp(columns) >= least_px:
                low, high = (columns.min(), rows.min()), (columns.max() + 1, rows.max() + 1)
                candidates[0, 0] = (*low, *high, 0.9, 0)
            return candidates

        def recognize_and_count(plates):
            batches.append(len(plates))
            text = BLUR if len(batches) <= blurred else HOME
            return recognizer_of(text)(plates)

        batches.clear()
        photo = np.zeros((2160, 3840, 3), np.uint8)
        photo[y : y + round(0.3 * width), x : x + width] = 255
        config = replace(BOLD, still=still)
        return read_plates(photo, detect, rectify, recognize_and_count, config)

    for y in (2, 1070, 1190, 2131):
        (small,) = read(90, y)
        middle = [(a + b) / 2 for a, b in zip(small.box[:2], small.box[2:], strict=True)]
        assert small.reading.text == HOME
        assert middle == pytest.approx((x + 45, y + 13.5), abs=4)
    assert read(90, still=False) == []
    # A larger plate must be found in the whole photo: tiles only add small ones.
    (large,) = read(300)
    assert large.reading.text == HOME and batches == [1]
    assert len(read(139)) == 1 and batches == [1]
    assert read(300, least_px=70) == []
    # A plate that is unreadable in the whole photo is read in a tile.
    (plate,) = read(139, blurred=1)
    assert plate.reading.text == HOME


def test_without_a_readable_plate_the_detector_runs_again_on_a_smaller_photo():
    def read(*rows, near, text=HOME, still=True):
        # The photo in the middle of the canvas, a third of its size.
        detect = detector_of(*rows, near=([288.0, 165, 388, 195, near, 0],))
        config = replace(BOLD, still=still)
        return read_plates(PHOTO, detect, rectify, recognizer_of(text), config)

    (plate,) = read(near=0.9)
    middle = (plate.box[0] + plate.box[2]) / 2, (plate.box[1] + plate.box[3]) / 2
    assert plate.reading.text == HOME and middle == pytest.approx((246, 93), abs=1)
    assert read(near=0.9, still=False) == [] and len(read(ROW, near=0.9)) == 1
    # Unreadable plates found there need a higher score. Of boxes that overlap only one is kept.
    assert read(near=0.6, text=BLUR) == [] and len(read(near=0.75, text=BLUR)) == 1
    assert len(read([96.0, 48, 390, 138, 0.9, 0], near=0.75, text=BLUR)) == 1
    # The highest detection score comes first, readable or not. Boxes inside a readable plate are
    # dropped as its parts. A wide one may be a part even if it is readable, unless its detection
    # score and its text are sure and its format is known.
    part = log_probs_of("AB123CD")
    for beside, score, first, texts in (
        ([500.0, 300, 700, 340], 0.9, BLUR, ["", HOME]),
        ([330.0, 60, 390, 70], 0.9, BLUR, [HOME]),
        ([400.0, 60, 600, 110], 0.5, part, [HOME]),
        ([400.0, 60, 600, 110], 0.9, part, ["AB123CD"]),
        ([400.0, 60, 500, 90], 0.9, part, ["AB123CD"]),
    ):
        seen = iter((first, log_probs_of(HOME)))
        detect = detector_of([*beside, score, 0], near=([270.0, 165, 480, 215, 0.75, 0],))
        nets = detect, rectify, lambda crops, seen=seen: recognizer_of(next(seen))(crops)
        assert [plate.reading.text for plate in read_plates(PHOTO, *nets, BOLD)] == texts


@pytest.mark.parametrize(
    ("first", "last", "quad", "still", "readable"),
    [
        (668, 768, 1, True, False),
        (0, 100, 1, True, False),
        (660, 760, 1, True, True),
        (660, 760, 0.8, True, True),
        (666, 766, 0.8, True, False),  # The detector's box is cut, though not the quad.
        (668, 768, 1, False, True),  # Cameras judge it from the whole pass.
        (2, 766, 1, True, True),  # The photo shows that plate alone.
    ],
)
def test_a_plate_that_a_side_of_the_photo_may_cut_is_unreadable(first, last, quad, still, readable):
    def rectify_scaled(crops):
        rectified, theta = rectify(crops)
        return rectified, theta * quad

    detect = detector_of([first, 100, last, 100 + (last - first) * 0.3, 0.9, 0.0])
    config = PipelineConfig(still=still)
    [plate] = read_plates(PHOTO, detect, rectify_scaled, recognize, config)
    assert (plate.reading.text, plate.reading.best) == (HOME if readable else "", HOME)


def test_boxes_inside_a_readable_plate_are_dropped():
    """They are its parts, such as the region. Of unreadable plates both boxes are returned."""
    both = detector_of(ROW, [150.0, 55.0, 195.0, 75.0, 0.95, 0.0])
    (plate,) = read_plates(PHOTO, both, rectify, recognize, PipelineConfig(still=False))
    assert plate.detection_score == pytest.approx(0.9)
    assert len(read_plates(PHOTO, both, rectify, recognizer_of(BLUR))) == 2


def test_a_plates_lines_are_those_of_its_reading_and_may_differ_within_a_photo():
    (plate,) = read_plates(PHOTO, detector_of([*ROW[:5], 1.0]), rectify, recognize)
    assert plate.lines == 1 and plate.reading.text == "B840CK197"
    rows = [
        [100.0, 10.0, 200.0, 90.0, 0.9, 1.0],
        [300.0, 10.0, 400.0, 30.0, 0.8, 0.0],
        [500.0, 10.0, 600.0, 90.0, 0.7, 1.0],
    ]
    plates = read_plates(PHOTO, detector_of(*rows), rectify, recognize_rows)
    assert [p.reading.candidates[0][0] for p in plates] == ["A123A123", "A123", "A123A123"]


def recognize_rows(plates):
    """Read "A123" from a black row, "BC77" from a white one."""
    texts = {True: "BC77", False: "A123"}
    bright = (plates.mean(axis=(1, 2, 3)) > 0).tolist()
    return np.stack([log_probs_of(texts[flag]) for flag in bright])


@pytest.mark.parametrize("detected_as_two", [1.0, 0.0])
def test_a_plate_of_two_lines_is_read_row_by_row(detected_as_two):
    """If the detector reports one line, a short plate is still read as two, too."""
    photo = PHOTO.copy()
    photo[224:] = 255
    square = [100.0, 224.0 - 40, 200.0, 224.0 + 40, 0.9, detected_as_two]
    (plate,) = read_plates(photo, detector_of(square), rectify, recognize_rows)
    assert plate.lines == 2
    assert plate.reading.text == plate.reading.candidates[0][0] == "A123BC77"
    if detected_as_two:
        margin_h, margin_w = RECTIFIER.two_line_margin_hw
        half_w, half_h = 50 * (1 + margin_w) * SHARE, 40 * (1 + margin_h) * SHARE
        assert plate.quad[0] == pytest.approx((150 - half_w, 224 - half_h), abs=1.5)
    assert plate.crop[:20].max() < 60 and plate.crop[-20:].min() > 200
    assert ctc.greedy_decode(plate.log_probs) == "A123BC77"


@pytest.mark.parametrize(
    ("half_height", "low", "config", "text"),
    [
        *((40, "AB123CD", BOLD, "AB123CD"), (8, "AB123CD", BOLD, ""), (40, "DKL", BOLD, "")),
        *((40, HOME, BOLD, ""), (40, "BRA2E19", BRAZIL, "BRA2E19")),
    ],
    ids=["North America's", "wide: no words", "text of one row", "home country's", "Brazil's"],
)
def test_low_characters_are_read_without_the_words_above_and_below(half_height, low, config, text):
    def recognize_white(plates):
        white = plates.min(axis=(1, 2, 3)) > 0.9
        return np.stack([log_probs_of(low if one else "") for one in white])

    plate_half = half_height * (1 + RECTIFIER.crop_margin_hw[0]) * SHARE
    photo, words = PHOTO.copy(), round(0.68 * plate_half)
    photo[224 - words : 224 + words] = 255
    box, nets = [100.0, 224.0 - half_height, 200.0, 224.0 + half_height], (rectify, recognize_white)
    (plate,) = read_plates(photo, detector_of([*box, 0.9, 0.0]), *nets, config)
    assert (plate.reading.text, plate.lines) == (text, 1)
    assert plate.quad[0][1] == pytest.approx(224 - plate_half, abs=1.5)
    # Boxes with a low detection score are not read a second time.
    assert read_plates(photo, detector_of([*box, 0.2, 0.0]), *nets, config) == []


def test_a_plate_cut_by_its_box_is_cropped_again():
    """A black plate is twice as long as its box: the rectifier's quad exceeds the crop."""
    photo = np.full((448, 768, 3), 255, np.uint8)
    photo[200:220, 300:500] = 0
    batches, read_from = [], []

    def rectify_by_ink(crops):
        batches.append(len(crops))
        ink = (crops[:, 0, RECTIFIER.crop_hw[0] // 2] < 0).mean(axis=1)
        rectified, theta = rectify(crops)
        rectified = np.full_like(rectified, len(batches))
        theta[:, 0, 0] = np.where(ink > 0.95, 1.8, ink)
        return rectified, theta

    def recognize_and_note(plates):
        read_from.extend(plates[:, 0, 0, 0].tolist())
        return recognize(plates)

    rows = [[350.0, 200, 450, 220, 0.9, 0], [20.0, 20, 120, 40, 0.8, 0]]
    cut, other = read_plates(photo, detector_of(*rows), rectify_by_ink, recognize_and_note)
    assert np.median(cut.crop) < 50 and np.median(other.crop) > 200  # each has its own crop
    assert batches == [2, 1] and read_from == [2, 1]  # of the cut plate, the second crop is read
    assert [cut.quad[0][0], cut.quad[1][0]] == pytest.approx([300, 500], abs=5)


def uncertain(share, text=HOME):  # the fourth character may be a 9
    return log_probs_of(text, {3: {text[3]: share, "9": 1 - share}})


@pytest.mark.parametrize(
    ("first", "still", "text", "batches"),
    [
        (uncertain(0.6), True, "B849CK197", [1, 4]),
        (uncertain(0.7), False, "B840CK197", [1]),
        (uncertain(0.93), True, "B840CK197", [1]),
        (uncertain(0.93, "AB123CD"), True, "B849CK197", [1, 4]),
        (log_probs_of("B8", {1: {"8": 0.6, "9": 0.4}}), True, "", [1]),
        (BLUR, True, "", [1]),
    ],
    ids=["uncertain", "of a camera", "sure", "not sure enough abroad", "no text", "hopeless"],
)
def test_an_uncertain_plate_is_read_from_shifted_crops_too(first, still, text, batches):
    seen = []

    def recognize_again(plates):
        seen.append(plates)
        return recognizer_of(first if len(seen) == 1 else uncertain(0.1))(plates)

    photo = np.random.default_rng(1).integers(0, 255, PHOTO.shape).astype(np.uint8)
    nets = detector_of([100.0, 50.0, 220.0, 74.0, 0.9, 0.0]), rectify, recognize_again
    (plate,) = read_plates(photo, *nets, PipelineConfig(still=still))
    assert plate.reading.text == text
    assert [len(plates) for plates in seen] == batches
    assert len({plates.tobytes() for batch in seen for plates in batch}) == sum(batches)


def test_at_most_four_uncertain_plates_with_motion_blur_are_deblurred():
    photo = np.random.default_rng(1).integers(0, 255, PHOTO.shape).astype(np.uint8)
    photo[210:] = cv2.blur(photo[210:], (15, 1))
    rows = [[100.0, 45 * i, 220.0, 45 * i + 24, 0.9 - 0.01 * i, 0.0] for i in range(1, 10)]
    recognize_with_doubt = Mock(side_effect=recognizer_of(uncertain(0.6)))
    read_plates(photo, detector_of(*rows), rectify, recognize_with_doubt)
    batches = [len(plates) for (plates,), _ in recognize_with_doubt.call_args_list]
    # Four plates are sharp; four of the five blurred ones are tried: 17 lengths, then 4 rotations.
    assert batches[-8:] == [17, 4] * 4 and batches.count(17) == 4


@pytest.mark.parametrize(
    ("score", "text", "contrast", "still", "kept"),
    [
        (0.54, "7", 1, True, False),
        (0.54, "", 1, True, False),
        (0.54, "7", 1, False, True),
        *((0.24, HOME, 1, False, False), (0.26, HOME, 1, False, True)),
        (0.24, HOME, 1, True, True),
        (0.56, "7", 1, True, True),
        (0.3, "777", 1, True, True),
        (0.54, "777", 0.2, True, False),
    ],
)
def test_a_box_with_a_low_score_and_too_little_text_is_dropped(score, text, contrast, still, kept):
    nets = detector_of([*ROW[:4], score, 0.0]), rectify, lambda x: contrast * recognizer_of(text)(x)
    assert len(read_plates(PHOTO, *nets, PipelineConfig(still=still))) == kept


def test_in_a_box_with_a_low_score_only_home_formats_and_sure_known_ones_are_readable():
    known = "AB123CD"
    unsure = log_probs_of(known, {4: {"3": 0.8, "8": 0.2}})
    for score, seen, readable in (
        *((0.49, "AB123C", False), (0.51, "AB123C", True)),
        *((0.49, known, True), (0.49, unsure, False), (0.51, unsure, True)),
        (0.3, HOME, True),
    ):
        nets = detector_of([*ROW[:4], score, 0.0]), rectify, recognizer_of(seen)
        (plate,) = read_plates(PHOTO, *nets, BOLD)
        assert plate.reading.readable == readable
        assert plate.reading.best == (known if seen is unsure else seen)


def test_more_plates_than_fit_in_a_batch_are_all_read():
    rows = [[7.0 * i + 9, 10.0 * i, 7.0 * i + 49, 10.0 * i + 9, 0.9, 0] for i in range(40)]
    plates = read_plates(PHOTO, detector_of(*rows), rectify, recognize)
    assert len(plates) == 40
    assert {plate.reading.text for plate in plates} == {"B840CK197"}
