"""The training's renderer: texts, kinds of plates, bad cameras, crops, plates painted on photos."""

import re
import runpy
from collections import Counter
from dataclasses import replace
from itertools import product

import cv2
import numpy as np
import pytest
import torch

from plate_models.rectification import crop_boxes
from plate_models.spec import RECOGNIZER, RECTIFIER
from plate_models.training.synthetic import kinds, latin
from plate_models.training.synthetic.crops import CLUTTER, CropStyle, cut_crop, render_crop
from plate_models.training.synthetic.photo import BAD_CAMERAS, PhotoStyle, film, photograph
from plate_models.training.synthetic.plates import PlateStyle, render_plate, sample_design
from plate_models.training.synthetic.scenes import paint_clutter, paint_plate

CAR = sample_design("ru.car", np.random.default_rng(0), "A123BC77")
# A camera without faults, for tests of the geometry alone.
CLEAR_PHOTO = PhotoStyle(
    **dict.fromkeys(("dark_share", "shadow_share", "glare_share", "motion_share"), 0),
    **dict.fromkeys(("resample_share", "denoise_share", "sharpen_share"), 0),
    noise=(0.1, 0.2),
    jpeg_quality=(94, 95),
)
NEW = {"worn_share": 0, "dirty_share": 0, "snowy_share": 0}
NEW_PLATES = PlateStyle(jitter_mm=0, bolder_mm=(0.0,), ink=(20, 21), **NEW)
OLD = (100, 100, 220, 126)  # the box of a plate that others are painted over


def match(kind, text):
    """Match a text with the first pattern of its kind that fits."""
    patterns = kinds.kind_named(kind).format.patterns
    return next(filter(None, (pattern.fullmatch(text) for pattern in patterns)))


def test_all_kinds_are_in_the_training():
    assert {*kinds.DRAWN, latin.LATIN, CLUTTER} == set(dict(CropStyle().kinds))


def test_a_rendered_crop_has_its_text_and_rows():
    sample = render_crop(np.random.default_rng(3), kind=latin.LATIN)
    assert len(sample.text) > 2 and len(sample.rows) in (1, 2)
    assert render_crop(np.random.default_rng(4), kind=CLUTTER).rows == ("",)


@pytest.mark.parametrize("kind", kinds.DRAWN)
def test_texts_match_the_grammar(kind):
    rng = np.random.default_rng(0)
    codes = Counter()
    for _ in range(500):
        text = kinds.sample_text(rng, kind)
        found = match(kind, text)
        serial = text[: found.start("region")]
        assert not re.search(r"(?<!\d)0+(?!\d)", serial), f"{text}: a zero number"
        codes[found["region"]] += 1
    assert len(codes) > 25
    if kind == "ru.military":
        # These are codes of military districts, so that Moscow's are not more frequent than others.
        assert sum(codes[code] for code in ("77", "97", "99")) < 27
    else:
        assert set(codes) <= set(kinds.kind_named(kind).country.regions)


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (lambda rng: render_crop(rng, kind="ru.boat"), r"ru\.car, .*got 'ru\.boat'"),
        (lambda rng: sample_design("ru.taxi", rng, "AB123BC77"), r"no pattern of ru\.taxi"),
        (lambda rng: paint_plate(striped(OLD), np.float32(OLD) + 900, rng), "inside the photo"),
    ],
)
def test_unknown_kinds_texts_and_boxes_outside_the_photo_are_refused(refused, reason):
    with pytest.raises(ValueError, match=reason):
        refused(np.random.default_rng(0))


def plate(seed=0, style=None):
    """Render a plate of 260 x 56 pixels, larger in a holder."""
    style = style or PlateStyle(holder_share=0, hidden_share=0)
    return render_plate(CAR, 260, np.random.default_rng(seed), style).rgb


def error(first, second):
    return float(np.abs(first.astype(float) - second).mean())


def test_coarser_codecs_lose_more_and_films_end_with_the_picture_in_place():
    scene = cv2.GaussianBlur(plate(), (0, 0), 1)
    for seed in range(6):
        filmed = [film(scene, np.random.default_rng(seed), qp) for qp in (18, 30, 42)]
        losses = [error(picture, scene) for picture in filmed]
        assert losses[0] < 6 and losses[0] < losses[1] < losses[2]
        # The scene moves during the film, but the last frame is best aligned without a shift.
        fits = {
            (x, y): error(np.roll(filmed[0], (y, x), (0, 1)), scene)
            for x in (-1, 0, 1)
            for y in (-1, 0, 1)
        }
        assert min(fits, key=lambda place: fits[place]) == (0, 0)


@pytest.mark.parametrize("video_share", [0, 1])
def test_grey_photos_have_no_colour(video_share):
    for seed in range(20):
        style = replace(BAD_CAMERAS, grey_share=1, video_share=video_share)
        photo = photograph(plate(seed), np.random.default_rng(seed), style)
        assert (photo == photo[..., :1]).all()
    assert (photograph(plate(), np.random.default_rng(0), PhotoStyle()).std(axis=2) > 0).any()


def test_in_infrared_light_only_the_plate_is_bright():
    for seed in range(20):
        style = CropStyle(infrared_share=1, photo=PhotoStyle(glare_share=0), holder_box_share=0)
        sample = render_crop(np.random.default_rng(seed), style, "ru.car")
        inside = np.zeros(sample.image.shape[:2], np.uint8)
        cv2.fillConvexPoly(inside, np.rint(sample.quad).astype(np.int32), 1)
        bright = np.percentile(sample.image[inside == 1], 70)
        assert bright > np.percentile(sample.image[inside == 0], 50) + 20


def test_tilted_plates_lie_within_their_crops():
    height, width = RECTIFIER.crop_hw
    style = CropStyle(tilt_share=1, sloppy_share=0, holder_box_share=0)
    tilts = []
    for seed in range(60):
        quad = render_crop(np.random.default_rng(seed), style, "ru.car").quad
        assert (quad > -2).all() and (quad < (width + 2, height + 2)).all()
        # Crops are squeezed, so the tilt is measured as the upper edge's rise by the crop's height.
        tilts.append(abs(quad[1, 1] - quad[0, 1]) / height)
    assert np.mean(np.array(tilts) > 0.3) > 0.3


def test_obstacles_hide_only_a_small_part():
    hidden = []
    for seed in range(60):
        free, covered = (plate(seed, PlateStyle(hidden_share=share)) for share in (0, 1))
        hidden.append((free != covered).any(axis=2).mean())
    assert max(hidden) < 0.5 and np.mean(hidden) > 0.01


def test_quads_lie_exactly_on_their_plates():
    """Quads moved by half a pixel in any direction fit the plates worse."""

    def flat(image, quad):
        goal = np.array([[0, 0], [260, 0], [260, 56], [0, 56]], np.float32)
        # OpenCV's coordinates are of pixel centres, quads' of pixel corners.
        view = cv2.getPerspectiveTransform(quad - 0.5, goal - 0.5)
        return cv2.cvtColor(cv2.warpPerspective(image, view, (260, 56)), cv2.COLOR_RGB2GRAY)

    style = CropStyle((("ru.car", 1.0),), (250, 300), plate=NEW_PLATES, photo=CLEAR_PHOTO)
    moves = [(0.0, 0.0), (0.5, 0.0), (-0.5, 0.0), (0.0, 0.5), (0.0, -0.5)]
    fits = []
    for seed in range(40):
        sample = render_crop(np.random.default_rng(seed), style)
        rng = np.random.default_rng(0)
        plain = render_plate(sample_design("ru.car", rng, sample.text), 260, rng, NEW_PLATES)
        expected = flat(plain.rgb, plain.quad).ravel()
        moved = [flat(sample.image, sample.quad + np.float32(move)).ravel() for move in moves]
        fits.append([np.corrcoef(seen, expected)[0, 1] for seen in moved])
    means = np.mean(fits, axis=0)
    assert means[0] > 0.75
    assert means.argmax() == 0, means


@pytest.mark.parametrize("size_wh", [(60, 15), (130, 80), (200, 60), (400, 120)])
def test_crops_are_cut_as_in_serving(size_wh):
    widened = 1 + np.array(RECTIFIER.crop_margin_hw[::-1])
    width, height = (int(side) for side in np.round(widened * size_wh))
    photo = np.random.default_rng(12).integers(0, 256, (height + 20, width + 20, 3), np.uint8)
    photo = cv2.GaussianBlur(photo, (0, 0), 1)
    low, high = np.array([8.3, 9.6]), np.array([8.3 + width, 9.6 + height])
    crop, quad = cut_crop(photo, low, high, np.array([low, high]))
    margin = (high - low) * (1 - 1 / widened) / 2
    box = np.concatenate([low + margin, high - margin])[None]
    # A tensor's crops are computed by torch; an array's by Pillow, like `cut_crop`.
    served = crop_boxes(torch.from_numpy(photo), box, np.array([1]))[0].numpy().transpose(1, 2, 0)
    assert np.abs(crop.astype(int) - served).max() <= 2
    assert np.allclose(quad, [[0, 0], RECTIFIER.crop_hw[::-1]])


@pytest.mark.parametrize(("kind", "margin_h"), [("ru.car", 0.5), ("ru.tractor", 0.3)])
def test_boxes_are_widened_by_the_margin_of_their_lines(kind, margin_h):
    style = CropStyle(box_jitter=(0, 0), holder_box_share=0, two_line_width_px=(150, 260))
    height, width = RECTIFIER.crop_hw
    for seed in range(5):
        quad = render_crop(np.random.default_rng(seed), style, kind).quad
        shares = np.ptp(quad, axis=0) / (width, height)
        assert shares == pytest.approx([1 / 1.3, 1 / (1 + margin_h)], rel=0.01)


def striped(box):
    """A grey photo with a striped old plate in a box."""
    photo = np.full((240, 320, 3), 90, np.uint8)
    x0, y0, x1, y1 = box
    photo[y0:y1, x0:x1] = 230
    photo[y0 + 4 : y1 - 4, x0 + 6 : x1 - 6 : 5] = 20
    return photo


@pytest.mark.parametrize("kind", kinds.DRAWN)
@pytest.mark.parametrize("box", [OLD, (110, 80, 200, 140)])
def test_every_kind_can_replace_a_long_and_a_high_plate(kind, box):
    photo = striped(box)
    x0, y0, x1, y1 = box
    lines = kinds.kind_named(kind).format.lines
    for seed in range(6):
        painted, quad, rows = paint_plate(photo, np.float32(box), np.random.default_rng(seed), kind)
        assert len(rows) == lines and match(kind, "".join(rows))
        low, high = quad.min(axis=0), quad.max(axis=0)
        width, height = high - low
        assert width < 1.1 * (x1 - x0)
        assert (width > 2.6 * height) == (lines == 1)
        # One line is about as wide as the old plate, two are about as high.
        assert 0.75 < (width / (x1 - x0) if lines == 1 else height / (y1 - y0)) < 1.75
        centre = (low + high) / 2
        assert abs(centre[0] - (x0 + x1) / 2) < 2 and y0 < centre[1] < y1
        left, top, right, bottom = np.rint((*low, *high)).astype(int)
        holder = round(0.3 * height)
        around = painted.mean(axis=2)
        around[top - holder : bottom + holder, left - holder : right + holder] = 90
        assert (around[y0:y1, x0:x1] > 150).mean() < 0.01, "the old plate is still visible"
        assert (photo == striped(box)).all(), "the given photo is changed"
        changed = np.argwhere((painted != photo).any(axis=2))[:, ::-1]
        assert (changed > np.minimum(low, box[:2]) - holder - 9).all(), "changes far away"
        assert (changed < np.maximum(high, box[2:]) + holder + 9).all(), "changes far away"


def test_clutter_is_painted_all_over_the_photo_but_not_on_plates():
    photo, changed = striped(OLD), np.zeros((240, 320), np.int64)
    x0, y0, x1, y1 = OLD
    for seed in range(60):
        painted = photo.copy()
        paint_clutter(painted, np.array([OLD], np.float32), 60.0, np.random.default_rng(seed))
        changed += (painted != photo).any(axis=2)
    assert not changed[y0:y1, x0:x1].any()
    assert (changed > 0).mean() > 0.6, "most of the photo stays empty"


def test_texts_have_the_alphabets_characters_and_plausible_lengths(monkeypatch):
    rng = np.random.default_rng(1)
    plates = [latin.sample_latin(rng) for _ in range(500)]
    assert {len(plate.rows) for plate in plates} == {1, 2}
    texts = ["".join(plate.rows).replace(" ", "") for plate in plates]
    assert all(re.fullmatch("[0-9A-Z]{3,10}", text) for text in texts)
    assert set("".join(texts)) == set(RECOGNIZER.alphabet)
    other = replace(RECOGNIZER, alphabet="0123456789XYZ", countries=("de",))
    monkeypatch.setattr("plate_models.spec.RECOGNIZER", other)
    assert runpy.run_path(latin.__file__)["_LETTERS"] == ["X", "Y", "Z"]
    assert runpy.run_path(kinds.__file__)["TRAINING_SHARES"] == ()


@pytest.mark.parametrize("rows", [("AB 123CD",), ("AB", "1234")])
def test_each_row_of_ink_lies_where_rows_are_cut(rows):
    """Characters leave ink but don't merge; each row of two stays in its half of the plate."""
    plate = latin.LatinPlate(rows, (520, 112) if len(rows) == 1 else (280, 200))
    filled = []
    for seed in range(20):
        rgb, ink = latin.paint_latin(plate, np.random.default_rng(seed), 1.0)
        assert rgb.shape == (*ink.shape, 3)
        middle = ink[:, 10:-10]
        filled.append((middle[8:-8] > 128).mean())
        if len(rows) == 2:
            height = len(ink)
            assert (ink[height // 2 - 3 : height // 2 + 3, 20:-20] > 128).mean() < 0.2
    assert min(filled) > 0.05 and max(filled) < 0.6


def test_no_character_of_a_typeface_is_cut_off():
    """Not even J and Q, which reach below the baseline in typefaces not made for plates."""
    for face, char in product(latin.fonts_in(latin.FONTS), RECOGNIZER.alphabet):
        mask = latin.draw_glyph(face, char, 4)
        assert not any(side.any() for side in (mask[0], mask[-1], mask[:, 0], mask[:, -1])), char
        if char == "J":  # its foot points to the left
            foot_row = -latin.PAD_PX - 3
            stem, foot = (np.flatnonzero(mask[row])[0] for row in (len(mask) // 2, foot_row))
            assert foot < stem - 9


def test_made_up_letters_fill_their_height_and_are_distinct():
    """Only O and 0, and I and 1, may be equal: many countries stamp them with one die."""
    rng, pad = np.random.default_rng(2), latin.PAD_PX
    for _ in range(20):
        face = latin.make_up(rng)
        masks = {char: latin.draw_glyph(face, char, 0) for char in RECOGNIZER.alphabet}
        for char, mask in masks.items():
            rows = np.flatnonzero((mask > 128).any(axis=1))
            assert rows[0] <= pad + 2 and rows[-1] >= pad + latin.CAPITALS_PX - 3, char
        assert (masks["5"][pad + 45 : pad + 80, pad + int(48 * face.pen)] < 99).sum() > 8
        pictures = {mask.tobytes() for mask in masks.values()}
        assert len(pictures) >= len(masks) - 2


def test_an_error_names_the_folder_without_typefaces(tmp_path, monkeypatch):
    monkeypatch.setattr(latin, "FONTS", tmp_path)
    cure = rf"{tmp_path}: expected typefaces.*make fonts"
    with pytest.raises(FileNotFoundError, match=cure):
        latin.paint_latin(latin.LatinPlate(("A1",), (520, 112)), np.random.default_rng(1), 1.0)
